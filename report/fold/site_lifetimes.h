/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a site's memory, in terms of backward passes: what tells an activation from a
 * gradient, and both from what a moment needed. Phases are those of steps.h: even between two
 * passes, odd in one. Pure. */
#ifndef MEMSHIM_REPORT_FOLD_SITE_LIFETIMES_H
#define MEMSHIM_REPORT_FOLD_SITE_LIFETIMES_H

#include <stdbool.h>
#include <stdint.h>

/* The most backward passes that are followed one by one. A run of weeks has more. */
#define MS_MOST_PASSES (1u << 20)

enum ms_lifetime {
    MS_LIFETIME_MOMENT,   /* born between two passes, died before the second */
    MS_LIFETIME_BACKWARD, /* born before a pass, died in it */
    MS_LIFETIME_CROSSED,  /* born before a pass, outlived it, and a few more at most */
    MS_LIFETIME_KEPT,     /* born before a pass, outlived many, or everything */
    MS_LIFETIME_SPENT,    /* born in a pass, died in it */
    MS_LIFETIME_OUTLIVED, /* born in a pass, died between two later ones, or never */
    MS_LIFETIME_REUSED,   /* born in a pass, died in a later one: a gradient of a gradient */
    MS_LIFETIME_OPEN, /* born since the last whole pass, or before any, and the run ended: no pass
                         has told */
    MS_LIFETIME_CAPTURED, /* born in an arena that the capture of a CUDA graph froze, whatever then
                           */
    MS_LIFETIME_COUNT
};

struct ms_lifetimes {
    uint64_t bytes[MS_LIFETIME_COUNT];
    struct {
        uint64_t epoch; /* of the peak; 0: none yet */
        uint64_t bytes[MS_LIFETIME_COUNT];
    } at_peak[2];                     /* by the epoch's lowest bit, as site_sums.c has it */
    uint32_t first_phase, last_phase; /* of allocations */
};

/* A block or tensor that is not live any more. */
struct ms_past {
    struct ms_lifetimes *lifetimes; /* its site's */
    uint64_t bytes, died_ns;
    uint32_t born_phase, born_epoch;
    uint32_t allocation; /* its number */
    uint32_t site;
    uint32_t device;
    bool captured; /* its lifetime is decided */
};

/* phase: in which it died. in_pass: of an odd phase, before the end of the pass. */
enum ms_lifetime ms_lifetime_of(uint32_t born_phase, uint32_t phase, bool in_pass);

/* Nothing was asked for any more: what dies then, a process that ends has dropped. ended_in_pass:
 * it did so within a backward pass. */
enum ms_lifetime ms_lifetime_at_end(uint32_t born_phase, uint32_t phase, bool in_pass,
                                    bool ended_in_pass);

/* It was live at the peak of that epoch, too, if it was born before; epoch 0: none. */
void ms_lifetimes_add(struct ms_lifetimes *lifetimes, enum ms_lifetime lifetime, uint64_t bytes);
void ms_lifetimes_add_at_peak(struct ms_lifetimes *lifetimes, enum ms_lifetime lifetime,
                              const struct ms_past *past, uint64_t epoch);

#endif
