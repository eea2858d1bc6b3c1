/* SPDX-License-Identifier: Apache-2.0 */
/* What grows from step to step: a site whose live bytes, taken at the same point of every step,
 * keep rising to the end of the run. What falls again is not growth: of each step only what stays
 * for all later ones counts. Pure. */
#ifndef MEMSHIM_REPORT_MODEL_GROWTH_H
#define MEMSHIM_REPORT_MODEL_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_GROWTH_SAMPLES 512u /* steps at which live bytes are taken, at most */
#define MS_GROWTH_FEWEST  8u   /* with fewer samples nothing is said */
#define MS_GROWING_SITES  50u

/* Where the samples lie: steps are numbered from 1. Where no steps are known the run is cut into
 * parts of equal time, and numbers of steps mean nothing. */
struct ms_growth_clock {
    bool by_time;
    size_t count;                        /* of samples */
    uint64_t step[MS_GROWTH_SAMPLES];    /* that begins there; by time: 0, 1, ... */
    uint64_t time_ns[MS_GROWTH_SAMPLES]; /* when */
};

/* A line through samples. */
struct ms_slope {
    double bytes_per_step; /* by time: of one part */
    double error;          /* half the width of its 95 % interval */
    size_t first;          /* the sample from which on it holds */
};

struct ms_growing_site {
    uint32_t site;
    uint8_t kind; /* enum ms_kind */
    double bytes_per_step, error, bytes_per_hour;
    uint64_t since_step, since_ns; /* it was flat before */
    uint64_t grown_bytes;          /* since then */
    uint64_t cap_at_step;          /* by it alone, at that rate; 0: not in 2^53 steps */
};

struct ms_growth {
    bool known;      /* else `why`: "fewer than 8 steps" */
    const char *why; /* a clause */
    struct ms_growth_clock clock;
    /* Of the device's live bytes at the beginning of a step, after the first quarter of the run. */
    struct ms_slope whole;
    double whole_bytes_per_hour;
    size_t count;
    struct ms_growing_site sites[MS_GROWING_SITES]; /* the steepest first */
    uint64_t cap_at_step; /* with all of them together; 0: nothing grows, or not in 2^53 steps */
};

/* Whether the samples keep rising to their end: fills `slope`. x: increasing. */
bool ms_growth_find(const uint64_t *x, const uint64_t *bytes, size_t count, struct ms_slope *slope);

/* The slope of the samples from `first` on, whatever it is. False with fewer than two. */
bool ms_growth_fit(const uint64_t *x, const uint64_t *bytes, size_t first, size_t count,
                   struct ms_slope *slope);

#endif
