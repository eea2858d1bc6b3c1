/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a recorded run: what PyTorch's allocator was asked for, in order, and nothing of
 * what it made of it. Two courses that differ by their sizes alone, of runs with different batches,
 * foretell that of a third batch: each size lies on a line through the two. */
#ifndef MEMSHIM_REPORT_REPLAY_COURSE_H
#define MEMSHIM_REPORT_REPLAY_COURSE_H

#include <stdint.h>

#include "report/replay/recording.h"

/* A recording of those operations only, its objects numbered by birth: for ms_torch_alone_run. Free
 * it with ms_recording_delete. Null: no host memory. */
struct ms_recording *ms_course_of(const struct ms_recording *recording);

/* The course of `batch`, of the courses of two others; where one is longer, of what both have.
 * near: the one whose batch is nearer. What it asked for and the other did not is in the answer in
 * proportion to the batch; what only the other asked for is not. Null: they part, and do not soon
 * meet again, or there is no host memory. */
struct ms_recording *ms_course_foretell(const struct ms_recording *near, uint64_t near_batch,
                                        const struct ms_recording *other, uint64_t other_batch,
                                        uint64_t batch);

#endif
