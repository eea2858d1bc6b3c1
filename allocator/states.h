/* Optimizer state: what was asked for in an optimizer's step, and outlived that. Nobody has to tell
 * when it is used: once a step, at its end, in the order of the parameters, as it was born.
 *
 * A step is over where something was born since that is not an optimizer's. Who knows call sites
 * says which are an optimizer's (struct ms_pool_config). Nothing is kept for it with every birth
 * but the site: it is looked for when something has to go to the host or may come back, so that
 * something has to live at such a moment to be known to have been born. */
#ifndef MEMSHIM_ALLOCATOR_STATES_H
#define MEMSHIM_ALLOCATOR_STATES_H

#include "allocator/pool_internal.h"

/* Finds all of it: of granules it sets what struct ms_granule says of it; of blocks the function
 * below answers. Linear in what lives. State lock, as for both. */
void ms_states_look(struct ms_pool *pool);

/* Whether the block, which is no arena, is one. */
bool ms_states_has_block(const struct ms_pool *pool, const struct ms_range *block);

#endif
