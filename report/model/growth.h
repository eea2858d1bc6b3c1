/* SPDX-License-Identifier: Apache-2.0 */
/* What grows from step to step: a site whose live bytes, taken at the same point of every step,
 * keep rising to the end of the run. What falls again is not growth: of each step only what stays
 * for all later ones counts. Of a run that ran out of memory before that could be seen, what is
 * left of each round (of each backward pass, or call of a model) tells the same. Pure. */
#ifndef MEMSHIM_REPORT_MODEL_GROWTH_H
#define MEMSHIM_REPORT_MODEL_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/symbols/stacks.h"

#define MS_GROWTH_SAMPLES 512u /* steps at which live bytes are taken, at most */
#define MS_GROWTH_FEWEST  8u   /* with fewer samples nothing is said */
#define MS_GROWING_SITES  50u
#define MS_LEAKS          3u
#define MS_LEAK_CALLERS   3u

enum ms_growth_degree {
    MS_GROWTH_LIKELY, /* something is left of two rounds or more, or all of few samples rise */
    MS_GROWTH_SEEN    /* over 8 rounds and more */
};

/* What a site's pace is told by. */
enum ms_growth_round {
    MS_ROUND_STEP,
    MS_ROUND_PASS, /* a backward pass: steps are not known */
    MS_ROUND_CALL, /* of a model, without a backward pass */
    MS_ROUND_TIME
};

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

/* Bytes that are still there, by the round in which they were born. */
struct ms_kept_round {
    uint64_t round, bytes;
};

struct ms_growing_site {
    uint32_t site;
    uint32_t path_site; /* whose Python frames led to it: a backward pass has another thread's */
    uint8_t kind;       /* enum ms_kind */
    uint8_t degree;     /* enum ms_growth_degree */
    uint8_t round;      /* enum ms_growth_round: per which */
    uint64_t rounds;    /* that left something; 0: found as a slope */
    double bytes_per_round, error, bytes_per_hour; /* error: 0 where it was found by rounds */
    uint64_t since_step, since_ns;                 /* it was flat before; step 0: not known */
    uint64_t grown_bytes;                          /* since then */
    uint64_t cap_at_step; /* by it alone, at that rate; 0: not known, or not in 2^53 steps */
};

/* Sites that grow under one line of the user's code. */
struct ms_leak {
    bool has_culprit;                         /* else nothing is known of it but its largest site */
    struct ms_frame culprit;                  /* the line at which the growing stacks join */
    struct ms_frame callers[MS_LEAK_CALLERS]; /* by way of whom it was reached: the user's frames */
    size_t caller_count;
    size_t sites;
    struct ms_growing_site all; /* of all of them together; site: one of the largest line's */
    uint64_t largest_bytes;     /* of that line */
    double largest_bytes_per_round;
    uint64_t bytes_each_time; /* that something was left; 0: found as a slope */
    bool negligible;          /* neither much by now nor soon */
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
    bool past_cap;        /* more is live than the cap has room for: some of it on the host */
    uint64_t cap_at_step; /* with all of them together; 0: nothing grows, not in 2^53 steps, or it
                             is past */
    size_t leak_count;
    struct ms_leak leaks[MS_LEAKS]; /* the same by the line that keeps, what grew most first */
};

/* Whether the samples keep rising to their end: fills `slope`. x: increasing. */
bool ms_growth_find(const uint64_t *x, const uint64_t *bytes, size_t count, struct ms_slope *slope);

/* Whether each of fewer samples than that, four or more, is as much above the last as the others
 * are, or nearly: as of what is made anew and longer in each step. first: as below. */
bool ms_growth_of_few(const uint64_t *bytes, size_t count, size_t *first);

/* Whether what is left of the rounds is growth at round `now`: of each about as much, up to the
 * end. rounds: increasing. first: the round that it begins with, which is not the first one where
 * that set something up. */
bool ms_growth_of_rounds(const struct ms_kept_round *rounds, size_t count, uint64_t now,
                         size_t *first, enum ms_growth_degree *degree);

/* The slope of the samples from `first` on, whatever it is. False with fewer than two. */
bool ms_growth_fit(const uint64_t *x, const uint64_t *bytes, size_t first, size_t count,
                   struct ms_slope *slope);

#endif
