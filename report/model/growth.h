/* SPDX-License-Identifier: Apache-2.0 */
/* Growth from step to step: a site's live bytes, taken at the same point of every step, keep rising
 * to the end of the run. Bytes that fall again are no growth: of each step only those count that
 * stay for all later ones. If a run ran out of memory too early for that, the memory left from each
 * round (each backward pass, or call of a model) shows the same. Pure. */
#ifndef MEMSHIM_REPORT_MODEL_GROWTH_H
#define MEMSHIM_REPORT_MODEL_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/clock.h"
#include "report/symbols/stacks.h"

#define MS_GROWTH_SAMPLES 512u /* the most steps at which live bytes are taken */
#define MS_GROWTH_FEWEST  8u   /* with fewer samples there is no result */
#define MS_GROWING_SITES  50u
#define MS_LEAKS          3u
#define MS_LEAK_CALLERS   3u
/* The shortest run whose growth is told over time: one that is still starting up grows as well. */
#define MS_GROWTH_TIME_NS (600 * MS_NS_PER_S)

enum ms_growth_degree {
    MS_GROWTH_LIKELY, /* two rounds or more left something, or all of a few samples rise, or a few
                         of all do */
    MS_GROWTH_SEEN    /* over 8 rounds and more */
};

/* The unit of a site's pace. */
enum ms_growth_round {
    MS_ROUND_STEP,
    MS_ROUND_PASS, /* a backward pass: steps are not known */
    MS_ROUND_CALL, /* a call of a model, without a backward pass */
    MS_ROUND_TIME
};

/* The places of the samples; steps are numbered from 1. If no steps are known, the run is cut into
 * parts of equal time, and numbers of steps have no meaning. */
struct ms_growth_clock {
    bool by_time;
    size_t count;                        /* of samples */
    uint64_t step[MS_GROWTH_SAMPLES];    /* that begins there; by time: 0, 1, ... */
    uint64_t time_ns[MS_GROWTH_SAMPLES]; /* when it begins */
    uint64_t event[MS_GROWTH_SAMPLES];   /* the number of the event then; 0: not known */
};

/* A line through samples. */
struct ms_slope {
    double bytes_per_step; /* by time: per part */
    double error;          /* half the width of its 95 % interval */
    size_t first;          /* the line holds from this sample on */
};

/* Bytes that are still live, by the round in which they were allocated. */
struct ms_kept_round {
    uint64_t round, bytes;
};

/* Bytes that rise by about as much each time. */
struct ms_rise {
    uint64_t rises;              /* in a row, up to the last round in which the bytes changed */
    uint64_t first_bytes, bytes; /* before the first of them; now */
    uint64_t round, longest;     /* the last one's round; the most rounds from one to the next */
    uint64_t since;              /* the first one's time, or the place of its sample */
};

struct ms_growing_site {
    uint32_t site;
    uint32_t path_site; /* whose Python frames led to it: for a backward pass another thread's */
    uint8_t kind;       /* enum ms_kind */
    uint8_t degree;     /* enum ms_growth_degree */
    uint8_t round;      /* enum ms_growth_round: the unit */
    uint64_t rounds;    /* that left something, or rose; 0: found as a slope */
    bool before_pass;   /* some of it was made between a model's call and its backward pass */
    double held;        /* as a slope: its last bytes, in allocations of mean size */
    double bytes_per_round, error, bytes_per_hour; /* error: 0 if found by rounds */
    double every;                  /* units from one time that it grew to the next; 0: unknown */
    uint64_t since_step, since_ns; /* it was flat before; step 0: unknown */
    uint64_t grown_bytes;          /* since then */
    uint64_t cap_at_step; /* for it alone, at that rate; 0: unknown, or not within 2^53 steps */
};

/* Whether what grows is kept by an autograd graph. Which tensors have one is never seen: it follows
 * from where in a step they were made, and from how much of a model's call stays. */
enum ms_leak_graph {
    MS_GRAPH_UNKNOWN,
    MS_GRAPH_NONE,   /* not made between a model's call and its backward pass; and nothing grows
                        that a call made */
    MS_GRAPH_UNUSED, /* there was no backward pass, and most of a model's call was freed */
    MS_GRAPH_KEPT    /* most of what a model's call makes stays */
};

