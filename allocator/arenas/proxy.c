/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a framework that maps memory by itself: see proxy.h.
 *
 * A framework's reservation is a segment too, a foreign one: all of it is one range that no block
 * may have, and one arena. Its slots belong to the proxies mapped there, and have chunks as in
 * every segment, so holes.c and holes_back.c take and back their granules as they do a block's. A
 * proxy that is mapped nowhere keeps its chunks itself; its unbacked bytes are an obligation,
 * too. */

#include <pthread.h>

#include "allocator/arenas/arenas.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/page_room.h"
#include "allocator/arenas/proxies.h"
#include "allocator/arenas/proxy.h"
#include "allocator/arenas/proxy_state.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/base/ids.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

void ms_proxy_oblige(struct ms_pool *pool, const struct ms_proxy *proxy, uint64_t more_bytes,
                     uint64_t fewer_bytes)
{
    pool->count.obligation_bytes += more_bytes;
    pool->count.obligation_bytes -= fewer_bytes;
    if (proxy->fresh) {
        pool->count.fresh_unbacked_bytes += more_bytes;
        pool->count.fresh_unbacked_bytes -= fewer_bytes;
    }
}

/* ---- current requests. State lock. */

static void make_fresh(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_state_role)
{
    proxy->fresh = true;
    proxy->maker = pthread_self();
    proxy->fresh_prev = NULL;
    proxy->fresh_next = pool->proxies.fresh;
    if (proxy->fresh_next != NULL) {
        proxy->fresh_next->fresh_prev = proxy;
    }
    pool->proxies.fresh = proxy;
    pool->count.fresh_bytes += proxy->bytes;
}

void ms_proxy_fresh_no_more(struct ms_pool *pool, struct ms_proxy *proxy)
{
    if (!proxy->fresh) {
        return;
    }
    *(proxy->fresh_prev != NULL ? &proxy->fresh_prev->fresh_next : &pool->proxies.fresh) =
        proxy->fresh_next;
    if (proxy->fresh_next != NULL) {
        proxy->fresh_next->fresh_prev = proxy->fresh_prev;
    }
    pool->count.fresh_bytes -= proxy->bytes;
    if (proxy->segment != NULL) {
        ms_granules_fresh(pool, proxy->segment, proxy->slot,
                          proxy->slot + ms_proxy_slots(pool, proxy), false);
    } else {
        pool->count.fresh_unbacked_bytes -= proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks);
    }
    proxy->fresh = false;
}

void ms_proxies_tensor_allocated(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
{
    pthread_t self = pthread_self();
    struct ms_proxy *next = NULL;
    pool->count.front_bytes = 0;
    for (struct ms_proxy *proxy = pool->proxies.fresh; proxy != NULL; proxy = next) {
        next = proxy->fresh_next;
        bool touched = proxy->segment != NULL && addr < ms_proxy_addr(pool, proxy) + proxy->bytes &&
                       ms_proxy_addr(pool, proxy) < addr + bytes;
        if (touched || pthread_equal(proxy->maker, self)) {
            ms_proxy_fresh_no_more(pool, proxy);
        }
    }
}

void ms_proxy_request_over(ms_pool_t *pool)
{
    ms_state_acquire(pool);
    ms_proxies_tensor_allocated(pool, 0, 0);
    ms_state_release(pool);
}

static void give_chunks(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_growth_role)
{
    while (proxy->chunks != NULL) {
        struct ms_chunk *chunk = proxy->chunks;
        proxy->chunks = chunk->next;
        ms_backing_add_spare(pool, chunk);
    }
    (void)ms_backing_release_spares(pool);
}

/* ---- creation */

/* Makes new chunks for all of it; one chunk while memory is ample. */
static ms_status_t make_chunks(struct ms_pool *pool, struct ms_proxy *proxy, const void *properties)
    MS_REQUIRES(ms_growth_role)
{
    bool whole = proxy->bytes == pool->granule_bytes || ms_backing_ample(pool, proxy->bytes);
    uint64_t bytes = whole ? proxy->bytes : pool->granule_bytes;
    for (uint64_t done = 0; done < proxy->bytes; done += bytes) {
        struct ms_chunk *chunk = NULL;
        ms_status_t status =
            ms_backing_chunk_make(pool, bytes, false, whole ? properties : NULL, &chunk);
        if (status != MS_OK) {
            return status;
        }
        chunk->slot = done / pool->granule_bytes;
        chunk->next = proxy->chunks;
        proxy->chunks = chunk;
    }
    return MS_OK;
}

/* Backs all of the new proxy, or nothing. */
static ms_status_t fill_new(struct ms_pool *pool, struct ms_proxy *proxy, const void *properties,
                            bool may_wait) MS_REQUIRES(ms_growth_role)
{
    enum ms_room room = MS_ROOM_AT_ONCE;
    ms_status_t status = ms_room_for_page(pool, proxy->bytes, may_wait, &room);
    if (status != MS_OK) {
        return status;
    }
    if (room == MS_ROOM_SECURED) {
        ms_state_acquire(pool);
        ms_proxy_oblige(pool, proxy, proxy->bytes, 0);
        ms_state_release(pool);
        return MS_OK;
    }
    status = make_chunks(pool, proxy, properties);
    if (status != MS_OK) {
        give_chunks(pool, proxy);
    }
    return status;
}

ms_status_t ms_proxy_create(ms_pool_t *pool, uint64_t bytes, const void *properties, bool may_wait,
                            ms_proxy_t **out)
{
    if (pool->granule_bytes == 0 || bytes == 0 || bytes % pool->granule_bytes != 0) {
        return MS_ERR_INVALID;
    }
    if (bytes > pool->ops->total_bytes) {
        return MS_ERR_NO_MEMORY;
    }
    ms_growth_acquire(pool);
    struct ms_proxy *proxy = ms_slab_take(&pool->proxies.slab);
    ms_status_t status = MS_ERR_NO_MEMORY;
    if (proxy != NULL) {
        *proxy = (struct ms_proxy){.bytes = bytes, .properties = properties};
        status = fill_new(pool, proxy, properties, may_wait);
    }
    if (status == MS_OK) {
        proxy->id = ms_ids_take(1);
        proxy->next = pool->proxies.first;
        if (proxy->next != NULL) {
            proxy->next->prev = proxy;
        }
        pool->proxies.first = proxy;
        *out = proxy;
        ms_state_acquire(pool);
        make_fresh(pool, proxy);
        pool->count.front_bytes = 0;
        pool->count.fresh_unbacked_bytes += proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks);
        ms_state_release(pool);
    } else if (proxy != NULL) {
        ms_slab_give(&pool->proxies.slab, proxy);
    }
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return status;
}

