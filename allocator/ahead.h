/* Spilling and promoting ahead of use: what the forecast (forecast.h) says of the pool's memory.
 *
 * Nothing is noted, and nothing costs anything, until memory is short for the first time: from then
 * on the forecast hears of every birth and death before the pool's listener does. */
#ifndef MEMSHIM_ALLOCATOR_AHEAD_H
#define MEMSHIM_ALLOCATOR_AHEAD_H

#include "allocator/pool_internal.h"

/* Memory is short: begins to listen, where the choice asks for it. Growth lock. */
void ms_ahead_begin(struct ms_pool *pool);
/* At the pool's end. */
void ms_ahead_end(struct ms_pool *pool);

/* A step begins; whether anything can be foretold. No lock held. */
bool ms_ahead_step(struct ms_pool *pool);

/* Whether anything can be foretold now. State lock, as for all below. */
bool ms_ahead_knows(const struct ms_pool *pool);

/* These bytes of the segment are used now. */
void ms_ahead_use(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr, uint64_t bytes);

/* Works out for all slots when they are used next, for ms_ahead_next_use to answer from. */
void ms_ahead_look(struct ms_pool *pool);

/* Of a chunk, in ticks; MS_NEVER: not that anybody knows. What lasts, and is no optimizer state, is
 * used at any time where uses are not told. state: all that lives there is optimizer state. */
uint64_t ms_ahead_next_use(const struct ms_pool *pool, const struct ms_chunk *chunk, bool state);

/* How much more than is needed now should be spilled at once: what the rest of the step will want
 * too. For one who spills it then. */
uint64_t ms_ahead_more_bytes(struct ms_pool *pool, const struct ms_spill_need *need);

/* Of the chunks of the heap on the host (ordered, the soonest used first; it is used up): how much
 * should come back now. Nothing while no use is near. */
uint64_t ms_ahead_promote_bytes(struct ms_pool *pool, struct ms_victim *heap, size_t count);

/* It was looked: not again at once. */
void ms_ahead_looked(struct ms_pool *pool);

#endif
