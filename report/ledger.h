/* Where the bytes of a device were at one moment, a row for each holder. */
#ifndef MEMSHIM_REPORT_LEDGER_H
#define MEMSHIM_REPORT_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/aggregate.h"

#define MS_LEDGER_ROWS 24

struct ms_ledger_row {
    const char *name; /* one word, for report.json */
    const char *what; /* for people */
    uint64_t bytes;
    bool estimated; /* measured around the driver's own doing, not at an allocation */
};

/* The rows that hold something, charged ones first, then what is free below the cap. Returns their
 * number. */
size_t ms_ledger(const struct ms_counters *counters, struct ms_ledger_row rows[MS_LEDGER_ROWS]);

/* The row of what was charged without chunks for that reason. No bytes where the pool is off and it
 * is the ground under the tensors, which are counted themselves. */
struct ms_ledger_row ms_ledger_charged(const struct ms_counters *counters,
                                       enum ms_charge_reason reason);

/* Estimated: the least cap with which nothing would have had to move to the host: what was live at
 * its peak, what cannot move beside it, and the room that is kept free ahead of need. */
uint64_t ms_cap_without_spill(const struct ms_aggregate *aggregate);

#endif