void ms_proxy_end_if_unused(struct ms_pool *pool, struct ms_proxy *proxy)
{
    if (!proxy->released || proxy->segment != NULL) {
        return;
    }
    ms_state_acquire(pool);
    ms_proxy_fresh_no_more(pool, proxy);
    ms_proxy_oblige(pool, proxy, 0, proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks));
    ms_state_release(pool);
    give_chunks(pool, proxy);
    *(proxy->prev != NULL ? &proxy->prev->next : &pool->proxies.first) = proxy->next;
    if (proxy->next != NULL) {
        proxy->next->prev = proxy->prev;
    }
    ms_slab_give(&pool->proxies.slab, proxy);
}

/* ---- the end, and the state, of one proxy */

void ms_proxy_release(ms_pool_t *pool, ms_proxy_t *proxy)
{
    ms_growth_acquire(pool);
    proxy->released = true;
    ms_proxy_end_if_unused(pool, proxy);
    ms_obligations_settle(pool);
    ms_growth_release(pool);
}

/* State or growth lock. */
static void describe(const struct ms_pool *pool, ms_proxy_t *proxy, struct ms_proxy_info *out)
{
    const struct ms_chunk *chunk = proxy->chunks;
    if (proxy->segment != NULL) {
        chunk = proxy->segment->slots[proxy->slot];
    }
    bool one = chunk != NULL && !chunk->host && !chunk->stuck && chunk->bytes == proxy->bytes;
    *out = (struct ms_proxy_info){.proxy = proxy,
                                  .addr = proxy->segment != NULL ? ms_proxy_addr(pool, proxy) : 0,
                                  .bytes = proxy->bytes,
                                  .chunk = one ? chunk->handle : 0,
                                  .pinned = proxy->pinned};
}

ms_status_t ms_proxy_at(ms_pool_t *pool, ms_addr_t addr, struct ms_proxy_info *out)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_state_acquire(pool);
    const struct ms_segment *segment = ms_foreign_of(pool, addr, 0);
    struct ms_proxy *proxy =
        segment == NULL ? NULL : segment->proxies[(addr - segment->base) / pool->granule_bytes];
    if (proxy != NULL) {
        describe(pool, proxy, out);
        status = MS_OK;
    }
    ms_state_release(pool);
    return status;
}

void ms_proxy_info(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out)
{
    ms_growth_acquire(pool);
    describe(pool, proxy, out);
    ms_growth_release(pool);
}

/* Marks the granules that the proxy is mapped at. State lock. */
static void set_pinned(struct ms_pool *pool, struct ms_proxy *proxy, bool pinned)
    MS_REQUIRES(ms_state_role)
{
    proxy->pinned = pinned;
    if (proxy->segment != NULL) {
        ms_granules_pin(proxy->segment, proxy->slot, proxy->slot + ms_proxy_slots(pool, proxy),
                        pinned);
    }
}

