/* SPDX-License-Identifier: Apache-2.0 */
/* Spilling and promoting ahead of use: what the forecast (forecast.h) says of the pool's memory.
 *
 * Until memory is short for the first time, nothing is recorded and nothing costs anything. From
 * then on the forecast gets every allocation and free before the pool's listener does. */
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
        forecast MS_GUARDED_BY(ms_state_role); /* allocations null: memory has not been short yet */
    struct ms_event_sink sink
        MS_GUARDED_BY(ms_state_role); /* whom the pool's events are passed on to, once we listen */
    uint64_t
        live_bytes MS_GUARDED_BY(ms_state_role); /* of blocks that are no arenas, and tensors */
    uint64_t
        predict_tick MS_GUARDED_BY(ms_state_role); /* when what is on the host is looked at again */
    uint32_t prediction MS_GUARDED_BY(ms_state_role); /* number of the last one */
    uint64_t steps
        MS_GUARDED_BY(ms_state_role); /* of the forecast, when the next four were begun anew */
    uint64_t spills MS_GUARDED_BY(ms_state_role); /* in this step */
    uint64_t
        idle_bytes MS_GUARDED_BY(ms_state_role); /* the least that lay idle since the last one */
    uint64_t again_bytes MS_GUARDED_BY(ms_state_role); /* what the second and later ones were for */
    uint64_t trim_bytes MS_GUARDED_BY(ms_state_role);  /* how much less than foretold is enough */
    bool uses_known MS_GUARDED_BY(ms_growth_role);     /* of what lasts, too */
    _Atomic bool due;                                  /* that time has come */
};

/* Memory is short: begins to listen, where the choice asks for it. Growth lock. */
void ms_ahead_begin(struct ms_pool *pool) MS_REQUIRES(ms_growth_role);
/* At the pool's end. */
void ms_ahead_end(struct ms_pool *pool);

/* A step begins; whether anything can be foretold. No lock held. */
bool ms_ahead_step(struct ms_pool *pool);

/* Whether anything can be foretold now. State lock, as for all below. */
bool ms_ahead_knows(const struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* These bytes of the segment are used now. */
void ms_ahead_use(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_state_role);

/* Works out for all slots when they are used next, for ms_ahead_next_use to answer from. */
void ms_ahead_predict(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* Of a chunk that is not only optimizer state, in ticks; MS_NEVER: not that anybody knows. What
 * lasts is used at any time where uses are not recorded. */
uint64_t ms_ahead_next_use(const struct ms_pool *pool, const struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* How much more than is needed now should be spilled at once: what the rest of the step will want
 * too. For one who spills it then. */
uint64_t ms_ahead_more_bytes(struct ms_pool *pool, const struct ms_spill_need *need)
    MS_REQUIRES(ms_state_role);

/* Of the chunks of the heap on the host (ordered, the soonest used first; it is used up): how much
 * should come back now. Nothing while no use is near. */
uint64_t ms_ahead_promote_bytes(struct ms_pool *pool, struct ms_victim *heap, size_t count)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* The prediction is done: the next one waits for a while. */
void ms_ahead_predicted(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

#endif
