/* SPDX-License-Identifier: Apache-2.0 */
/* The second reading of a trace, once kinds, steps and the run's length are known: the holders of
 * memory over time. It reads the records again, so it costs as much as the model; its tables are
 * bounded, whatever the trace holds. All is exact for the part of the run with records (from
 * first_detail_ns); memory that was live before has no site.
 *
 * Owned by the model (ms_model_survey); its devices are those that the model has. */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_H
#define MEMSHIM_REPORT_MODEL_SURVEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/growth.h"
#include "report/model/headroom.h"
#include "report/model/kinds.h"

struct ms_model;

/* ---- over time ---- */

#define MS_SURVEY_BUCKETS 256u /* of equal length, over the whole run */

/* Lines that are stacked in the drawing. Kinds are live bytes, and together make the live line. */
enum ms_survey_line {
    MS_SURVEY_HOLES = MS_KIND_COUNT, /* reserved and not live */
    MS_SURVEY_FORWARDED,             /* allocations that the driver served */
    MS_SURVEY_CONTEXT,               /* taken by the driver itself */
    MS_SURVEY_APPLICATION,           /* the program's own chunks without known tensors */
    MS_SURVEY_LINES
};

struct ms_survey_bucket {
    uint64_t last_bytes[MS_SURVEY_LINES];    /* at the bucket's end */
    uint64_t highest_bytes[MS_SURVEY_LINES]; /* at the moment in it with the most live bytes */
    uint64_t highest_ns;                     /* when that was */
    uint64_t host_bytes;                     /* at the end: chunks in host memory */
    uint64_t most_waiting_bytes;             /* in it: see MS_EVENT_WAITS */
};

/* ---- moments ---- */

#define MS_SURVEY_SLICES   64u /* moments spread over the run: the highest one of each slice */
#define MS_SURVEY_OOMS     16u /* the last out-of-memories, which have a moment */
#define MS_SURVEY_HOLDINGS 200u

enum ms_moment_kind { MS_MOMENT_HIGH, MS_MOMENT_PEAK, MS_MOMENT_OOM, MS_MOMENT_END };

struct ms_holding {
    uint32_t site;      /* 0: memory without one */
    uint32_t path_site; /* whose Python frames led to it: for an autograd worker another site's */
    uint8_t kind;       /* enum ms_kind: of most of its bytes then */
    uint64_t bytes;
};

/* The holders of live memory at one moment. */
struct ms_survey_moment {
    enum ms_moment_kind kind;
    uint64_t time_ns;
    uint64_t live_bytes;
    uint64_t moved_bytes; /* moved to the host and not back, including memory that was freed there;
                             UINT64_MAX: unknown */
    size_t oom;           /* MS_MOMENT_OOM: ms_model_oom_at */
    uint64_t kind_bytes[MS_KIND_COUNT];
    uint32_t backward_site;            /* the Python site that called autograd last; 0: none seen */
    size_t first, count;               /* of its holdings, the largest first */
    uint64_t other_bytes, other_sites; /* of holders that are not listed */
};

/* ---- turns ---- */

#define MS_SURVEY_TURNS 16u

/* The moment at which a site held its most, if that was not the peak: of such moments, the one with
 * the most live bytes. */
struct ms_turn {
    uint32_t site;
    uint64_t most_bytes;       /* that it ever held */
    uint64_t live_bytes;       /* of all sites then; 0: no such moment in the records */
    struct ms_buffer holdings; /* struct ms_holding, all of them, without kinds and paths */
};

/* ---- addresses ---- */

#define MS_MAP_SEGMENTS 8u   /* the most segments of a device: those with most bytes x time */
#define MS_MAP_ROWS     64u  /* of equal length, over the addresses that were ever mapped */
#define MS_MAP_COLUMNS  128u /* of equal length, over the run; a cell is the state at its end */

enum ms_map_state {
    MS_MAP_NOTHING,
    MS_MAP_LIVE,   /* backed on the device */
    MS_MAP_HOLE,   /* backed, and not live */
    MS_MAP_TAKEN,  /* in an arena or a framework's page, but its backing was taken */
    MS_MAP_SPILLED /* live, backed by host memory */
};

/* The state of most of a cell's bytes. */
struct ms_map_cell {
    uint8_t state;      /* enum ms_map_state */
    uint8_t live_share; /* the live share of the cell's bytes: 0 none, 255 all */
    uint32_t site;      /* with most live bytes in it; 0: nothing is live, or it has no site */
};

struct ms_map_segment {
    uint64_t addr, bytes; /* all rows together */
    uint64_t begin_ns, end_ns;
    bool framework; /* the program reserved it (PyTorch's expandable segments) */
    struct ms_map_cell cells[MS_MAP_ROWS][MS_MAP_COLUMNS]; /* lowest address first */
};

/* An arena, or a row of pages that a framework mapped, with live memory and holes. */
struct ms_pinned_arena {
    uint64_t addr, bytes;
    uint64_t live_bytes, backed_hole_bytes, taken_hole_bytes, largest_hole_bytes;
    uint64_t tensors;  /* live in it */
    uint32_t sites[3]; /* with most live bytes in it, the largest first; see site_count */
    uint8_t site_count;
};

