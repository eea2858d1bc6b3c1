/* SPDX-License-Identifier: Apache-2.0 */
/* Spilling and promoting ahead of use: applies the forecast (forecast.h) to the pool's memory.
 *
 * Until memory is short for the first time, it records nothing and costs nothing. From then on the
 * forecast gets every allocation and free before the pool's listener does. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_AHEAD_H
#define MEMSHIM_ALLOCATOR_SPILL_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/arenas/live_memory.h"
#include "allocator/backing/victims.h"
#include "allocator/base/event.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/spill/forecast.h"

/* Spilling and promoting ahead of use: see ahead.c. */
struct ms_ahead {
    struct ms_forecast
        forecast MS_GUARDED_BY(ms_state_role); /* allocations null: memory was never short */
    struct ms_event_sink sink
        MS_GUARDED_BY(ms_state_role); /* gets the pool's events, which the forecast passes on */
    uint64_t
        live_bytes MS_GUARDED_BY(ms_state_role); /* of blocks that are no arenas, and tensors */
    uint64_t predict_tick MS_GUARDED_BY(ms_state_role); /* when to predict the uses of spilled
                                                           memory again */
    uint32_t prediction MS_GUARDED_BY(ms_state_role);   /* number of the last prediction */
    uint64_t
        steps MS_GUARDED_BY(ms_state_role); /* of the forecast, when the next four were reset */
    uint64_t spills MS_GUARDED_BY(ms_state_role); /* in this step */
    uint64_t
        idle_bytes MS_GUARDED_BY(ms_state_role); /* the fewest idle bytes since the last spill */
    uint64_t again_bytes MS_GUARDED_BY(ms_state_role); /* bytes of the step's second and later
                                                          spills */
    uint64_t trim_bytes MS_GUARDED_BY(ms_state_role);  /* this many bytes less than foretold are
                                                          enough */
    bool uses_known MS_GUARDED_BY(ms_growth_role);     /* of long-lived memory, too */
    _Atomic bool due;                                  /* predict_tick has come */
};

/* Memory is short: begins to listen if the choice foretells. Growth lock. */
void ms_ahead_begin(struct ms_pool *pool) MS_REQUIRES(ms_growth_role);
/* At the pool's end. */
void ms_ahead_end(struct ms_pool *pool);

/* A step begins. Returns whether anything can be foretold. No lock held. */
bool ms_ahead_step(struct ms_pool *pool);

/* Whether anything can be foretold now. State lock, as for all below. */
bool ms_ahead_knows(const struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* Notes a use of these bytes of the segment. */
void ms_ahead_use(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_state_role);

/* Computes the next use of every slot, for ms_ahead_next_use. */
void ms_ahead_predict(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* The next use of a chunk that is not only optimizer state, in ticks; MS_NEVER: unknown. If uses
 * are not recorded, long-lived memory counts as used at any time. */
uint64_t ms_ahead_next_use(const struct ms_pool *pool, const struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* How many bytes to spill beyond the current need: those that the rest of the step will need. The
 * caller must then spill them. */
uint64_t ms_ahead_more_bytes(struct ms_pool *pool, const struct ms_spill_need *need)
    MS_REQUIRES(ms_state_role);

/* How many bytes of the heap's chunks, all on the host, should come back now. The heap is ordered,
 * the soonest used first; this uses it up. 0 while no use is near. */
uint64_t ms_ahead_promote_bytes(struct ms_pool *pool, struct ms_victim *heap, size_t count)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* The prediction is done: sets the time of the next. */
void ms_ahead_predicted(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

#endif
