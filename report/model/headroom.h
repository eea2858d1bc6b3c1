/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a larger batch would need. Live bytes at every moment have a constant part
 * (parameters, their gradients, optimizer state, kept memory) and a part that follows the batch
 * (activations, inputs, temporaries); kinds and lifetimes distinguish them. Estimates. */
#ifndef MEMSHIM_REPORT_MODEL_HEADROOM_H
#define MEMSHIM_REPORT_MODEL_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_HEADROOM_FACTORS 12u

struct ms_headroom {
    bool known;      /* else `why`: "no step was seen" */
    const char *why; /* a clause */
    bool flat;       /* the reason is that the peak does not follow the batch */
    uint64_t batch;  /* in samples, from the program; 0: unknown */
    uint64_t persistent_bytes, per_step_bytes; /* at the peak of live bytes; together they are that
                                                  peak */
    uint64_t beside_bytes;                     /* charged beside them then: context, forwarded */
    uint64_t cap_bytes;
    uint64_t peak_bytes[MS_HEADROOM_FACTORS];      /* live bytes, estimated, for
                                                      ms_headroom_factor(i) */
    uint64_t following_bytes[MS_HEADROOM_FACTORS]; /* for this run's batch, at that moment */
    double largest_factor;  /* that fits the cap, beside all else; less than 1 if the run had memory
                               on the host; 0 if none fits */
    bool unbounded;         /* more than the largest evaluated one */
    uint64_t largest_batch; /* in samples; 0: unknown */
    /* This run's values at the moment that limits the factor. */
    uint64_t binding_persistent_bytes, binding_per_step_bytes;
    /* For a batch that was too large: the part of it that would have fitted; 0: unknown. All else
     * is unknown then. */
    double fitting_factor;
    /* If that is unknown: the part of the batch with which the failed request would have succeeded.
     * More was still to come, so no more than that fits. 0: unknown. */
    double most_factor;
    /* If the pass is known, but not yet what stays after it: the part that fits with two values of
     * optimizer state a parameter, and with all that is kept so far. 0: unknown. */
    double least_factor;
};

/* 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32: millionths. */
uint64_t ms_headroom_factor_ppm(size_t index);

/* The largest batch whose estimated live bytes are at most so many, in parts of this run's.
 * *unbounded: more than the largest evaluated one. */
double ms_headroom_largest(const struct ms_headroom *headroom, uint64_t room_bytes,
                           bool *unbounded);

#endif
