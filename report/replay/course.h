/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a recorded run: the requests to PyTorch's allocator, in order, without its
 * decisions. Two courses of runs with different batches, which differ only in sizes, foretell that
 * of a third batch: each size lies on a line through the two. */
#ifndef MEMSHIM_REPORT_REPLAY_COURSE_H
#define MEMSHIM_REPORT_REPLAY_COURSE_H

#include <stdint.h>

#include "report/replay/recording.h"

/* A recording of those operations only, its objects numbered in the order of allocation: for
 * ms_torch_alone_run. Free it with ms_recording_delete. Null: no host memory. */
struct ms_recording *ms_course_of(const struct ms_recording *recording);

/* The course of `batch`, from the courses of two others; as long as the shorter. near: the one
 * whose batch is nearer. Requests that only it has are in the answer, in proportion to the batch;
 * those that only the other has are not. Null: they diverge, and do not match again soon, or there
 * is no host memory. */
struct ms_recording *ms_course_foretell(const struct ms_recording *near, uint64_t near_batch,
                                        const struct ms_recording *other, uint64_t other_batch,
                                        uint64_t batch);

#endif