static ms_status_t back_on_device(struct ms_pool *pool, struct ms_proxy *proxy)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t end = proxy->slot + ms_proxy_slots(pool, proxy);
    ms_status_t status = ms_holes_back(pool, proxy->segment, proxy->slot, end);
    if (status == MS_OK && ms_pool_count_of_growth(pool)->host_backed_bytes > 0) {
        pool->moving.refused = false;
        status = pool->live->bring_back(pool, proxy->segment, proxy->slot, end);
        (void)ms_backing_release_spares(pool);
        ms_obligations_settle(pool);
    }
    return status;
}

static void pin_locked(struct ms_pool *pool, struct ms_proxy *proxy, bool pinned)
    MS_REQUIRES(ms_growth_role)
{
    ms_state_acquire(pool);
    set_pinned(pool, proxy, pinned);
    ms_state_release(pool);
}

ms_status_t ms_proxy_pin(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out)
{
    ms_growth_acquire(pool);
    bool pinned = proxy->pinned;
    pin_locked(pool, proxy, true);
    ms_status_t status = proxy->segment != NULL ? back_on_device(pool, proxy) : MS_OK;
    if (status != MS_OK && !pinned) {
        pin_locked(pool, proxy, false);
    }
    describe(pool, proxy, out);
    ms_growth_release(pool);
    return status;
}

ms_status_t ms_proxy_pin_chunks(ms_pool_t *pool, ms_proxy_t *proxy,
                                const struct ms_chunk_visitor *visitor)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_growth_acquire(pool);
    const bool pinned = proxy->pinned;
    if (proxy->segment != NULL) {
        pin_locked(pool, proxy, true);
        status = back_on_device(pool, proxy);
    }
    if (status == MS_OK) {
        status = ms_backing_visit(pool, proxy->segment, proxy->slot,
                                  proxy->slot + ms_proxy_slots(pool, proxy), visitor);
    }
    if (status != MS_OK && !pinned) {
        pin_locked(pool, proxy, false);
    }
    proxy->visited = proxy->visited || status == MS_OK;
    ms_growth_release(pool);
    return status;
}

/* Spilled parts come back first; unbacked parts get their backing with the new chunk. */
static ms_status_t make_whole(struct ms_pool *pool, const struct ms_proxy *proxy)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t end = proxy->slot + ms_proxy_slots(pool, proxy);
    if (ms_pool_count_of_growth(pool)->host_backed_bytes > 0) {
        pool->moving.refused = false;
        (void)pool->live->bring_back(pool, proxy->segment, proxy->slot, end);
    }
    ms_status_t status =
        pool->live->make_whole(pool, proxy->segment, proxy->slot, end, proxy->properties);
    (void)ms_backing_release_spares(pool);
    ms_obligations_settle(pool);
    return status;
}

ms_status_t ms_proxy_show(ms_pool_t *pool, ms_proxy_t *proxy, struct ms_proxy_info *out)
{
    ms_status_t status = MS_OK;
    ms_growth_acquire(pool);
    const bool pinned = proxy->pinned;
    pin_locked(pool, proxy, true);
    describe(pool, proxy, out);
    if (out->chunk == 0) {
        status = proxy->segment != NULL && !proxy->visited ? make_whole(pool, proxy)
                                                           : MS_ERR_NOT_SUPPORTED;
    }
    if (status != MS_OK && !pinned) {
        pin_locked(pool, proxy, false);
    }
    describe(pool, proxy, out);
    ms_growth_release(pool);
    return status;
}

/* ---- the pool's beginning and end */

void ms_proxies_init(struct ms_pool *pool)
{
    ms_slab_init(&pool->proxies.slab, sizeof(struct ms_proxy));
}

void ms_proxies_drop(struct ms_pool *pool, bool device_gone)
{
    for (struct ms_proxy *proxy = pool->proxies.first; proxy != NULL; proxy = proxy->next) {
        ms_backing_drop_list(pool, proxy->chunks, device_gone);
        if (proxy->segment != NULL) {
            ms_state_acquire(pool);
            ms_proxy_emit(pool, MS_EVENT_PROXY_UNMAP, proxy);
            ms_state_release(pool);
        }
    }
}

uint64_t ms_proxies_sum(const struct ms_pool *pool, uint64_t *chunks_bytes)
{
    uint64_t obligation_bytes = 0;
    *chunks_bytes = 0;
    for (const struct ms_proxy *proxy = pool->proxies.first; proxy != NULL; proxy = proxy->next) {
        if (proxy->segment == NULL) {
            obligation_bytes += proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks);
            *chunks_bytes += ms_proxy_chunk_bytes(proxy->chunks);
        }
    }
    return obligation_bytes;
}

uint64_t ms_proxies_sum_fresh(const struct ms_pool *pool, uint64_t *bytes)
{
    uint64_t obligation_bytes = 0;
    *bytes = 0;
    for (const struct ms_proxy *proxy = pool->proxies.fresh; proxy != NULL;
         proxy = proxy->fresh_next) {
        obligation_bytes +=
            proxy->segment == NULL ? proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks) : 0;
        *bytes += proxy->bytes;
    }
    return obligation_bytes;
}
