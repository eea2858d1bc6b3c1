/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the forecast to the pool's memory: see ahead.h.
 *
 *   down   the memory that is used last goes first. As much goes at once as the rest of the step
 *          will need: the step's largest live bytes, less the bytes that live now
 *   up     the memory that is used next comes first, once its use is near, and only if it need not
 *          go again before. One standstill serves all that may come by then. Memory without a
 *          known next use comes when there is room for it all through a step */
#include "allocator/spill/ahead.h"
#include "allocator/arenas/arenas.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/victims.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/containers/pages.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/forecast.h"

/* A use within this part of a step is near. Predictions are this part of a step apart. */
enum { NEAR_PART = 24, PREDICTION_PART = 48 };

/* Memory on the device where nothing lives, and device memory that the pool may still take. */
static uint64_t idle_bytes(const struct ms_pool *pool) MS_REQUIRES(ms_state_role)
{
    return pool->count.free_bytes + pool->count.quiet_granules * pool->granule_bytes +
           ms_budget_free_bytes(pool->config.budget);
}

/* ---- how many bytes too many were spilled: memory packs more tightly when it is short */

static void learn_trim(struct ms_pool *pool) MS_REQUIRES(ms_state_role)
{
    struct ms_ahead *ahead = &pool->ahead;
    if (ahead->forecast.steps != ahead->steps) {
        if (ahead->spills == 1) {
            ahead->trim_bytes += ms_less(ahead->idle_bytes, pool->granule_bytes);
        }
        ahead->trim_bytes = ms_less(ahead->trim_bytes, ahead->again_bytes);
        ahead->steps = ahead->forecast.steps;
        ahead->spills = 0;
        ahead->again_bytes = 0;
    }
    uint64_t idle = idle_bytes(pool);
    ahead->idle_bytes = idle < ahead->idle_bytes ? idle : ahead->idle_bytes;
}

/* ---- listening: state lock */

static void hear(struct ms_pool *pool, const struct ms_event *event) MS_REQUIRES(ms_state_role)
{
    struct ms_ahead *ahead = &pool->ahead;
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
    case MS_EVENT_TENSOR_ALLOC:
        ahead->live_bytes += event->bytes;
        ms_forecast_allocated(&ahead->forecast, event->id, event->addr, event->bytes, event->site,
                              ahead->live_bytes);
        learn_trim(pool);
        break;
    case MS_EVENT_BLOCK_FREE:
        if (event->aux != 0) {
            return; /* the forecast forgot it when it became an arena */
        }
        /* fall through */
    case MS_EVENT_BLOCK_ARENA:
    case MS_EVENT_TENSOR_FREE:
        ahead->live_bytes -= event->bytes;
        ms_forecast_freed(&ahead->forecast, event->id);
        break;
    default:
        return;
    }
    if (ahead->forecast.tick >= ahead->predict_tick && pool->count.spill.spilled_bytes > 0) {
        atomic_store_explicit(&pool->ahead.due, true, memory_order_relaxed);
    }
}

static void hear_and_pass_on(void *ctx, const struct ms_event *event) MS_REQUIRES(ms_state_role)
{
    struct ms_pool *pool = ctx;
    hear(pool, event);
    if (pool->ahead.sink.emit != NULL) {
        pool->ahead.sink.emit(pool->ahead.sink.ctx, event);
    }
}

void ms_ahead_begin(struct ms_pool *pool)
{
    struct ms_ahead *ahead = &pool->ahead;
    const struct ms_spill_choice *choice = pool->config.spill_choice;
    if (pool->config.spill_limit_bytes == 0 || choice == NULL || !choice->foretells) {
        return;
    }
    ms_state_acquire(pool);
    if (ahead->forecast.allocations == NULL && ms_forecast_init(&ahead->forecast)) {
        ahead->live_bytes = pool->count.live_bytes - pool->count.arena_bytes;
        if (pool->arenas != NULL) {
            ahead->live_bytes += ms_arenas_live_bytes(pool->arenas);
        }
    }
    if (ahead->forecast.allocations != NULL && pool->config.sink.emit != hear_and_pass_on) {
        ahead->sink = pool->config.sink;
        pool->config.sink = (struct ms_event_sink){.emit = hear_and_pass_on, .ctx = pool};
    }
    ms_state_release(pool);
}

