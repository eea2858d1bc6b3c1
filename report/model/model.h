/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a trace: the sums and the timeline of every device, the out-of-memories with
 * their verdicts, and how much of it is exact. */
#ifndef MEMSHIM_REPORT_MODEL_MODEL_H
#define MEMSHIM_REPORT_MODEL_MODEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fit/what_if_search.h"
#include "report/fold/digest.h"
#include "report/fold/landmarks.h"
#include "report/fold/site_sums.h"
#include "report/fold/steps.h"
#include "report/model/address_ranges.h"
#include "report/model/kinds.h"
#include "report/model/survey.h"
#include "report/symbols/stacks.h"
#include "report/trace/format.h"
#include "report/trace/recorded.h"
#include "report/trace/sites.h"
#include "report/trace/verdict.h"

struct ms_model_device {
    bool used;
    bool has_uuid;
    char name[MS_NAME_BYTES];
    uint8_t uuid[MS_UUID_BYTES];
    struct ms_aggregate sums;      /* at the end */
    struct ms_series_pair *series; /* owned */
};

struct ms_model_oom {
    uint64_t time_ns;
    uint64_t event; /* number of events recorded before it */
    uint64_t device;
    uint64_t times; /* how often it was asked for, with nothing else of note in between; the state
                       is of the last time */
    struct ms_log_oom record;
    enum ms_verdict verdict;
    uint64_t short_bytes;
    bool recovered;
    bool training;   /* a backward pass follows the request, or that is unknown */
    bool evaluating; /* an evaluation asked for it */
};

struct ms_model_threshold {
    uint64_t time_ns, device, state, charged_bytes;
};

/* Records that were read in sequence, so that they can be read again. */
struct ms_model_window {
    uint64_t sequence; /* of the window in the trace; 0: the tail */
    uint64_t first_event, start_time_ns;
    uint32_t count, allocations; /* read; blocks and tensors allocated before them */
    bool after_gap;
};

enum ms_process_end {
    MS_PROCESS_RUNNING,
    MS_PROCESS_ENDED,  /* in order */
    MS_PROCESS_EXITED, /* it left an open trace, and its exit status */
    MS_PROCESS_KILLED  /* it left an open trace */
};

struct ms_model {
    char path[PATH_MAX]; /* of the trace file */
    char dir[PATH_MAX];  /* of the trace file */
    struct ms_file_header header;
    enum ms_process_end end;
    uint64_t duration_ns;
    struct ms_model_device devices[MS_DEVICE_COUNT];
    ms_definitions_t *definitions; /* of call sites; owned, like the next two */
    ms_site_table_t *sites;
    ms_stacks_t *stacks; /* null until ms_model_name_sites */
    uint64_t damaged_definitions;
    ms_landmarks_t *landmarks;                  /* of the sites; owned */
    uint64_t made_state_bytes[MS_DEVICE_COUNT]; /* ms_kinds_made_state */
    struct ms_model_steps steps;
    struct ms_recurrence recurrence; /* steps found by call sites */
    struct ms_model_tags tags;
    struct ms_buffer ooms;       /* struct ms_model_oom, in order */
    struct ms_buffer thresholds; /* struct ms_model_threshold, in order */
    struct ms_buffer windows;    /* struct ms_model_window, in order */
    struct ms_buffer moves;      /* struct ms_model_move, in order: the first ones, up to a limit */
    struct ms_address_ranges address_ranges;
    struct ms_buffer notes; /* lines, each ended by a zero byte */
    uint64_t note_count;
    uint64_t events;          /* that the program recorded */
    uint64_t read_events;     /* the part of them in records that were read */
    uint64_t lost_events;     /* no room for their records; the sums include them */
    uint64_t recycled_events; /* older than the records that were read; the sums include them */
    uint64_t lost_entries, lost_definitions;
    uint64_t first_detail_ns; /* from this time on every record is there */
    uint64_t digest_events;   /* the first ones, which a digest (digest.h) covers; 0: none */
    struct ms_digest_moments digest_moments; /* holders of memory at moments among these events */
    struct ms_buffer digest_live;            /* struct ms_live: live after these events */
    bool beginning_lost;       /* older events are in no record and in no digest: sums by call site,
                                  kinds and steps cover the rest */
    bool sums_exact;           /* false: a damaged trace; the sums are those that were readable */
    bool one_event_torn;       /* the sums may miss one event, recorded at the moment of the kill */
    struct ms_buffer warnings; /* problems of the file: lines, each ended by a zero byte */
    uint64_t warning_count;
    struct ms_survey *survey;       /* null until ms_model_survey; owned */
    struct ms_recording *recording; /* for the what-if; null: it makes one of its own, or has used
                                       it */
    struct ms_what_if what_if;
};

/* Finds the names of call sites, for the forms that show them; see ms_stacks_new. */
void ms_model_name_sites(struct ms_model *model, enum ms_stacks_effort effort,
                         const char *modules_dir);

/* Of a model from ms_model_new (reading/read_model.h). */
void ms_model_delete(struct ms_model *model);

/* When the process began, for comparing it with others: by the clock of the output folder's file
 * system where the host's own differed. */
static inline uint64_t ms_model_start_unix_ns(const struct ms_model *model)
{
    return model->header.start_unix_ns - (uint64_t)model->header.clock_ahead_ns;
}

/* Whether a framework reported tensors, on any device. */
static inline bool ms_model_has_tensors(const struct ms_model *model)
{
    bool any = false;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        any |= model->devices[i].sums.tensor_allocations > 0;
    }
    return any;
}

/* Whether PyTorch's tensors are hidden (MEMSHIM_TORCH=off): its live blocks are then segments. */
bool ms_model_hides_tensors(const struct ms_model *model);

/* Whether PyTorch ran out of memory, with its tensors hidden. */
bool ms_tensors_unseen(const struct ms_model *model, const struct ms_oom_state *state);

/* Whether the header has the process's exit status. */
static inline bool ms_model_exit_known(const struct ms_model *model)
{
    return (model->end == MS_PROCESS_ENDED || model->end == MS_PROCESS_EXITED) &&
           model->header.exit_known;
}

/* How the process ended, in a word. */
const char *ms_end_name(enum ms_process_end end);

/* Adds a line to `warnings`. */
void ms_model_warn(struct ms_model *model, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline size_t ms_model_oom_count(const struct ms_model *model)
{
    return model->ooms.bytes / sizeof(struct ms_model_oom);
}

static inline struct ms_model_oom *ms_model_oom_at(const struct ms_model *model, size_t index)
{
    return (struct ms_model_oom *)model->ooms.at + index;
}

/* What the run did after it: a clause. One that was not recovered from did not end the run if
 * another request failed later. */
const char *ms_model_oom_outcome(const struct ms_model *model, size_t index);

/* Whether the driver refused this call to PyTorch, and the next entry of the device is the
 * out-of-memory that PyTorch then raised. */
bool ms_model_oom_is_behind(const struct ms_model *model, size_t index);

/* The out-of-memories without those. */
size_t ms_model_ooms_of_program(const struct ms_model *model);

/* The out-of-memory that ended the run: the last one without recovery, PyTorch's own rather than
 * the driver's refusal behind it. Null: there is none. */
const struct ms_model_oom *ms_model_fatal_oom(const struct ms_model *model);

/* The device for one-line answers: that of the out-of-memory which ended the run, else the one that
 * came nearest to its cap; -1: none was used. */
int ms_model_main_device(const struct ms_model *model);

/* The current series of a device. */
const struct ms_series *ms_model_series(const struct ms_model_device *device);

#endif
