/* SPDX-License-Identifier: Apache-2.0 */
/* The search behind what_if.h: replays of the run's trace under caps of different sizes. */
#ifndef MEMSHIM_REPORT_MODEL_WHAT_IF_SEARCH_H
#define MEMSHIM_REPORT_MODEL_WHAT_IF_SEARCH_H

#include "report/model/what_if.h"
#include "report/trace/verdict.h"

struct ms_recording;

/* recording: of the device of the out-of-memory that ended the run, with this state; what came
 * after it is cut off. Fills the caps, and counts the replays; the sizes of `found` are set by the
 * caller. False where it could not be replayed. */
bool ms_what_if_search(struct ms_recording *recording, const struct ms_oom_state *state,
                       uint64_t most_operations, struct ms_what_if *found);

/* Fills min_cap_bytes, peak_live_bytes and replays. False where the recording could not be
 * replayed, or completes with nothing. */
bool ms_overhead_search(const struct ms_recording *recording, struct ms_overhead *found);

#endif
