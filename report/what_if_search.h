/* The search behind what_if.h, apart from the model: the pool's headers and the model's share
 * names.
 */
#ifndef MEMSHIM_REPORT_WHAT_IF_SEARCH_H
#define MEMSHIM_REPORT_WHAT_IF_SEARCH_H

#include "report/verdict.h"
#include "report/what_if.h"

struct ms_what_if_case {
    const char *path; /* of the trace */
    uint64_t device;  /* of the out-of-memory that ended the run */
    const struct ms_oom_state *state;
};

/* Fills the caps, and counts the replays; the sizes of `found` are told. False where the trace
 * could not be replayed. */
bool ms_what_if_search(const struct ms_what_if_case *is, uint64_t most_operations,
                       struct ms_what_if *found);

/* Fills min_cap_bytes, peak_live_bytes and replays; the device is told. False where the trace could
 * not be replayed, or completes with nothing. */
bool ms_overhead_search(const char *path, struct ms_overhead *found);

#endif
