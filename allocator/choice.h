/* Which chunk to take out of holes: the one that will be needed last. */
#ifndef MEMSHIM_ALLOCATOR_CHOICE_H
#define MEMSHIM_ALLOCATOR_CHOICE_H

#include <stdint.h>

#include "allocator/device_ops.h"

/* What is known of an idle chunk in a hole of an arena. Times are counts of births and deaths on
 * this device, so that a replay decides as the run did. */
struct ms_candidate {
    ms_addr_t addr;
    uint64_t bytes;
    ms_addr_t arena;      /* where its arena begins */
    uint64_t arena_bytes; /* and how long it is */
    uint64_t free_since;  /* when its last tensor died; 0: none ever touched it */
    uint64_t last_gap;    /* how long it lay free the last time before it was touched again; 0:
                             never yet */
    uint64_t now;
};

/* A choice: the candidate with the highest rank is taken first. Called with the pool's state lock
 * held; short, no calls into the pool. */
struct ms_choice {
    uint64_t (*rank)(void *ctx, const struct ms_candidate *candidate);
    void *ctx;
};

/* The one in use where the pool's configuration names none, and those it was chosen from. */
extern const struct ms_choice ms_choice_default;
extern const struct ms_choice ms_choice_oldest;  /* free for the longest */
extern const struct ms_choice ms_choice_highest; /* nearest to its arena's end */
extern const struct ms_choice ms_choice_gap; /* needed last, if it lies free as long as it did */

#endif