void ms_ahead_end(struct ms_pool *pool)
{
    struct ms_ahead *ahead = &pool->ahead;
    ms_state_acquire(pool);
    if (pool->config.sink.emit == hear_and_pass_on) {
        pool->config.sink = ahead->sink;
    }
    ms_forecast_destroy(&ahead->forecast);
    ms_state_release(pool);
}

bool ms_ahead_knows(const struct ms_pool *pool)
{
    return pool->ahead.forecast.allocations != NULL && ms_forecast_knows(&pool->ahead.forecast);
}

bool ms_ahead_step(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    if (pool->ahead.forecast.allocations != NULL) {
        ms_forecast_step(&pool->ahead.forecast);
        pool->ahead.predict_tick = 0;
    }
    bool knows = ms_ahead_knows(pool);
    ms_state_release(pool);
    return knows;
}

/* ---- heat of slots */

/* Null when the host is out of memory. */
static struct ms_heat *heat_of(struct ms_segment *segment)
{
    if (segment->heat == NULL && !segment->plain) {
        segment->heat = ms_pages_map(segment->slot_count * sizeof(*segment->heat));
    }
    return segment->heat;
}

/* The slots that the range touches. */
static void slots_of(const struct ms_pool *pool, const struct ms_segment *segment, ms_addr_t addr,
                     uint64_t bytes, uint64_t *from, uint64_t *to)
{
    *from = (addr - segment->base) / pool->granule_bytes;
    *to = (addr - segment->base + bytes - 1) / pool->granule_bytes + 1;
    *to = *to < segment->slot_count ? *to : segment->slot_count;
}

void ms_ahead_use(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr, uint64_t bytes)
{
    if (pool->ahead.forecast.allocations == NULL || bytes == 0 || heat_of(segment) == NULL) {
        return;
    }
    uint64_t from = 0;
    uint64_t to = 0;
    slots_of(pool, segment, addr, bytes, &from, &to);
    for (uint64_t slot = from; slot < to; slot++) {
        ms_heat_use(&pool->ahead.forecast, &segment->heat[slot]);
    }
}

/* Notes the next use of one live allocation on the slots that it touches. */
static void predict_allocation(struct ms_pool *pool, const struct ms_foretold *allocation)
    MS_REQUIRES(ms_state_role)
{
    uint64_t next_use = ms_forecast_next_use(&pool->ahead.forecast, allocation);
    struct ms_segment *segment = ms_segment_of(pool, allocation->addr);
    if (next_use == MS_NEVER || segment == NULL || heat_of(segment) == NULL) {
        return;
    }
    uint64_t from = 0;
    uint64_t to = 0;
    slots_of(pool, segment, allocation->addr, allocation->bytes, &from, &to);
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_heat *heat = &segment->heat[slot];
        bool first = heat->prediction != pool->ahead.prediction;
        heat->prediction = pool->ahead.prediction;
        heat->next_use = first || next_use < heat->next_use ? next_use : heat->next_use;
        heat->known = first ? 1 : heat->known + 1;
    }
}

void ms_ahead_predict(struct ms_pool *pool)
{
    const struct ms_forecast *forecast = &pool->ahead.forecast;
    pool->ahead.prediction++; /* results of earlier predictions do not count */
    for (uint64_t number = ms_forecast_oldest(forecast); number <= forecast->last; number++) {
        const struct ms_foretold *allocation =
            &forecast->allocations[number % MS_FORECAST_ALLOCATIONS];
        if (allocation->freed == 0) {
            predict_allocation(pool, allocation);
        }
    }
}

/* The next use of a slot with something live on it that has no like in the last step. */
static uint64_t next_use_of_older(const struct ms_pool *pool, const struct ms_heat *heat)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    uint64_t again = ms_heat_next_use(&pool->ahead.forecast, heat);
    bool any_time = again == MS_NEVER && !pool->ahead.uses_known;
    return any_time ? pool->ahead.forecast.tick : again;
}

