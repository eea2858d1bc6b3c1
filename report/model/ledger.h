/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of a device were at one moment, a row for each holder. Every row is measured, or
 * estimated, by itself; none is what the others leave. What is left when all are taken from the
 * device's total is a row of its own: unexplained. */
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
    MS_LEDGER_ELSEWHERE, /* of them: not in device chunks of the pool; negative */
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
    bool estimated; /* measured around the driver's own doing, not at an allocation */
    bool negative;  /* bytes are to be taken off; unexplained: so much is counted twice */
    uint8_t part;   /* enum ms_ledger_part */
    uint8_t kind;   /* MS_LEDGER_LIVE: enum ms_kind, MS_KIND_COUNT where kinds are not known */
};

/* The rows that hold something, charged ones first. Where the device was looked at
 * (MS_EVENT_SAMPLE): also what other processes hold, what is free above the cap, and, even where it
 * is 0, what is unexplained: then all of them are the device's total. Returns their number. */
size_t ms_ledger(const struct ms_counters *counters, struct ms_ledger_row rows[MS_LEDGER_ROWS]);

/* The same when live bytes of the device peaked, and at an out-of-memory; live bytes by kind where
 * the survey knows it. */
size_t ms_ledger_at_peak(const struct ms_model *model, int device,
                         struct ms_ledger_row rows[MS_LEDGER_ROWS]);
size_t ms_ledger_at_oom(const struct ms_model *model, size_t oom,
                        struct ms_ledger_row rows[MS_LEDGER_ROWS]);

/* Of live bytes, those that lie in nothing reserved: the driver served them, and they are charged
 * beside, or another process is charged for them. */
uint64_t ms_ledger_forwarded_live(const struct ms_counters *counters);

/* Live bytes that no chunk on the device could hold, where there are chunks on the host. */
uint64_t ms_ledger_least_on_host(const struct ms_counters *counters);

/* The survey's moments of these; null where it has none. */
const struct ms_survey_moment *ms_ledger_peak_moment(const struct ms_model *model, int device);
const struct ms_survey_moment *ms_ledger_oom_moment(const struct ms_model *model, size_t oom);

/* The row of what was charged without chunks for that reason. No bytes where the pool is off and it
 * is the ground under the tensors, which are counted themselves. */
struct ms_ledger_row ms_ledger_charged(const struct ms_counters *counters,
                                       enum ms_charge_reason reason);

/* Estimated: the least cap with which nothing would have had to move to the host: what was live at
 * its peak, what cannot move beside it, and the room that is kept free ahead of need. */
uint64_t ms_cap_without_spill(const struct ms_aggregate *aggregate);

/* That cap as a part of the device, in steps of 1 / steps; not rounded down: with that it would not
 * have been enough. Of a device that is known, and has as much. */
int64_t ms_fraction_without_spill(const struct ms_aggregate *aggregate, int64_t steps);

#endif
