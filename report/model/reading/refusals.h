/* SPDX-License-Identifier: Apache-2.0 */
/* The out-of-memories of a trace on their way from the log into the model: which of them the run
 * recovered from, and which are one request that was asked again. */
#ifndef MEMSHIM_REPORT_MODEL_READING_REFUSALS_H
#define MEMSHIM_REPORT_MODEL_READING_REFUSALS_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/model.h"
#include "report/trace/format.h"

struct ms_refusals {
    struct ms_buffer pending; /* struct ms_model_oom, by event */
    size_t next;              /* those before it came before the event that is read */
    /* By device: the smallest request that has failed and not been met since. */
    uint64_t smallest_open[MS_DEVICE_COUNT];
};

void ms_refusals_init(struct ms_refusals *refusals);
void ms_refusals_free(struct ms_refusals *refusals);

/* entry: of kind MS_LOG_OOM. Left out where there is no memory. */
void ms_refusals_add(struct ms_refusals *refusals, const struct ms_log_entry *entry,
                     const char *payload);

/* Warns where the log is out of order: it is in order but for what a damaged one claims. */
void ms_refusals_check(const struct ms_refusals *refusals, struct ms_model *model);

/* Those that came before the event of this ordinal count in their devices' sums from here on. */
void ms_refusals_start(struct ms_refusals *refusals, struct ms_model *model, uint64_t event);

/* An allocation of so many bytes succeeded, no less than smallest_open: the requests that failed
 * with no more than that have been got over. */
void ms_refusals_meet(struct ms_refusals *refusals, uint64_t device, uint64_t bytes);

/* All of them into the model, once its sums and its end are known. */
void ms_refusals_finish(const struct ms_refusals *refusals, struct ms_model *model);

#endif
