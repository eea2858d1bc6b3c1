/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded run of one device, in memory: the program's requests, without any allocator's
 * decisions. It is read from a trace (recording_trace.c) or a CSV (recording_csv_read.c).
 *
 * Addresses are those of the run. Objects in an arena have an offset, so that a replay can put the
 * arena elsewhere. */
#ifndef MEMSHIM_REPORT_REPLAY_RECORDING_H
#define MEMSHIM_REPORT_REPLAY_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/slab.h"
#include "allocator/base/containers/treap.h"

#define MS_RECORDED_NONE UINT32_MAX

/* Streams of a recording are numbered from 1, in the order of their first use; 0 is none (a call
 * that is ordered after all work of the device, as cudaMalloc's). Programs with more share the
 * last. */
#define MS_RECORDED_STREAMS 60u

/* More than any device's addresses reach. */
#define MS_RECORDED_MOST_BYTES (UINT64_C(1) << 48)

/* The comment on each line has the fields of struct ms_operation and their meaning. */
enum ms_operation_kind {
    MS_OPERATION_ALLOC,        /* object, arena if tensors are allocated in it, bytes, stream, site;
                                  offset: its address in the run, 0 unknown */
    MS_OPERATION_FREE,         /* object, arena, bytes as at its allocation; stream */
    MS_OPERATION_TENSOR_ALLOC, /* object, arena, offset, bytes, site */
    MS_OPERATION_TENSOR_FREE,  /* object, arena, offset, bytes */
    MS_OPERATION_RESERVE,   /* arena, bytes: addresses that the program maps pages into by itself */
    MS_OPERATION_UNRESERVE, /* arena */
    MS_OPERATION_MAP,       /* arena, offset, bytes: a page of the program's */
    MS_OPERATION_UNMAP,     /* arena, offset, bytes */
    MS_OPERATION_CACHED,    /* arena, offset, bytes: free at the beginning, after tensors were in
                               it */
    MS_OPERATION_FREEZE,    /* arena: the next allocation in it is that of a capture */
    MS_OPERATION_CHARGE,    /* bytes that the driver took besides the pool */
    MS_OPERATION_DISCHARGE, /* bytes */
    MS_OPERATION_STEP,      /* a step of the training begins */
    MS_OPERATION_REFUSED,   /* bytes, stream, site: refused; the run went on */
    MS_OPERATION_FATAL,     /* likewise; the run ended */
    MS_OPERATION_KIND_COUNT
};

struct ms_operation {
    uint8_t kind; /* enum ms_operation_kind */
    uint8_t stream;
    bool optional;   /* of a tensor: where it is refused, the run goes on without it */
    uint32_t object; /* a block or a tensor, numbered by allocation */
    uint32_t arena;  /* MS_RECORDED_NONE where there is none */
    uint32_t site;   /* 0: unknown */
    uint64_t offset;
    uint64_t bytes;
    uint64_t time_us;
};

struct ms_recorded_arena {
    uint64_t addr, bytes; /* its place in the run; a reservation's is at least what was mapped */
    bool reservation;     /* else a block */
};

/* The fault of an operation: the field, and a sentence; field is null: no fault. */
struct ms_complaint {
    const char *field, *problem;
};

struct ms_recording {
    struct ms_buffer operations;  /* struct ms_operation, in order */
    struct ms_buffer arenas;      /* struct ms_recorded_arena */
    struct ms_buffer site_names;  /* of sites with a name: zero-terminated, one after the other */
    struct ms_buffer site_starts; /* size_t: where the name of site i + 1 begins */
    uint32_t objects, streams;
    unsigned device;
    uint64_t events;      /* of the device, in the trace */
    uint64_t most_events; /* record only so many of these, from the first one on; 0: all. With a
                             limit, the run's end is unknown */
    uint64_t left_out;    /* operations on objects from before the recording */
    uint64_t damaged_windows, recycled_events; /* of the trace: their events are missing here (a
                                                  part of its log counts as a window) */
    uint64_t peak_live_bytes;                  /* blocks that are no arenas, and tensors */
    uint64_t peak_wanted_bytes;                /* with the request that ended the run, if one did */
    uint64_t end_live_bytes;
    uint64_t cap_bytes, device_bytes;                      /* of the run; 0: unknown */
    uint64_t allocations, tensor_allocations, maps, steps; /* operations of these kinds */
    uint64_t refused, fatal;                               /* likewise, after ms_recording_end */
    struct ms_treap_node *places; /* blocks and pages that have an address */
    struct ms_slab place_slab;
    struct ms_numbers *live, *reservations, *stream_numbers; /* by the run's ids */
    struct ms_numbers *sites;                                /* by the hash of the name */
};

static inline size_t ms_recording_count(const struct ms_recording *recording)
{
    return recording->operations.bytes / sizeof(struct ms_operation);
}

/* Whether the run went on after the last recorded event. */
static inline bool ms_recording_is_part(const struct ms_recording *recording)
{
    return recording->most_events > 0 && recording->events > recording->most_events;
}

static inline const struct ms_operation *ms_recording_at(const struct ms_recording *recording,
                                                         size_t index)
{
    return (const struct ms_operation *)recording->operations.at + index;
}

static inline size_t ms_recording_arenas(const struct ms_recording *recording)
{
    return recording->arenas.bytes / sizeof(struct ms_recorded_arena);
}

