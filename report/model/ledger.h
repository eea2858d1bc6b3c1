/* SPDX-License-Identifier: Apache-2.0 */
/* The holders of a device's bytes at one moment, a row each. Every row is measured, or estimated,
 * by itself; none is computed as the rest of the others. The device's total less all rows is a row
 * of its own: unexplained. */
#ifndef MEMSHIM_REPORT_MODEL_LEDGER_H
#define MEMSHIM_REPORT_MODEL_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/model/kinds.h"
#include "report/trace/aggregate.h"
#include "report/trace/verdict.h"

#define MS_LEDGER_ROWS (MS_KIND_COUNT + MS_CHARGE_REASON_COUNT + 8)

struct ms_model;
struct ms_survey_moment;

enum ms_ledger_part {
    MS_LEDGER_LIVE,      /* in the pool */
    MS_LEDGER_ELSEWHERE, /* the part of these outside the pool's device chunks; negative */
    MS_LEDGER_HOLES,     /* reserved by the pool, and not live */
    MS_LEDGER_DRIVER,    /* charged beside the pool */
    MS_LEDGER_OTHERS,
    MS_LEDGER_FREE,
    MS_LEDGER_UNEXPLAINED
};

struct ms_ledger_row {
    const char *name; /* for report.json */
    const char *what; /* for people */
    uint64_t bytes;
    bool estimated; /* measured around the driver's own actions, not at an allocation */
    bool negative;  /* bytes are to be subtracted; unexplained: so many bytes are counted twice */
    uint8_t part;   /* enum ms_ledger_part */
    uint8_t kind;   /* MS_LEDGER_LIVE: enum ms_kind; MS_KIND_COUNT: unknown */
};

/* The rows with bytes, charged ones first. If the device was sampled (MS_EVENT_SAMPLE): also the
 * memory of other processes, the free memory above the cap, and the unexplained part, even if that
 * is 0: then all rows add up to the device's total. Returns their number. */
size_t ms_ledger(const struct ms_counters *counters, struct ms_ledger_row rows[MS_LEDGER_ROWS]);

/* The same at the peak of the device's live bytes, and at an out-of-memory; live bytes by kind if
 * the survey knows it. */
size_t ms_ledger_at_peak(const struct ms_model *model, int device,
                         struct ms_ledger_row rows[MS_LEDGER_ROWS]);
size_t ms_ledger_at_oom(const struct ms_model *model, size_t oom,
                        struct ms_ledger_row rows[MS_LEDGER_ROWS]);

/* Live bytes outside reserved memory: the driver served them, and they are charged separately, or
 * to another process. */
uint64_t ms_ledger_forwarded_live(const struct ms_counters *counters);

/* Live bytes that no device chunk could hold, if there are chunks on the host. */
uint64_t ms_ledger_least_on_host(const struct ms_counters *counters);

/* The survey's moments of these; null: it has none. */
const struct ms_survey_moment *ms_ledger_peak_moment(const struct ms_model *model, int device);
const struct ms_survey_moment *ms_ledger_oom_moment(const struct ms_model *model, size_t oom);

/* The row of bytes charged without chunks for that reason. Without bytes if the pool is off and
 * they are the ground under the tensors, which are counted themselves. */
struct ms_ledger_row ms_ledger_charged(const struct ms_counters *counters,
                                       enum ms_charge_reason reason);

/* Estimated: the least cap with which nothing would have moved to the host: the peak of live
 * memory, the memory that cannot move, and the room that is kept free ahead of need. */
uint64_t ms_cap_without_spill(const struct ms_aggregate *aggregate);

/* That cap as a part of the device, in steps of 1 / steps, rounded up: less would not have been
 * enough. For a device of known size that is large enough. */
int64_t ms_fraction_without_spill(const struct ms_aggregate *aggregate, int64_t steps);

#endif