/* Sites that grow under one line of the user's code. */
struct ms_leak {
    bool has_culprit;                         /* else only its largest site is known */
    struct ms_frame culprit;                  /* the line at which the growing stacks join */
    struct ms_frame callers[MS_LEAK_CALLERS]; /* the user's frames that led to it */
    size_t caller_count;
    size_t sites;
    struct ms_growing_site all; /* the sum of all of them; site: one of the largest line's */
    uint64_t largest_bytes;     /* of the largest line */
    double largest_bytes_per_round;
    uint64_t bytes_each_time; /* each time that something was left; 0: found as a slope */
    bool negligible;          /* neither much by now nor much soon */
    uint8_t graph;            /* enum ms_leak_graph */
};

struct ms_growth {
    bool known;      /* else `why`: "fewer than 8 steps" */
    const char *why; /* a clause */
    struct ms_growth_clock clock;
    /* The device's live bytes at the beginning of a step, after the first quarter of the run. */
    struct ms_slope whole;
    double whole_bytes_per_hour;
    size_t count;
    struct ms_growing_site sites[MS_GROWING_SITES]; /* the steepest first */
    bool past_cap;        /* more is live than fits the cap: some of it is on the host */
    uint64_t cap_at_step; /* for all of them together; 0: nothing grows, or not within 2^53 steps,
                             or past_cap */
    size_t leak_count;
    struct ms_leak leaks[MS_LEAKS]; /* the same by the line that keeps the memory, the largest
                                       growth first */
};

/* Whether the samples keep rising to their end: fills `slope`. x must increase. */
bool ms_growth_find(const uint64_t *x, const uint64_t *bytes, size_t count, struct ms_slope *slope);

/* The same for fewer samples, four or more: all must rise about equally, as
 * memory does that is made anew, and longer, in each step. first: as below. */
bool ms_growth_of_few(const uint64_t *bytes, size_t count, size_t *first);

/* Whether they rise in a few steps alone, as what is kept of each epoch: four times or more, each
 * by about as much, about as far from each other, four samples and more, through half of the run
 * and up to its end, and never fall. rise: of rounds x; its `since` is the place of the first
 * rise's sample. */
bool ms_growth_of_pauses(const uint64_t *x, const uint64_t *bytes, size_t count,
                         struct ms_rise *rise);

/* Takes the bytes at the beginning of a round. If they fall, or rise by less than half or more than
 * twice the mean, it begins anew. at: kept in `since` if this is the first rise. */
void ms_rise_add(struct ms_rise *rise, uint64_t round, uint64_t bytes, uint64_t at);

/* Whether it still rises at round `now`: the last rise is no longer ago than the longest gap. */
bool ms_rise_goes_on(const struct ms_rise *rise, uint64_t now);

/* Whether the memory left from rounds is growth at round `now`: each left about as much, up to the
 * end. rounds must increase. first: the round at which it begins; not the first one if that set
 * something up. */
bool ms_growth_of_rounds(const struct ms_kept_round *rounds, size_t count, uint64_t now,
                         size_t *first, enum ms_growth_degree *degree);

/* Whether what rose is a queue that got longer: memory is freed in the order in which it was made,
 * as a loop's inputs are while the host runs ahead of the device. kept: for each sample, those
 * bytes of the last sample that were made before it. Of a queue, hardly anything of the first half
 * of the rise is left; and no two samples lie around the making of half of it, as of memory that is
 * made anew, and longer. first: where the rise begins. */
bool ms_growth_is_queue(const uint64_t *bytes, const uint64_t *kept, size_t first, size_t count);

/* What was freed of a site behind the last sample, of that sample's bytes. */
struct ms_drain {
    uint64_t bytes, first_ns, last_ns;
    uint64_t longest_ns; /* from one free to the next */
};

/* Whether that is how a queue drains that only got longer in so short a run: the device gives back
 * most of the rise, piece by piece, and no faster than the host had made it. What a program kept
 * goes at once, or never. made_ns: how long the later half of the rise took; the first steps may
 * have compiled. */
bool ms_growth_drains(const struct ms_drain *drain, uint64_t grown_bytes, uint64_t made_ns);

/* If a step's inputs get longer in each step, the memory that a step makes anew grows as well, and
 * none of it is kept. Removes rows of such memory; returns how many are left. step: the newest. */
size_t ms_growth_drop_longer(struct ms_growing_site *rows, size_t count, uint64_t step);

/* The slope of the samples from `first` on, whatever it is. False: there are fewer than two. */
bool ms_growth_fit(const uint64_t *x, const uint64_t *bytes, size_t first, size_t count,
                   struct ms_slope *slope);

#endif
