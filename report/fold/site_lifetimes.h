/* SPDX-License-Identifier: Apache-2.0 */
/* How a site's allocations ended, counted in backward passes. Distinguishes activations from
 * gradients, and both from short-lived memory. Phases are those of steps.h: even between two
 * passes, odd in one. Pure. */
#ifndef MEMSHIM_REPORT_FOLD_SITE_LIFETIMES_H
#define MEMSHIM_REPORT_FOLD_SITE_LIFETIMES_H

#include <stdbool.h>
#include <stdint.h>

/* The most backward passes to follow one by one. A run of weeks has more. */
#define MS_MOST_PASSES (1u << 20)

enum ms_lifetime {
    MS_LIFETIME_MOMENT,   /* allocated between two passes, freed before the second */
    MS_LIFETIME_BACKWARD, /* allocated before a pass, freed in it */
    MS_LIFETIME_CROSSED,  /* allocated before a pass, outlived it, and at most a few more */
    MS_LIFETIME_KEPT,     /* allocated before a pass, outlived many, or never freed */
    MS_LIFETIME_SPENT,    /* allocated in a pass, freed in it */
    MS_LIFETIME_OUTLIVED, /* allocated in a pass, freed between two later ones, or never */
    MS_LIFETIME_REUSED,   /* allocated in a pass, freed in a later one: a gradient of a gradient */
    MS_LIFETIME_OPEN, /* allocated since the last whole pass, or before any, and the run ended: no
                         pass decides */
    MS_LIFETIME_CAPTURED, /* allocated in an arena that the capture of a CUDA graph froze, whatever
                             its end */
    MS_LIFETIME_COUNT
};

struct ms_lifetimes {
    uint64_t bytes[MS_LIFETIME_COUNT];
    struct {
        uint64_t epoch; /* of the peak; 0: none yet */
        uint64_t bytes[MS_LIFETIME_COUNT];
    } at_peak[2];                     /* by the epoch's lowest bit, as in site_sums.c */
    uint32_t first_phase, last_phase; /* of the first and last allocation */
};

/* A block or tensor that is no longer live. */
struct ms_past {
    struct ms_lifetimes *lifetimes; /* its site's */
    uint64_t bytes, died_ns;
    uint32_t born_phase, born_epoch;
    uint32_t allocation; /* its number */
    uint32_t site;
    uint32_t device;
    bool captured; /* its lifetime is MS_LIFETIME_CAPTURED */
};

/* phase: in which it was freed. in_pass: within an odd phase, before the end of the pass. */
enum ms_lifetime ms_lifetime_of(uint32_t born_phase, uint32_t phase, bool in_pass);

/* The same after the last allocation, when the process ends and drops its memory. ended_in_pass: it
 * ended within a backward pass. */
enum ms_lifetime ms_lifetime_at_end(uint32_t born_phase, uint32_t phase, bool in_pass,
                                    bool ended_in_pass);

/* The second one: also live at the peak of that epoch, if it was allocated before; epoch 0: none.
 */
void ms_lifetimes_add(struct ms_lifetimes *lifetimes, enum ms_lifetime lifetime, uint64_t bytes);
void ms_lifetimes_add_at_peak(struct ms_lifetimes *lifetimes, enum ms_lifetime lifetime,
                              const struct ms_past *past, uint64_t epoch);

#endif