static inline const struct ms_recorded_arena *
ms_recording_arena(const struct ms_recording *recording, size_t index)
{
    return (const struct ms_recorded_arena *)recording->arenas.at + index;
}

/* False: memory ran out. Free it either way. */
bool ms_recording_begin(struct ms_recording *recording);
void ms_recording_free(struct ms_recording *recording);

/* A recording on the heap, begun. Null: memory ran out. */
struct ms_recording *ms_recording_new(unsigned device);
void ms_recording_delete(struct ms_recording *recording); /* null: nothing */

/* ---- making one: an operation at a time, in order. An operation with a complaint is not added.
 * Ids are the run's: unique among live objects. */

/* addr: 0: unknown. segment: it is an arena, even without any allocation in it. */
struct ms_complaint ms_recording_alloc(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t id, uint64_t addr, uint64_t bytes, uint64_t stream,
                                       uint32_t site, bool segment);
struct ms_complaint ms_recording_release(struct ms_recording *recording, uint64_t time_us,
                                         uint64_t id, uint64_t stream);

/* block: the id of the block that holds it; 0: the block or page at addr. */
struct ms_complaint ms_recording_allocated(struct ms_recording *recording, uint64_t time_us,
                                           uint64_t id, uint64_t addr, uint64_t bytes,
                                           uint32_t site, uint64_t block);
struct ms_complaint ms_recording_freed(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t id);

/* Memory that a framework keeps for later tensors: free memory of a segment or of mapped pages. */
struct ms_complaint ms_recording_cached(struct ms_recording *recording, uint64_t time_us,
                                        uint64_t addr, uint64_t bytes);

/* Pages. reservation: any number that is unique while the reservation exists; an unrecorded one
 * begins with its first page. */
struct ms_complaint ms_recording_reserve(struct ms_recording *recording, uint64_t time_us,
                                         uint64_t reservation, uint64_t addr, uint64_t bytes);
struct ms_complaint ms_recording_unreserve(struct ms_recording *recording, uint64_t time_us,
                                           uint64_t reservation);
struct ms_complaint ms_recording_map(struct ms_recording *recording, uint64_t time_us,
                                     uint64_t reservation, uint64_t addr, uint64_t bytes);
struct ms_complaint ms_recording_unmap(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t addr, uint64_t bytes);

struct ms_complaint ms_recording_freeze(struct ms_recording *recording, uint64_t time_us,
                                        uint64_t addr);
struct ms_complaint ms_recording_charge(struct ms_recording *recording, uint64_t time_us,
                                        enum ms_operation_kind kind, uint64_t bytes);
struct ms_complaint ms_recording_step(struct ms_recording *recording, uint64_t time_us);

/* kind: MS_OPERATION_REFUSED or MS_OPERATION_FATAL. */
struct ms_complaint ms_recording_refused(struct ms_recording *recording, uint64_t time_us,
                                         enum ms_operation_kind kind, uint64_t bytes,
                                         uint64_t stream, uint32_t site);

/* The number of a call site by its name; 0: the name is empty, or memory ran out. */
uint32_t ms_recording_site(struct ms_recording *recording, const char *name, size_t bytes);

/* Null: the site has no name. */
const char *ms_recording_site_name(const struct ms_recording *recording, uint32_t site);

/* The largest number of a call site in its operations; 0: they have none. */
uint32_t ms_recording_last_site(const struct ms_recording *recording);

/* Makes the tensors of some call sites optional. sites: by their numbers, up to the last. */
void ms_recording_set_optional(struct ms_recording *recording, const bool *sites);

/* Called once, at the end: computes the sums, and every arena's extent. False: memory ran out. */
bool ms_recording_end(struct ms_recording *recording);

/* ---- reading one. False, with a sentence in `why` that names the file (and the line and
 * field). */

#define MS_CSV_HEADER "time_us,op,id,bytes,stream,site"

/* path: plain or gzip; "-": the standard input. */
bool ms_recording_read_csv(struct ms_recording *recording, const char *path, char *why,
                           size_t why_bytes);

/* The same from an open file, which it closes; fd < 0: errno says why there is none. name: for
 * messages. */
bool ms_recording_read_csv_from(struct ms_recording *recording, int fd, const char *name, char *why,
                                size_t why_bytes);

/* path: a trace file or its folder. device: an ordinal, or -1: the one with most events.
 *
 * Every out-of-memory of the device in the trace's log is an operation. Its size is that of the
 * request, or of the segment that PyTorch asked the driver for, if that is larger. A request that
 * is repeated with no allocation in between is one operation, at its last refusal: PyTorch frees
 * its cache and tries again before it raises its error. The last one ended the run by the rule of
 * the report's `recovered`: after it came no allocation of that size, nor many of any size, and the
 * process did not end with status 0. If PyTorch's second try succeeds, or the program goes on with
 * less, the run survived it. */
bool ms_recording_read_trace(struct ms_recording *recording, const char *path, int device,
                             char *why, size_t why_bytes);

/* Writes the recording as CSV. Ids and addresses are small numbers that are used again, and times
 * are written only every 10 ms, so that it compresses well. */
void ms_recording_format_csv(const struct ms_recording *recording, struct ms_buffer *out);

#endif
