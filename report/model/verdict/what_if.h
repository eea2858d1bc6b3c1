/* SPDX-License-Identifier: Apache-2.0 */
/* What-if: the memory that would have been enough. Replays the run's own trace, up to the
 * out-of-memory and its request, through the pool on the dry device (replay.h). */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_WHAT_IF_H
#define MEMSHIM_REPORT_MODEL_VERDICT_WHAT_IF_H

#include <stdint.h>

struct ms_model;

/* The most operations of all replays together: about a second's. */
#define MS_WHAT_IF_OPERATIONS UINT64_C(1000000)

/* To be called before ms_model_survey: makes the survey record what ms_what_if_try will replay, so
 * that the trace is not read once more. Takes the same most_operations. */
void ms_what_if_expect(struct ms_model *model, uint64_t most_operations);

/* Computes model->what_if for the out-of-memory that ended the run; without one, the run's
 * overhead. `why` says why a result is missing. Reads the trace if no survey has made its
 * recording. most_operations: a bound of its time. */
void ms_what_if_try(struct ms_model *model, uint64_t most_operations);

/* The most that PyTorch held reserved, in its segments or pages. If that is unknown: when the
 * device's live bytes peaked, or at the out-of-memory that ended the run. It is an upper bound of
 * PyTorch's need alone, because it includes chunks taken out of holes. 0: unknown. */
uint64_t ms_what_if_torch_bytes(const struct ms_model *model, int device);

/* The same, plus live memory then that is not PyTorch's: the program's own blocks. */
uint64_t ms_what_if_alone_bytes(const struct ms_model *model, int device);

/* A cap as a fraction of the device, in millionths; rounded up to whole thousandths, so that it
 * stands for no smaller cap. */
static inline int64_t ms_what_if_fraction(uint64_t cap_bytes, uint64_t device_bytes)
{
    return (int64_t)((double)cap_bytes / (double)device_bytes * 1000 + 0.999) * 1000;
}

#endif
