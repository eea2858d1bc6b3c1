/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer state: memory that an optimizer's step allocated and that outlived the step. Its uses
 * need no report: they come once a step, at its end, in the order of the parameters, which is the
 * order of its allocation.
 *
 * A step is over once something was allocated that is not an optimizer's. The pool's configuration
 * says which call sites are an optimizer's (struct ms_pool_config). An allocation keeps nothing for
 * this but its site. Optimizer state is found when something has to go to the host or may come
 * back; only what lives at such a moment is known to have been allocated. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_STATES_H
#define MEMSHIM_ALLOCATOR_ARENAS_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/range.h"

/* Optimizer state: see states.h. State lock. The largest ids ever seen that are
 * not an optimizer's; blocks and tensors take theirs from different stretches. */
struct ms_states {
    uint64_t other_block, other_tensor;
};

/* Finds all optimizer state. The result for granules is in struct ms_granule; for blocks, the
 * function below answers. Takes time linear in what lives. State lock, for both. */
void ms_states_find(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* Whether the block, which is no arena, is optimizer state. */
bool ms_states_has_block(const struct ms_pool *pool, const struct ms_range *block)
    MS_REQUIRES(ms_state_role);

#endif
