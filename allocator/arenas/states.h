/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer state: memory that an optimizer's step allocated and that outlived the step. Its uses
 * need no reports: they come once a step, at the step's end, in the order of allocation, which is
 * that of the parameters.
 *
 * An optimizer's step is over once another call site allocates. The pool's configuration says which
 * call sites are an optimizer's (struct ms_pool_config). Allocations keep nothing for this but
 * their site. The search for optimizer state runs when something has to go to the host or may come
 * back, and sees only what is live at that moment. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_STATES_H
#define MEMSHIM_ALLOCATOR_ARENAS_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/range.h"

/* See above. State lock. The largest ids of allocations seen that are not an optimizer's; blocks
 * and tensors take their ids from different ranges. */
struct ms_states {
    uint64_t other_block, other_tensor;
};

/* Finds all optimizer state. Notes it in struct ms_granule for granules; the function below answers
 * for blocks. Takes time linear in live memory. State lock, for both. */
void ms_states_find(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* Whether the block, which must not be an arena, is optimizer state. */
bool ms_states_has_block(const struct ms_pool *pool, const struct ms_range *block)
    MS_REQUIRES(ms_state_role);

#endif