uint64_t ms_ahead_next_use(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    static const struct ms_heat none;
    const struct ms_segment *segment = chunk->segment;
    uint64_t soonest = MS_NEVER;
    uint64_t end = chunk->slot + chunk->bytes / pool->granule_bytes;
    for (uint64_t slot = chunk->slot; slot < end; slot++) {
        const struct ms_heat *heat = segment->heat != NULL ? &segment->heat[slot] : &none;
        bool predicted = heat->prediction == pool->ahead.prediction;
        uint64_t next_use = predicted ? heat->next_use : MS_NEVER;
        uint32_t known = predicted ? heat->known : 0;
        bool older =
            segment->granules != NULL ? segment->granules[slot].tensors > known : known == 0;
        if (older) {
            uint64_t again = next_use_of_older(pool, heat);
            next_use = again < next_use ? again : next_use;
        }
        soonest = next_use < soonest ? next_use : soonest;
    }
    return soonest;
}

/* ---- how much */

uint64_t ms_ahead_more_bytes(struct ms_pool *pool, const struct ms_spill_need *need)
{
    struct ms_ahead *ahead = &pool->ahead;
    const struct ms_forecast *forecast = &ahead->forecast;
    uint64_t most = ms_forecast_need(forecast, ms_forecast_step_end(forecast));
    most += pool->granule_bytes; /* idle bytes in a granule that is partly used */
    uint64_t more = ms_less(ms_less(most, ahead->live_bytes + need->born_bytes), ahead->trim_bytes);
    ahead->again_bytes += ahead->spills > 0 ? need->bytes + more : 0;
    ahead->spills++;
    ahead->idle_bytes = UINT64_MAX;
    return more;
}

/* How many live bytes will have to be on the host at a time until the tick, if the pool holds as
 * much as it could. Reserved memory where nothing lives counts as free: holes give way. */
static uint64_t must_stay(struct ms_pool *pool, uint64_t until) MS_REQUIRES(ms_state_role)
{
    const struct ms_pool_counters *count = &pool->count;
    uint64_t room = count->reserved_bytes + ms_budget_free_bytes(pool->config.budget);
    uint64_t held = ms_less(room + count->host_backed_bytes, idle_bytes(pool));
    uint64_t waste = ms_less(held, pool->ahead.live_bytes);
    uint64_t most = ms_forecast_need(&pool->ahead.forecast, until);
    most = most > pool->ahead.live_bytes ? most : pool->ahead.live_bytes;
    return ms_less(most + waste, room);
}

/* The time between predictions, in ticks. */
static uint64_t pause_of(const struct ms_forecast *forecast)
{
    uint64_t pause = forecast->period / PREDICTION_PART;
    return pause > 0 ? pause : 1;
}

/* Whether the memory stays on the host, because it came back and soon had to go again. Optimizer
 * state does not: it costs something in every step, and comes once a step had room for it. */
static bool stays(const struct ms_pool *pool, const struct ms_victim *victim)
    MS_REQUIRES(ms_growth_role)
{
    return victim->chunk->returns > 0 && pool->ahead.uses_known && !victim->state;
}

uint64_t ms_ahead_promote_bytes(struct ms_pool *pool, struct ms_victim *heap, size_t count)
{
    const struct ms_forecast *forecast = &pool->ahead.forecast;
    uint64_t near = forecast->tick + forecast->period / NEAR_PART;
    bool begins = forecast->tick <= forecast->step_tick + pause_of(forecast);
    uint64_t left = 0;
    uint64_t bytes = 0;
    uint64_t last_use = 0;
    uint64_t stay = 0;
    for (size_t at = 0; at < count; at++) {
        left += heap[at].chunk->bytes;
    }
    while (count > 0) {
        const struct ms_victim soonest = ms_victims_pop(heap, &count);
        const struct ms_chunk *chunk = soonest.chunk;
        uint64_t next_use = soonest.next_use;
        bool unknown = next_use == MS_NEVER;
        if (unknown ? stays(pool, &soonest) || (bytes == 0 && !begins)
                    : bytes == 0 && next_use > near) {
            break;
        }
        next_use = unknown ? forecast->tick + forecast->period : next_use;
        if (next_use != last_use) {
            stay = must_stay(pool, next_use);
            last_use = next_use;
        }
        if (left < chunk->bytes + stay) {
            break;
        }
        left -= chunk->bytes;
        bytes += chunk->bytes;
    }
    return bytes;
}

void ms_ahead_predicted(struct ms_pool *pool)
{
    struct ms_ahead *ahead = &pool->ahead;
    ahead->predict_tick = ahead->forecast.tick + pause_of(&ahead->forecast);
    atomic_store_explicit(&ahead->due, false, memory_order_relaxed);
}
