/* SPDX-License-Identifier: Apache-2.0 */
/* Pins blocks whose physical identity leaves the process, and visits the chunks that they lie
 * on. */
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/pool.h"
#include "allocator/pool_state.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/spill.h"

/* The slots of every granule that the block touches. */
static void slots_around(const struct ms_pool *pool, const struct ms_range *range, uint64_t *from,
                         uint64_t *to)
{
    uint64_t offset = range->addr - range->segment->base;
    *from = offset / pool->granule_bytes;
    *to = (offset + range->bytes - 1) / pool->granule_bytes + 1;
}

/* Both locks. */
static void set_pinned(struct ms_pool *pool, struct ms_range *range, bool pinned)
    MS_REQUIRES(ms_state_role)
{
    range->pinned = pinned;
    if (range->holed) {
        uint64_t from = 0;
        uint64_t to = 0;
        ms_granules_inside_range(pool, range, &from, &to);
        ms_granules_pin(range->segment, from, to, pinned);
    }
}

/* The slots to pin. The block may be freed meanwhile, so this does not point to it. */
struct pin_site {
    struct ms_segment *segment;
    uint64_t from, to;             /* all that it lies on */
    uint64_t arena_from, arena_to; /* those that may be unbacked */
};

/* State lock. */
static struct pin_site site_of(const struct ms_pool *pool, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    struct pin_site site = {.segment = range->segment};
    if (!range->segment->plain) {
        slots_around(pool, range, &site.from, &site.to);
    }
    if (range->holed) {
        ms_granules_inside_range(pool, range, &site.arena_from, &site.arena_to);
    }
    return site;
}

/* Backs all of the site by device memory: whoever has the block's identity may use any part of
 * it. */
static ms_status_t back_on_device(struct ms_pool *pool, const struct pin_site *site)
    MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    pool->moving.refused = false;
    if (site->arena_to > site->arena_from) {
        status = ms_holes_back(pool, site->segment, site->arena_from, site->arena_to);
    }
    if (status == MS_OK && ms_pool_count_of_growth(pool)->host_backed_bytes > 0) {
        status = ms_spill_bring_back(pool, site->segment, site->from, site->to);
        (void)ms_backing_release_spares(pool);
        ms_obligations_settle(pool);
    }
    return status;
}

/* *out: the block; null if it was freed meanwhile. */
static ms_status_t pin(struct ms_pool *pool, ms_addr_t addr, struct ms_range **out)
    MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_state_acquire(pool);
    struct ms_range *range = ms_block_around(pool, addr);
    bool pinned = range != NULL && range->pinned;
    struct pin_site site = {0};
    if (range != NULL) {
        site = site_of(pool, range);
        set_pinned(pool, range, true);
    }
    ms_state_release(pool);
    if (range != NULL) {
        status = back_on_device(pool, &site);
    }
    ms_state_acquire(pool);
    *out = range != NULL && ms_block_around(pool, addr) == range ? range : NULL;
    if (*out != NULL && status != MS_OK && !pinned) {
        /* No event reports this failure, and another call may find room. */
        set_pinned(pool, range, false);
    }
    ms_state_release(pool);
    return status;
}

ms_status_t ms_pool_pin(ms_pool_t *pool, ms_addr_t addr)
{
    struct ms_range *range = NULL;
    ms_growth_acquire(pool);
    ms_status_t status = pin(pool, addr, &range);
    ms_growth_release(pool);
    return status;
}

/* The start of the last block that begins in [addr, end); addr if none does. */
static ms_addr_t last_start(struct ms_pool *pool, ms_addr_t addr, ms_addr_t end)
{
    ms_state_acquire(pool);
    const struct ms_range *last = ms_block_at_or_below(pool, end - 1);
    const ms_addr_t start = last != NULL && last->addr > addr ? last->addr : addr;
    ms_state_release(pool);
    return start;
}

ms_status_t ms_pool_pin_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_addr_t end = addr + (bytes > 0 ? bytes : 1);
    ms_status_t status = MS_OK;
    while (end > addr && (status == MS_OK || status == MS_ERR_NOT_OURS)) {
        end = last_start(pool, addr, end);
        status = ms_pool_pin(pool, end);
    }
    return status == MS_ERR_NOT_OURS ? MS_OK : status;
}

/* Growth lock: nothing changes behind a pinned block. */
static ms_status_t visit_chunks(const struct ms_pool *pool, const struct pin_site *site,
                                ms_addr_t addr, const struct ms_chunk_visitor *visitor,
                                uint64_t *offset_bytes) MS_REQUIRES(ms_growth_role)
{
    const struct ms_segment *segment = site->segment;
    const struct ms_chunk *chunk = segment->slots[site->from];
    const uint64_t slot = chunk != NULL ? chunk->slot : site->from;
    *offset_bytes = addr - segment->base - slot * pool->granule_bytes;
    return ms_backing_visit(pool, segment, slot, site->to, visitor);
}

ms_status_t ms_pool_pin_chunks(ms_pool_t *pool, ms_addr_t addr,
                               const struct ms_chunk_visitor *visitor, struct ms_block_info *out,
                               uint64_t *offset_bytes)
{
    struct ms_range *range = NULL;
    if (pool->granule_bytes == 0) {
        return MS_ERR_NOT_SUPPORTED;
    }
    ms_growth_acquire(pool);
    ms_status_t status = pin(pool, addr, &range);
    if (status == MS_OK && range == NULL) {
        status = MS_ERR_NOT_OURS;
    }
    if (status == MS_OK) {
        ms_state_acquire(pool);
        ms_range_info(range, out);
        const struct pin_site site = site_of(pool, range);
        ms_state_release(pool);
        status = visit_chunks(pool, &site, out->addr, visitor, offset_bytes);
    }
    ms_growth_release(pool);
    return status;
}
