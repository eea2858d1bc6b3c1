/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the out-of-memories of a trace from the log into the model: finds those that the run
 * recovered from, and those that repeat one request. */
#ifndef MEMSHIM_REPORT_MODEL_READING_REFUSALS_H
#define MEMSHIM_REPORT_MODEL_READING_REFUSALS_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/model.h"
#include "report/trace/format.h"

struct ms_refusals {
    struct ms_buffer pending; /* struct ms_model_oom, by event */
    size_t next;              /* out-of-memories before this one came before the current event */
    /* By device: the smallest failed request that the run has not recovered from. */
    uint64_t smallest_open[MS_DEVICE_COUNT];
};

void ms_refusals_init(struct ms_refusals *refusals);
void ms_refusals_free(struct ms_refusals *refusals);

/* entry: of kind MS_LOG_OOM. Dropped without memory. */
void ms_refusals_add(struct ms_refusals *refusals, const struct ms_log_entry *entry,
                     const char *payload);

/* Warns if the log is out of order, which only a damaged one is. */
void ms_refusals_check(const struct ms_refusals *refusals, struct ms_model *model);

/* Adds out-of-memories that came before the event of this number to their devices' sums. */
void ms_refusals_start(struct ms_refusals *refusals, struct ms_model *model, uint64_t event);

/* An allocation of so many bytes succeeded, at least smallest_open: so the run recovered from
 * failed requests of at most that size. */
void ms_refusals_meet(struct ms_refusals *refusals, uint64_t device, uint64_t bytes);

/* Adds all of them to the model, once its sums and its end are known. */
void ms_refusals_finish(const struct ms_refusals *refusals, struct ms_model *model);

#endif
