/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells the largest batch with which PyTorch alone completes, from runs with other batches. It
 * draws a line through the requests of two runs, one request after the other, and replays the
 * result through the model of PyTorch's allocator. So the answer includes how PyTorch rounds
 * segments, and what it gives back when memory is short. */
#ifndef MEMSHIM_REPORT_FIT_BATCH_FORETELL_H
#define MEMSHIM_REPORT_FIT_BATCH_FORETELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/fit/batch_search.h"
#include "report/replay/recording.h"

/* The requests of one process. Those of two runs belong together if their ranks are equal. */
struct ms_batch_course {
    int32_t rank; /* -1: none; the first process without one goes with the first of the other run */
    struct ms_recording *course; /* course.h */
};

struct ms_batch_run {
    uint64_t batch;           /* 1 or more; all different */
    bool fits;                /* in the available memory */
    uint64_t live_bytes;      /* at the peak, with enough memory */
    uint64_t largest_bytes;   /* its largest tensor of those that may follow the data; 0: unknown */
    struct ms_buffer courses; /* struct ms_batch_course, added by ms_batch_run_add */
};

/* Takes ownership of the course. False: no host memory, and the caller keeps the course. */
bool ms_batch_run_add(struct ms_batch_run *run, int32_t rank, struct ms_recording *course);
void ms_batch_run_free(struct ms_batch_run *run);

struct ms_batch_bounds ms_batch_runs_bounds(const struct ms_batch_run *runs, size_t count);

/* Two batches, and what was live at the peak of each. */
struct ms_batch_contrast {
    uint64_t smaller, smaller_live_bytes;
    uint64_t larger, larger_live_bytes;
};

/* The two that differ most, if one shows that what the job needs does not follow its batch: the job
 * draws its sizes anew. Its largest tensor then was smaller, too; where only one of the two is,
 * libraries may take less for a larger batch, or a loop may cut it into more parts. False: none
 * does. */
bool ms_batch_runs_contrast(const struct ms_batch_run *runs, size_t count,
                            struct ms_batch_contrast *contrast);

/* The two largest batches, if they had the same live, and largest tensors of the same size: the job
 * makes no more of its batch, because its data are fewer, or it does not heed the batch. False:
 * they had not. */
bool ms_batch_runs_level(const struct ms_batch_run *runs, size_t count,
                         struct ms_batch_contrast *level);

/* Of a search. */
struct ms_batch_limits {
    uint64_t cap_bytes;
    size_t given; /* the first runs, whose batches the search did not choose */
    size_t most;  /* runs in all: more than there are so far */
};

/* The next batch to try, from at least two runs: the largest that is foretold to fit, or one more
 * than the largest known to fit. It always lies between those known to fit and those known not to.
 * If the runs' requests differ, it uses a line through the least memory that each needs
 * (batch_search.h). Lengths that differ foretell little: where a run has shown that, and also where
 * the answer is near, the next one is chosen so that the runs that are left can settle it. 0: the
 * answer is settled, there is none because the need does not follow the batch
 * (ms_batch_runs_contrast) or does not grow where this grows by half (ms_batch_runs_level), there
 * are too few runs, or there is no host memory. */
uint64_t ms_batch_foretell(const struct ms_batch_run *runs, size_t count,
                           const struct ms_batch_limits *limits);

#endif
