/* SPDX-License-Identifier: Apache-2.0 */
/* Which live memory to move to the host when nothing else is left: what will be used last.
 *
 * All times are places in the run so far, in parts of 2^32: 0 its beginning, `now` this moment.
 * They are counted in allocations, not in seconds, so that a replay decides as the run did. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_CHOICE_H
#define MEMSHIM_ALLOCATOR_SPILL_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"

/* What is known of a chunk behind live memory. */
struct ms_spill_candidate {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t now;      /* 2^32 */
    uint64_t last_use; /* allocation or recorded use, the latest of all that touches the chunk */
    uint64_t next_use; /* predicted, later than now; UINT64_MAX: nobody did */
    bool state;        /* nothing but optimizer state lives there: see states.h */
    uint8_t returns;   /* how often it came back from the host and soon had to go again */
};

/* A choice: the candidate with the highest rank is spilled first, and promoted last. Called with
 * the pool's state lock held; short, no calls into the pool. */
struct ms_spill_choice {
    uint64_t (*rank)(void *ctx, const struct ms_spill_candidate *candidate);
    void *ctx;
    bool foretells; /* next_use is wanted; contents also move ahead of need and of use */
};

/* The one in use where the pool's configuration names none: what was used least recently. */
extern const struct ms_spill_choice ms_spill_choice_lru;

/* What is used last, as the last step of the training foretells it. Where that is not known: first
 * optimizer state, which is used at a step's end, what was used last before the others, for it is
 * used again in the same order; then what was used least recently. */
extern const struct ms_spill_choice ms_spill_choice_predict;

#endif
