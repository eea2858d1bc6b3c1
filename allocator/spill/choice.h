/* SPDX-License-Identifier: Apache-2.0 */
/* Which live memory to move to the host when nothing else is left: the memory that will be used
 * last.
 *
 * All times are points of the run so far, in parts of 2^32: 0 its beginning, `now` this moment.
 * They count allocations, not seconds, so that a replay decides as the run did. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_CHOICE_H
#define MEMSHIM_ALLOCATOR_SPILL_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"

/* A chunk behind live memory, as a choice sees it. */
struct ms_spill_candidate {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t now;      /* 2^32 */
    uint64_t last_use; /* the latest allocation or recorded use of anything that touches the
                          chunk */
    uint64_t next_use; /* predicted, later than now; UINT64_MAX: unknown */
    bool state;        /* only optimizer state lives there: see states.h */
    uint8_t returns;   /* how often it came back from the host and soon had to go again */
};

/* A choice: the candidate with the highest rank goes to the host first, and comes back last. Called
 * with the pool's state lock held; short, no calls into the pool. */
struct ms_spill_choice {
    uint64_t (*rank)(void *ctx, const struct ms_spill_candidate *candidate);
    void *ctx;
    bool foretells; /* it needs next_use; contents also move ahead of need and of use */
};

/* The default, if the pool's configuration names no other: least recently used first. */
extern const struct ms_spill_choice ms_spill_choice_lru;

/* First optimizer state, which is used at a step's end. Of it the most recently used goes first,
 * because it is used again in the same order. Then all other memory, the latest next use first, as
 * the last training step foretells it. Without a forecast, memory counts as unused for as long
 * again as it has been. */
extern const struct ms_spill_choice ms_spill_choice_predict;

#endif
