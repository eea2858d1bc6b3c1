/* SPDX-License-Identifier: Apache-2.0 */
/* Takes chunks out of idle ranges, which become holes. */
#include "allocator/backing/backing.h"
#include "allocator/backing/views.h"
#include "allocator/pool_state.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

/* The first run of neighbouring chunks that lie wholly in an idle range, up to enough_bytes. */
struct chunk_run {
    ms_addr_t addr;
    uint64_t bytes;
};

static bool find_run(const struct ms_pool *pool, const struct ms_range *range,
                     uint64_t enough_bytes, struct chunk_run *out)
{
    const struct ms_segment *segment = range->segment;
    uint64_t granule = pool->granule_bytes;
    ms_addr_t end = range->addr + range->bytes;
    uint64_t slot = (range->addr - segment->base + granule - 1) / granule;
    *out = (struct chunk_run){0};
    while (out->bytes < enough_bytes && slot < segment->slot_count) {
        const struct ms_chunk *chunk = segment->slots[slot];
        ms_addr_t addr = segment->base + slot * granule;
        if (addr >= end) {
            break;
        }
        if (chunk->slot != slot) {
            /* The tail of a chunk that begins before the range: skip it. */
            slot = chunk->slot + chunk->bytes / granule;
            continue;
        }
        if (addr + chunk->bytes > end) {
            break;
        }
        out->addr = out->bytes == 0 ? addr : out->addr;
        out->bytes += chunk->bytes;
        slot += chunk->bytes / granule;
    }
    return out->bytes != 0;
}

static uint64_t idle_chunks_of(struct ms_pool *pool, enum ms_region region, uint64_t enough_bytes)
    MS_REQUIRES(ms_state_role)
{
    uint64_t found_bytes = 0;
    struct ms_treap_node *root = pool->orders.idle.bins[region].large;
    struct ms_range *range = ms_range_tree_at_least(root, pool->granule_bytes, 0);
    while (range != NULL && found_bytes < enough_bytes) {
        struct chunk_run run;
        if (find_run(pool, range, enough_bytes - found_bytes, &run)) {
            found_bytes += run.bytes;
        }
        range = ms_range_tree_after(root, range);
    }
    return found_bytes;
}

uint64_t ms_backing_idle_now(struct ms_pool *pool, uint64_t enough_bytes)
{
    uint64_t found_bytes = 0;
    ms_state_acquire(pool);
    for (int region = 0; region < MS_REGIONS && found_bytes < enough_bytes; region++) {
        found_bytes += idle_chunks_of(pool, region, enough_bytes - found_bytes);
    }
    ms_state_release(pool);
    return found_bytes;
}

uint64_t ms_backing_idle_chunks(struct ms_pool *pool, uint64_t enough_bytes)
{
    uint64_t found_bytes = ms_backing_idle_now(pool, enough_bytes);
    bool more = found_bytes < enough_bytes && ms_views_return(pool);
    return more ? ms_backing_idle_now(pool, enough_bytes) : found_bytes;
}

/* Cuts the run out of its idle range, as a busy range of its own. Null: the host has no memory. */
static struct ms_range *cut_run(struct ms_pool *pool, struct ms_range *range,
                                const struct chunk_run *run) MS_REQUIRES(ms_state_role)
{
    ms_range_take(pool, range);
    struct ms_range *middle = range;
    if (run->addr > range->addr) {
        middle = ms_range_split(pool, range, run->addr - range->addr);
        if (middle == NULL) {
            ms_range_make_free(pool, range, NULL);
            return NULL;
        }
    }
    if (middle->bytes > run->bytes) {
        struct ms_range *rest = ms_range_split(pool, middle, run->bytes);
        if (rest == NULL) {
            if (middle != range) {
                ms_range_absorb_next(pool, range);
            }
            ms_range_make_free(pool, range, NULL);
            return NULL;
        }
        ms_range_make_free(pool, rest, NULL);
    }
    if (middle != range) {
        ms_range_make_free(pool, range, NULL);
    }
    return middle;
}

/* Unmaps all of a busy range; its chunks become spares and it becomes a hole, or, when the device
 * refuses, idle again. */
static ms_status_t unmap_run(struct ms_pool *pool, struct ms_range *range)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_segment *segment = range->segment;
    ms_status_t status = pool->ops->unmap(pool->ops->ctx, range->addr, range->bytes);
    if (status != MS_OK) {
        ms_state_acquire(pool);
        ms_range_make_free(pool, range, NULL);
        ms_state_release(pool);
        return status;
    }
    uint64_t slot = (range->addr - segment->base) / pool->granule_bytes;
    uint64_t end = slot + range->bytes / pool->granule_bytes;
    while (slot < end) {
        struct ms_chunk *chunk = segment->slots[slot];
        slot += chunk->bytes / pool->granule_bytes;
        ms_backing_record(pool, MS_EVENT_UNMAP, chunk);
        ms_backing_clear(pool, chunk);
        ms_backing_add_spare(pool, chunk);
    }
    ms_state_acquire(pool);
    ms_range_make_hole(pool, range);
    ms_state_release(pool);
    return MS_OK;
}

static ms_status_t unmap_idle_of(struct ms_pool *pool, enum ms_region region, uint64_t enough_bytes,
                                 uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
{
    /* Smallest ranges first: they are the least useful. The rest of a cut range sorts before it, so
     * going on behind the last one visits each range only once. */
    uint64_t past_bytes = pool->granule_bytes;
    ms_addr_t past_addr = 0;
    while (*taken_bytes < enough_bytes) {
        struct chunk_run run = {0};
        struct ms_range *busy = NULL;
        ms_state_acquire(pool);
        struct ms_treap_node **root = &pool->orders.idle.bins[region].large;
        struct ms_range *range = ms_range_tree_at_least(*root, past_bytes, past_addr);
        while (range != NULL && !find_run(pool, range, enough_bytes - *taken_bytes, &run)) {
            range = ms_range_tree_after(*root, range);
        }
        if (range != NULL) {
            past_bytes = range->bytes;
            past_addr = range->addr + 1;
            busy = cut_run(pool, range, &run);
        }
        ms_state_release(pool);
        if (busy == NULL) {
            return MS_OK;
        }
        ms_status_t status = unmap_run(pool, busy);
        if (status != MS_OK) {
            return status;
        }
        *taken_bytes += run.bytes;
    }
    return MS_OK;
}

static ms_status_t unmap_idle(struct ms_pool *pool, uint64_t enough_bytes, uint64_t *taken_bytes)
    MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    for (int region = 0; region < MS_REGIONS && status == MS_OK; region++) {
        status = unmap_idle_of(pool, region, enough_bytes, taken_bytes);
    }
    return status;
}

ms_status_t ms_backing_unmap_idle(struct ms_pool *pool, uint64_t enough_bytes,
                                  uint64_t *taken_bytes)
{
    ms_status_t status = unmap_idle(pool, enough_bytes, taken_bytes);
    bool more = status == MS_OK && *taken_bytes < enough_bytes && ms_views_return(pool);
    return more ? unmap_idle(pool, enough_bytes, taken_bytes) : status;
}
