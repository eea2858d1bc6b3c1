/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunk to take out of holes: the one that will be needed last.
 *
 * A framework fills its reservations from the low end, so granules near the highest address that it
 * ever used are nearly always needed last. But that address differs between reservations (a side
 * stream's is short, and used once a step), and a granule that was idle for long mostly stays so
 * for a while. The default multiplies both: (time idle + 128) x (place in the part ever used)^2.
 * The sum, since all that was freed within the last hundred calls is equally new: without it the
 * hole of a temporary tensor at the top counts as needed at once, and lower ones go that are needed
 * sooner. Chunk moves a step after the second at a cap of 1.02 x the peak of live bytes (memshim
 * replay --cap --without-charges --policy, traces of tests/traces in native mode):
 *
 *     job               default   highest   oldest    gap    the future known
 *     gpt-checkpoint        5.1       5.1     13.3   52.8     5.1
 *     gpt-explicit         13.6      15.7     19.5   31.8    12.5
 *     gpt-fsdp2-rank0      30.8      32.2     37.8  131.4    30.6
 *     moe                  29.2      33.7     45.7   39.2    25.7
 *     unet                 21.9      24.0     22.9   24.5    19.0
 *     detector             35.0      42.5     44.6   77.5    29.3
 *
 * and none at all in the other five. At caps of 1.01, 1.015 and 1.03 the default also stays within
 * 1.25 x the future known, wherever it moves 5 chunks or more a step. Neither number matters much:
 * 100 to 1,000 and exponents of 2 to 4 differ by 1 % on average. docs/performance.md has these,
 * and what is worse.
 *
 * Blocks are filled in no helpful order: among their chunks the one idle for longest goes. Five of
 * the jobs with PyTorch's own segments (expandable_segments:False), at the same cap:
 *
 *     job               default   highest   oldest    gap    the future known
 *     gpt-variable        275       499      275      289    220
 *     moe                1162      2039     1162     1157   1098
 *     unet                 28        66       28       53     21
 *     detector            187       262      187      239    130
 *     gan                 480       708      480      805    281 */
#ifndef MEMSHIM_ALLOCATOR_BACKING_CHOICE_H
#define MEMSHIM_ALLOCATOR_BACKING_CHOICE_H

#include <stdint.h>

#include "allocator/device/device_ops.h"

/* An idle chunk in a hole of an arena. Times are counts of allocations and frees on this device, so
 * that a replay decides as the run did. */
struct ms_candidate {
    ms_addr_t addr;
    uint64_t bytes;
    ms_addr_t arena;      /* where its arena begins */
    uint64_t arena_bytes; /* and how long it is */
    uint64_t reach_bytes; /* of a reservation, as far as it was ever mapped; 0: it is a block */
    uint64_t free_since;  /* when its last tensor was freed; 0: none ever touched it */
    uint64_t last_gap;    /* how long it lay free before it was last touched again; 0: never yet */
    uint64_t now;
};

/* A choice: the candidate with the highest rank goes first. Called with the pool's state lock held;
 * short, no calls into the pool. */
struct ms_choice {
    uint64_t (*rank)(void *ctx, const struct ms_candidate *candidate);
    void *ctx;
};

/* The default, if the pool's configuration names no other; and the alternatives that it was
 * compared with. */
extern const struct ms_choice ms_choice_default; /* idle for long, and high in the used part */
extern const struct ms_choice ms_choice_oldest;  /* free for the longest */
extern const struct ms_choice ms_choice_highest; /* nearest to its arena's end */
extern const struct ms_choice ms_choice_gap;     /* needed last, if idle as long as before */

#endif
