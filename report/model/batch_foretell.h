/* SPDX-License-Identifier: Apache-2.0 */
/* The largest batch with which PyTorch alone completes, foretold from runs with other batches: what
 * a run with it would ask for is drawn as a line through what two of them asked for, one request
 * after the other, and replayed through the model of PyTorch's allocator. So the sizes to which
 * PyTorch rounds segments, and what it gives back in need, are in the answer. */
#ifndef MEMSHIM_REPORT_MODEL_BATCH_FORETELL_H
#define MEMSHIM_REPORT_MODEL_BATCH_FORETELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/model/batch_search.h"
#include "report/replay/recording.h"

/* What one process asked for: those of two runs belong together where their ranks are the same. */
struct ms_batch_course {
    int32_t rank; /* -1: it has none; of several without one, the first goes with the first */
    struct ms_recording *course; /* course.h */
};

struct ms_batch_run {
    uint64_t batch;           /* 1 or more; no two alike */
    bool fits;                /* the memory that there is */
    struct ms_buffer courses; /* struct ms_batch_course, added by ms_batch_run_add */
};

/* Takes the course over. False: no host memory, and the course stays the caller's. */
bool ms_batch_run_add(struct ms_batch_run *run, int32_t rank, struct ms_recording *course);
void ms_batch_run_free(struct ms_batch_run *run);

struct ms_batch_bounds ms_batch_runs_bounds(const struct ms_batch_run *runs, size_t count);

/* The next to try, of at least two runs: the largest that is foretold to fit, or else one more than
 * the largest that is known to; always between what is known to fit and what is not. Where the runs
 * do not ask for the same in the same order, a line through the least memory that each needs
 * (batch_search.h). 0: it is settled, there are too few, or there is no host memory. */
uint64_t ms_batch_foretell(const struct ms_batch_run *runs, size_t count, uint64_t cap_bytes);

#endif