/* A site whose live tensors pin free bytes: of each arena, every live tensor in it pins an equal
 * share of the holes. */
struct ms_pinning_site {
    uint32_t site;
    uint64_t tensors, live_bytes, pinned_bytes;
};

#define MS_PINNED_ARENAS 50u
#define MS_PINNING_SITES 50u

struct ms_survey_pins {
    uint64_t time_ns;
    uint64_t backed_hole_bytes; /* of all arenas */
    size_t arena_count, site_count;
    struct ms_pinned_arena arenas[MS_PINNED_ARENAS]; /* most backed holes first */
    struct ms_pinning_site sites[MS_PINNING_SITES];  /* most pinned first */
};

/* ---- sizes, temporaries ---- */

#define MS_SURVEY_SIZES 64u

struct ms_size_class {
    uint64_t count, bytes; /* requested blocks and tensors of [2^i, 2^(i + 1)) bytes */
};

/* Allocations that were freed before the device's next one. */
struct ms_temporary {
    uint32_t site;
    uint64_t count, bytes; /* of those; bytes: summed */
    uint64_t lifetime_ns;  /* summed */
};

#define MS_SURVEY_TEMPORARIES 50u

/* ---- caches that the program emptied ---- */

#define MS_SURVEY_EMPTYINGS 16u

/* A line of the program that makes PyTorch give back its cached memory (torch.cuda.empty_cache). */
struct ms_emptying {
    uint32_t site;                 /* the first of that line */
    uint64_t calls, pieces, bytes; /* pieces: segments or pages */
    uint64_t chunks_before;        /* made before the first call; driver calls likewise */
    uint64_t driver_calls_before;
};

/* ---- the whole ---- */

struct ms_survey_device {
    bool used;
    struct ms_survey_bucket *buckets; /* MS_SURVEY_BUCKETS of them */
    struct ms_buffer moments;         /* struct ms_survey_moment, by time */
    struct ms_buffer holdings;        /* struct ms_holding */
    struct ms_turn *turns;            /* null: not requested; those with the most beside the peak */
    size_t turn_count;
    struct ms_map_segment *segments; /* null: not requested, or none */
    size_t segment_count;
    struct ms_survey_pins *pins; /* at the peak; null: not requested, or no arena then */
    struct ms_size_class sizes[MS_SURVEY_SIZES];
    struct ms_temporary temporaries[MS_SURVEY_TEMPORARIES]; /* most of them first */
    size_t temporary_count;
    uint64_t temporary_allocations, temporary_bytes;   /* of all sites */
    struct ms_emptying emptyings[MS_SURVEY_EMPTYINGS]; /* most bytes first */
    size_t emptying_count;
    uint64_t most_waiting_bytes, most_waiting_ns; /* over all buckets, and its first time */
    uint64_t most_torch_bytes; /* the most that PyTorch held in segments or pages; 0: unknown */
    /* Most live bytes before the first step, and from then on. 0: unknown, or nothing was live. */
    uint64_t most_before_steps_bytes, most_in_steps_bytes;
    uint64_t most_in_past_steps_bytes; /* in the steps before the clock's newest */
    /* How many samples of the clock in a row, up to its newest, found more live bytes than any
     * before, clearly; and what the first of them found. */
    size_t rising_samples;
    uint64_t rising_from_bytes;
    struct ms_growth growth;
    struct ms_headroom headroom;
};

/* The device's live memory at an out-of-memory. */
struct ms_survey_oom {
    bool known; /* the records reach it */
    uint64_t kind_bytes[MS_KIND_COUNT];
};

struct ms_survey {
    uint64_t bucket_ns; /* length of a bucket; a map's column is twice as long */
    struct ms_survey_device devices[MS_DEVICE_COUNT];
    struct ms_buffer ooms; /* struct ms_survey_oom, one for each of the model's */
    bool recorded;         /* the requested recording has all events of the run */
};

void ms_survey_delete(struct ms_survey *survey); /* null: nothing */

static inline size_t ms_survey_moment_count(const struct ms_survey_device *device)
{
    return device->moments.bytes / sizeof(struct ms_survey_moment);
}

static inline const struct ms_survey_moment *
ms_survey_moment_at(const struct ms_survey_device *device, size_t index)
{
    return (const struct ms_survey_moment *)device->moments.at + index;
}

static inline const struct ms_holding *ms_survey_holding_at(const struct ms_survey_device *device,
                                                            size_t index)
{
    return (const struct ms_holding *)device->holdings.at + index;
}

/* By its index in the model. */
static inline const struct ms_survey_oom *ms_survey_oom_at(const struct ms_survey *survey,
                                                           size_t index)
{
    return (const struct ms_survey_oom *)survey->ooms.at + index;
}

/* The sums over all emptyings of the device's caches. */
struct ms_emptied {
    uint64_t calls, bytes;
    uint64_t chunks_made, driver_calls; /* from the first one to the end of the run */
};
struct ms_emptied ms_survey_emptied(const struct ms_model *model, int device);

/* The moment of the out-of-memory with that index in the model; null: there is none. */
const struct ms_survey_moment *ms_survey_oom_moment(const struct ms_survey_device *device,
                                                    size_t oom);

#endif
