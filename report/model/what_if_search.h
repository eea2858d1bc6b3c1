/* SPDX-License-Identifier: Apache-2.0 */
/* The search behind what_if.h: replays the run's trace with different caps. */
#ifndef MEMSHIM_REPORT_MODEL_WHAT_IF_SEARCH_H
#define MEMSHIM_REPORT_MODEL_WHAT_IF_SEARCH_H

#include "report/model/what_if.h"
#include "report/trace/verdict.h"

struct ms_recording;

/* Searches for the caps with which the run would have got past the out-of-memory that ended it.
 * state: of that out-of-memory. recording: of its device; what came after it is cut off. Fills the
 * caps of `found`, and counts the replays; the caller sets the sizes. False: the recording could
 * not be replayed. */
bool ms_what_if_search(struct ms_recording *recording, const struct ms_oom_state *state,
                       uint64_t most_operations, struct ms_what_if *found);

/* Fills min_cap_bytes, peak_live_bytes and replays. False: the recording could not be replayed, or
 * completes with nothing. */
bool ms_overhead_search(const struct ms_recording *recording, struct ms_overhead *found);

#endif
