/* SPDX-License-Identifier: Apache-2.0 */
/* What a larger batch would need: live bytes at every moment are a part that stays the same
 * (parameters, their gradients, optimizer state, what is kept) and a part that follows the batch
 * (activations, inputs, what is needed for a moment), told apart by kinds and lifetimes. Estimates.
 */
#ifndef MEMSHIM_REPORT_MODEL_HEADROOM_H
#define MEMSHIM_REPORT_MODEL_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_HEADROOM_FACTORS 12u

struct ms_headroom {
    bool known;      /* else `why`: "no step was seen" */
    const char *why; /* a clause */
    bool flat;       /* and it is that the peak does not follow the batch */
    uint64_t batch;  /* in samples, as the program told it; 0: it did not */
    uint64_t persistent_bytes, per_step_bytes; /* at the peak of live bytes; together that */
    uint64_t beside_bytes;                     /* charged beside them then: context, forwarded */
    uint64_t cap_bytes;
    uint64_t peak_bytes[MS_HEADROOM_FACTORS];      /* live, estimated, for ms_headroom_factor(i) */
    uint64_t following_bytes[MS_HEADROOM_FACTORS]; /* of this run's batch, at that moment */
    double largest_factor;  /* that fits the cap, with what stands beside; less than 1 where the
                               run had memory on the host; 0 where nothing does */
    bool unbounded;         /* more than the largest that is looked at */
    uint64_t largest_batch; /* in samples; 0: not known */
    /* At the moment that sets the largest factor: of this run's batch. */
    uint64_t binding_persistent_bytes, binding_per_step_bytes;
    /* Of a batch that was too large, the part that would have fitted; 0: not known. Then nothing
     * else is known. */
    double fitting_factor;
    /* Where that is not known: what of the batch would have come past the request that failed. More
     * was still to come, so no more than that fits. 0: not known. */
    double most_factor;
};

/* 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32: millionths. */
uint64_t ms_headroom_factor_ppm(size_t index);

/* The largest batch whose live bytes, as they are estimated, come to no more than that: in parts of
 * this run's. *unbounded: more than the largest that is looked at. */
double ms_headroom_largest(const struct ms_headroom *headroom, uint64_t room_bytes,
                           bool *unbounded);

#endif
