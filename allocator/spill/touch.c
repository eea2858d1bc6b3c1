/* SPDX-License-Identifier: Apache-2.0 */
/* Notes the device's uses of memory, so that the memory used last is spilled last. */
#include "allocator/spill/touch.h"
#include "allocator/arenas/arenas.h"
#include "allocator/backing/granules.h"
#include "allocator/base/arithmetic.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/ahead.h"

static void touch_granules(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr,
                           uint64_t bytes) MS_REQUIRES(ms_state_role)
{
    uint64_t from = (addr - segment->base) >> segment->granule_shift;
    uint64_t to = ((addr + bytes - 1 - segment->base) >> segment->granule_shift) + 1;
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        if (granule->tensors > 0) {
            granule->since = pool->epochs.clock;
        }
    }
}

/* The bytes of the range that lie on the host. */
static uint64_t bytes_on_host(const struct ms_pool *pool, const struct ms_segment *segment,
                              ms_addr_t addr, uint64_t bytes) MS_REQUIRES(ms_state_role)
{
    uint64_t on_host = 0;
    ms_addr_t end = addr + bytes;
    while (pool->count.host_backed_bytes > 0 && addr < end) {
        uint64_t slot = (addr - segment->base) / pool->granule_bytes;
        ms_addr_t next = ms_least(segment->base + (slot + 1) * pool->granule_bytes, end);
        const struct ms_chunk *chunk = segment->slots[slot];
        on_host += chunk != NULL && chunk->host ? next - addr : 0;
        addr = next;
    }
    return on_host;
}

/* State lock. */
static struct ms_touched touch(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr,
                               uint64_t bytes) MS_REQUIRES(ms_state_role)
{
    struct ms_range *range = segment->foreign == NULL ? ms_block_around(pool, addr) : NULL;
    if (range != NULL) {
        ms_range_note_use(range, pool->next_id);
    }
    if (bytes == 0 && segment->granules != NULL && pool->arenas != NULL) {
        ms_arenas_around(pool->arenas, segment, &addr, &bytes);
    }
    if (bytes == 0 && range != NULL) {
        addr = range->addr;
        bytes = ms_range_asked_bytes(range);
    }
    bytes = ms_least(bytes, segment->bytes - (addr - segment->base));
    if (bytes == 0) {
        return (struct ms_touched){0};
    }
    if (segment->granules != NULL) {
        touch_granules(pool, segment, addr, bytes);
    }
    ms_ahead_use(pool, segment, addr, bytes);
    return (struct ms_touched){addr, bytes, bytes_on_host(pool, segment, addr, bytes)};
}

static struct ms_touched touch_in_pool(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_state_role)
{
    struct ms_segment *segment = ms_segment_of(pool, addr);
    return segment != NULL && !segment->plain ? touch(pool, segment, addr, bytes)
                                              : (struct ms_touched){0};
}

uint64_t ms_pool_on_host_bytes(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_state_acquire(pool);
    const struct ms_segment *segment = ms_segment_of(pool, addr);
    uint64_t on_host = segment != NULL && !segment->plain
                           ? bytes_on_host(pool, segment, addr,
                                           ms_least(bytes, segment->bytes - (addr - segment->base)))
                           : 0;
    ms_state_release(pool);
    return on_host;
}

uint64_t ms_pool_touch(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_state_acquire(pool);
    struct ms_touched touched = touch_in_pool(pool, addr, bytes);
    ms_state_release(pool);
    return touched.host_bytes;
}

void ms_pool_touch_each(ms_pool_t *pool, const ms_addr_t *addrs, size_t count,
                        struct ms_touched *out)
{
    ms_state_acquire(pool);
    for (size_t i = 0; i < count; i++) {
        out[i] = touch_in_pool(pool, addrs[i], 0);
    }
    ms_state_release(pool);
}
