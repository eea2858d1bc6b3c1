/* SPDX-License-Identifier: Apache-2.0 */
/* Finds optimizer state in live memory: see states.h. */
#include "allocator/arenas/states.h"
#include "allocator/arenas/arena.h"
#include "allocator/arenas/arenas.h"
#include "allocator/arenas/tensors.h"
#include "allocator/backing/granules.h"
#include "allocator/pool_state.h"

static bool optimizers(const struct ms_pool *pool, uint32_t site)
{
    return pool->config.is_optimizers(pool->config.sites, site);
}

/* ---- the youngest allocations that are not an optimizer's, live or not */

static void note_block(struct ms_pool *pool, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    bool block = range->state == MS_RANGE_LIVE && !range->arena;
    if (block && range->live.id > pool->states.other_block && !optimizers(pool, range->live.site)) {
        pool->states.other_block = range->live.id;
    }
}

static void note_tensor(void *ctx, struct ms_segment *segment, const struct ms_tensor *tensor)
    MS_REQUIRES(ms_state_role)
{
    struct ms_pool *pool = ctx;
    (void)segment;
    if (ms_tensor_id(tensor) > pool->states.other_tensor && !optimizers(pool, tensor->site)) {
        pool->states.other_tensor = ms_tensor_id(tensor);
    }
}

/* ---- granules */

static void assume(struct ms_segment *segment)
{
    for (uint64_t slot = 0; segment->granules != NULL && slot < segment->slot_count; slot++) {
        segment->granules[slot].states = segment->granules[slot].tensors > 0;
    }
}

static void refute(void *ctx, struct ms_segment *segment, const struct ms_tensor *tensor)
    MS_REQUIRES(ms_state_role)
{
    struct ms_pool *pool = ctx;
    uint64_t from = (tensor->addr - segment->base) >> segment->granule_shift;
    uint64_t to = (tensor->addr + tensor->bytes - 1 - segment->base) >> segment->granule_shift;
    to = to < segment->slot_count ? to : segment->slot_count - 1;
    bool over = ms_tensor_id(tensor) < pool->states.other_tensor;
    if (over && optimizers(pool, tensor->site)) {
        return;
    }
    for (uint64_t slot = from; slot <= to; slot++) {
        segment->granules[slot].states = false;
    }
}

void ms_states_find(struct ms_pool *pool)
{
    struct ms_arenas *arenas = pool->arenas;
    if (pool->config.is_optimizers == NULL) {
        return;
    }
    for (size_t at = 0; at < pool->segment_count; at++) {
        assume(pool->segments[at]);
        for (struct ms_range *range = pool->segments[at]->first; range != NULL;
             range = range->next) {
            note_block(pool, range);
        }
    }
    if (arenas != NULL) {
        ms_arenas_each(arenas, note_tensor, pool);
        ms_arenas_each(arenas, refute, pool);
    }
}

bool ms_states_has_block(const struct ms_pool *pool, const struct ms_range *block)
{
    return block->live.id < pool->states.other_block && optimizers(pool, block->live.site);
}
