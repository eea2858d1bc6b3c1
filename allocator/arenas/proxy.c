/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a framework that maps memory by itself: see proxy.h.
 *
 * A framework's reservation is a segment too, a foreign one: all of it is one range that no block
 * may have, and one arena. Its slots belong to the proxies mapped there; what stands behind them
 * lies in the slots as everywhere, so holes.c takes and backs their granules as it does a block's.
 * While a proxy is mapped nowhere it keeps its chunks itself, and what it lacks is owed to it all
 * the same. */

#include <pthread.h>

#include "allocator/arenas/arenas.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/page_room.h"
#include "allocator/arenas/proxies.h"
#include "allocator/arenas/proxy.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/ids.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

struct ms_proxy {
    uint64_t id;
    uint64_t bytes;
    struct ms_segment *segment;   /* where it is mapped; null: nowhere */
    uint64_t slot;                /* its first slot there */
    struct ms_chunk *chunks;      /* while mapped nowhere; chunk->slot counts from its beginning */
    struct ms_proxy *prev, *next; /* of all there are */
    unsigned references;
    const void *properties; /* of a chunk for all of it */
    bool pinned;

    /* Of a request under way: see ms_proxies_tensor_allocated. State lock. */
    bool fresh;
    pthread_t maker;
    struct ms_proxy *fresh_prev, *fresh_next;
};

static uint64_t slots_of(const struct ms_pool *pool, const struct ms_proxy *proxy)
{
    return proxy->bytes / pool->granule_bytes;
}

static ms_addr_t addr_of(const struct ms_pool *pool, const struct ms_proxy *proxy)
{
    return proxy->segment->base + proxy->slot * pool->granule_bytes;
}

static uint64_t chunk_bytes(const struct ms_chunk *chunk)
{
    uint64_t bytes = 0;
    for (; chunk != NULL; chunk = chunk->next) {
        bytes += chunk->bytes;
    }
    return bytes;
}

/* What is not backed of a proxy that is mapped nowhere is owed to it. State lock. */
static void owe_locked(struct ms_pool *pool, const struct ms_proxy *proxy, uint64_t more_bytes,
                       uint64_t fewer_bytes) MS_REQUIRES(ms_state_role)
{
    pool->count.obligation_bytes += more_bytes;
    pool->count.obligation_bytes -= fewer_bytes;
    if (proxy->fresh) {
        pool->count.fresh_unbacked_bytes += more_bytes;
        pool->count.fresh_unbacked_bytes -= fewer_bytes;
    }
}

static void owe(struct ms_pool *pool, const struct ms_proxy *proxy, uint64_t more_bytes,
                uint64_t fewer_bytes)
{
    ms_state_acquire(pool);
    owe_locked(pool, proxy, more_bytes, fewer_bytes);
    ms_state_release(pool);
}

/* ---- requests under way. State lock. */

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

static void fresh_no_more(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_state_role)
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
        ms_granules_fresh(pool, proxy->segment, proxy->slot, proxy->slot + slots_of(pool, proxy),
                          false);
    } else {
        pool->count.fresh_unbacked_bytes -= proxy->bytes - chunk_bytes(proxy->chunks);
    }
    proxy->fresh = false;
}

void ms_proxies_tensor_allocated(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
{
    pthread_t self = pthread_self();
    struct ms_proxy *next = NULL;
    for (struct ms_proxy *proxy = pool->proxies.fresh; proxy != NULL; proxy = next) {
        next = proxy->fresh_next;
        bool touched = proxy->segment != NULL && addr < addr_of(pool, proxy) + proxy->bytes &&
                       addr_of(pool, proxy) < addr + bytes;
        if (touched || pthread_equal(proxy->maker, self)) {
            fresh_no_more(pool, proxy);
        }
    }
}

void ms_proxy_request_over(ms_pool_t *pool)
{
    ms_state_acquire(pool);
    ms_proxies_tensor_allocated(pool, 0, 0);
    ms_state_release(pool);
}

/* The chunk, mapped nowhere now, stays the proxy's, which is mapped at `slot` no more. */
static void take_along(struct ms_proxy *proxy, struct ms_chunk *chunk, uint64_t slot)
{
    chunk->segment = NULL;
    chunk->slot -= slot;
    chunk->next = proxy->chunks;
    proxy->chunks = chunk;
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

/* Chunks for all of it, new ones; one while memory is ample. */
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

/* Nothing stands behind it yet, or all of it. */
static ms_status_t fill_new(struct ms_pool *pool, struct ms_proxy *proxy, const void *properties,
                            bool may_wait) MS_REQUIRES(ms_growth_role)
{
    enum ms_room room = MS_ROOM_AT_ONCE;
    ms_status_t status = ms_room_for_page(pool, proxy->bytes, may_wait, &room);
    if (status != MS_OK) {
        return status;
    }
    if (room == MS_ROOM_PROMISED) {
        owe(pool, proxy, proxy->bytes, 0);
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
        *proxy = (struct ms_proxy){.bytes = bytes, .references = 1, .properties = properties};
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
        pool->count.fresh_unbacked_bytes += proxy->bytes - chunk_bytes(proxy->chunks);
        ms_state_release(pool);
    } else if (proxy != NULL) {
        ms_slab_give(&pool->proxies.slab, proxy);
    }
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return status;
}

/* ---- the framework's reservations */

static ms_status_t foreign_add(struct ms_pool *pool, ms_addr_t base, uint64_t bytes,
                               struct ms_segment **out) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    uint64_t slots = bytes / pool->granule_bytes;
    struct ms_arena *arena = ms_slab_take(&pool->arena_slab);
    struct ms_proxy **proxies = ms_pages_map(ms_pointers_bytes(slots));
    struct ms_segment *segment = NULL;
    ms_status_t status = MS_ERR_NO_MEMORY;
    if (arena != NULL && proxies != NULL) {
        status = ms_segment_add(pool, base, bytes, false, &segment);
    }
    if (status == MS_OK && !ms_granules_need(pool, segment)) {
        ms_segment_remove(pool, segment);
        status = MS_ERR_NO_MEMORY;
    }
    if (status == MS_OK) {
        *arena = (struct ms_arena){.addr = base, .bytes = bytes};
        segment->foreign = arena;
        segment->proxies = proxies;
        segment->first->state = MS_RANGE_FOREIGN;
        *out = segment;
        return MS_OK;
    }
    if (arena != NULL) {
        ms_slab_give(&pool->arena_slab, arena);
    }
    if (proxies != NULL) {
        ms_pages_unmap(proxies, ms_pointers_bytes(slots));
    }
    return status;
}

/* The reservation that all of [addr, addr + bytes) lies in; null where there is none. */
static struct ms_segment *foreign_of(const struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
{
    struct ms_segment *segment = ms_segment_of(pool, addr);
    bool inside = segment != NULL && segment->foreign != NULL &&
                  bytes <= segment->bytes - (addr - segment->base);
    return inside ? segment : NULL;
}

static ms_status_t foreign_need(struct ms_pool *pool, ms_addr_t base, uint64_t bytes,
                                struct ms_segment **out) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    ms_state_acquire(pool);
    *out = ms_segment_of(pool, base);
    if (*out == NULL) {
        status = foreign_add(pool, base, bytes, out);
    } else if ((*out)->foreign == NULL || (*out)->base != base || (*out)->bytes != bytes) {
        status = MS_ERR_INVALID;
    }
    ms_state_release(pool);
    return status;
}

void ms_arenas_leave_segment(struct ms_pool *pool, struct ms_segment *segment)
{
    if (pool->arenas != NULL) {
        ms_arenas_segment_gone(pool->arenas, segment);
    }
    if (segment->foreign != NULL) {
        ms_slab_give(&pool->arena_slab, segment->foreign);
        ms_pages_unmap(segment->proxies, ms_pointers_bytes(segment->slot_count));
        segment->foreign = NULL;
        segment->proxies = NULL;
    }
    ms_granules_drop(pool, segment);
}

/* What an earlier mapping could not take off its addresses again leaves them now. */
static ms_status_t clear_stuck(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                               uint64_t slots) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    for (uint64_t k = slot; k < slot + slots && status == MS_OK; k++) {
        struct ms_chunk *chunk = segment->slots[k];
        if (chunk != NULL && chunk->stuck && segment->proxies[k] == NULL) {
            status = ms_backing_unstick(pool, chunk);
        }
    }
    return status;
}

void ms_proxy_reservation_gone(ms_pool_t *pool, ms_addr_t base)
{
    ms_growth_acquire(pool);
    struct ms_segment *segment = ms_segment_of(pool, base);
    bool ours = segment != NULL && segment->foreign != NULL && segment->base == base;
    for (uint64_t slot = 0; ours && slot < segment->slot_count; slot++) {
        ours = segment->proxies[slot] == NULL;
    }
    /* What stays mapped keeps the device from giving the addresses back, and us from forgetting. */
    ours = ours && clear_stuck(pool, segment, 0, segment->slot_count) == MS_OK;
    (void)ms_backing_release_spares(pool);
    ms_state_acquire(pool);
    if (ours) {
        if (pool->arenas != NULL) {
            ms_arenas_bury(pool->arenas, base, segment->bytes);
        }
        ms_arenas_leave_segment(pool, segment);
        ms_segment_remove(pool, segment);
    }
    ms_state_release(pool);
    ms_growth_release(pool);
}

/* ---- mapping */

static void tell(struct ms_pool *pool, enum ms_event_kind kind, const struct ms_proxy *proxy)
    MS_REQUIRES(ms_state_role)
{
    ms_pool_emit(pool, &(struct ms_event){
                           .kind = (uint8_t)kind,
                           .owner = MS_OWNER_POOL,
                           .id = proxy->id,
                           .addr = addr_of(pool, proxy),
                           .bytes = proxy->bytes,
                           .aux = kind == MS_EVENT_PROXY_MAP ? proxy->segment->base : 0,
                       });
}

/* The slots become the proxy's. State lock. */
static void settle_in(struct ms_pool *pool, struct ms_proxy *proxy, struct ms_segment *segment,
                      uint64_t slot) MS_REQUIRES(ms_state_role)
{
    uint64_t end = slot + slots_of(pool, proxy);
    proxy->segment = segment;
    proxy->slot = slot;
    for (uint64_t k = slot; k < end; k++) {
        segment->proxies[k] = proxy;
    }
    if (segment->foreign->reach_bytes < end * pool->granule_bytes) {
        segment->foreign->reach_bytes = end * pool->granule_bytes;
    }
    ms_granules_enter(pool, segment, slot, end, segment->foreign, proxy->pinned);
    if (proxy->fresh) {
        ms_granules_fresh(pool, segment, slot, end, true);
    }
}

static void move_out(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_state_role)
{
    struct ms_segment *segment = proxy->segment;
    uint64_t end = proxy->slot + slots_of(pool, proxy);
    ms_granules_leave(pool, segment, proxy->slot, end);
    for (uint64_t k = proxy->slot; k < end; k++) {
        segment->proxies[k] = NULL;
    }
    proxy->segment = NULL;
}

/* Takes back what has been mapped of it: chunks that lie in slots return to its list. */
static void undo_map(struct ms_pool *pool, uint64_t slot, struct ms_proxy *proxy,
                     struct ms_chunk *mapped) MS_REQUIRES(ms_growth_role)
{
    while (mapped != NULL) {
        struct ms_chunk *chunk = mapped;
        mapped = chunk->next;
        if (ms_backing_unmap(pool, &chunk, 1) != MS_OK) {
            /* It is lost with its addresses, as any stuck chunk; so it is owed from now on. */
            ms_backing_stick(pool, chunk);
            owe(pool, proxy, chunk->bytes, 0);
            ms_obligations_cover(pool);
            continue;
        }
        ms_backing_clear(pool, chunk);
        take_along(proxy, chunk, slot);
    }
}

static ms_status_t map_chunks(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                              struct ms_proxy *proxy) MS_REQUIRES(ms_growth_role)
{
    struct ms_chunk *mapped = NULL;
    while (proxy->chunks != NULL) {
        struct ms_chunk *chunk = proxy->chunks;
        struct ms_chunk *next = chunk->next;
        ms_status_t status = ms_backing_map(pool, segment, slot + chunk->slot, chunk);
        if (status != MS_OK) {
            undo_map(pool, slot, proxy, mapped);
            return status;
        }
        proxy->chunks = next;
        chunk->next = mapped;
        mapped = chunk;
    }
    return MS_OK;
}

static bool vacant(const struct ms_segment *segment, uint64_t slot, uint64_t slots)
{
    for (uint64_t k = slot; k < slot + slots; k++) {
        if (segment->proxies[k] != NULL || segment->slots[k] != NULL) {
            return false;
        }
    }
    return true;
}

static ms_status_t map_at(struct ms_pool *pool, struct ms_proxy *proxy, ms_addr_t addr,
                          struct ms_segment *segment) MS_REQUIRES(ms_growth_role)
{
    uint64_t slot = (addr - segment->base) / pool->granule_bytes;
    ms_status_t status = clear_stuck(pool, segment, slot, slots_of(pool, proxy));
    if (status != MS_OK) {
        return status;
    }
    (void)ms_backing_release_spares(pool);
    if (proxy->segment != NULL || !vacant(segment, slot, slots_of(pool, proxy))) {
        return MS_ERR_INVALID;
    }
    uint64_t unbacked_bytes = proxy->bytes - chunk_bytes(proxy->chunks);
    status = map_chunks(pool, segment, slot, proxy);
    if (status != MS_OK) {
        return status;
    }
    ms_state_acquire(pool);
    owe_locked(pool, proxy, 0, unbacked_bytes);
    settle_in(pool, proxy, segment, slot);
    tell(pool, MS_EVENT_PROXY_MAP, proxy);
    ms_state_release(pool);
    return MS_OK;
}

ms_status_t ms_proxy_map(ms_pool_t *pool, ms_proxy_t *proxy, ms_addr_t addr, ms_addr_t base,
                         uint64_t reserved_bytes)
{
    uint64_t granule = pool->granule_bytes;
    if (base % granule != 0 || reserved_bytes % granule != 0 || addr % granule != 0 ||
        addr < base || addr - base > reserved_bytes ||
        proxy->bytes > reserved_bytes - (addr - base)) {
        return MS_ERR_INVALID;
    }
    struct ms_segment *segment = NULL;
    ms_growth_acquire(pool);
    ms_status_t status = foreign_need(pool, base, reserved_bytes, &segment);
    if (status == MS_OK) {
        status = map_at(pool, proxy, addr, segment);
    }
    if (status == MS_OK && ms_holes_frozen(pool)) {
        (void)ms_holes_back(pool, segment, proxy->slot, proxy->slot + slots_of(pool, proxy));
    }
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return status;
}

ms_status_t ms_proxy_access(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_growth_acquire(pool);
    struct ms_segment *segment = foreign_of(pool, addr, bytes);
    ms_status_t status = segment == NULL ? MS_ERR_NOT_OURS : MS_OK;
    uint64_t slot = segment == NULL ? 0 : (addr - segment->base) / pool->granule_bytes;
    uint64_t end = slot + bytes / pool->granule_bytes;
    for (uint64_t k = slot; k < end && status == MS_OK; k++) {
        status = segment->proxies[k] == NULL ? MS_ERR_INVALID : MS_OK;
    }
    while (slot < end && status == MS_OK) {
        uint64_t from = slot;
        while (slot < end && segment->slots[slot] != NULL && !segment->slots[slot]->stuck) {
            slot++;
        }
        if (slot > from) {
            status = ms_backing_give_access(pool, segment, from, slot);
        } else {
            slot++;
        }
    }
    ms_growth_release(pool);
    return status;
}

/* ---- unmapping */

/* The end of the run of neighbouring chunks that begins at `slot`. */
static uint64_t run_end(const struct ms_segment *segment, uint64_t slot, uint64_t end)
{
    while (slot < end && segment->slots[slot] != NULL) {
        slot++;
    }
    return slot;
}

static ms_status_t device_unmap(struct ms_pool *pool, const struct ms_segment *segment,
                                uint64_t from, uint64_t to)
{
    return pool->ops->unmap(pool->ops->ctx, segment->base + from * pool->granule_bytes,
                            (to - from) * pool->granule_bytes);
}

/* A call that undoes is made again so often before it is given up. */
enum { MAP_TRIES = 24 };

/* Maps the chunks of a run again that the device has unmapped; what it refuses to, again and again,
 * is a hole. */
static void map_again(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to)
    MS_REQUIRES(ms_growth_role)
{
    const struct ms_device_ops *ops = pool->ops;
    uint64_t slot = from;
    while (slot < to) {
        struct ms_chunk *chunk = segment->slots[slot];
        uint64_t next = slot + chunk->bytes / pool->granule_bytes;
        ms_addr_t addr = segment->base + slot * pool->granule_bytes;
        bool mapped = false;
        bool accessible = false;
        for (int tries = 0; tries < MAP_TRIES && !accessible; tries++) {
            mapped = mapped || ops->map(ops->ctx, addr, chunk->bytes, chunk->handle) == MS_OK;
            accessible = mapped && ops->set_access(ops->ctx, addr, chunk->bytes) == MS_OK;
        }
        chunk->stuck = mapped && !accessible;
        if (!mapped) {
            ms_backing_record(pool, MS_EVENT_UNMAP, chunk);
            ms_backing_clear(pool, chunk);
            ms_backing_add_spare(pool, chunk);
        }
        for (uint64_t k = slot; k < next && !accessible; k++) {
            ms_backing_lose(pool, segment, k, mapped ? chunk : NULL);
        }
        slot = next;
    }
}

/* Unmaps what stands in the slots; all of it stays where the device refuses a part. */
static ms_status_t unmap_slots(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                               uint64_t to) MS_REQUIRES(ms_growth_role)
{
    for (uint64_t slot = from; slot < to;) {
        uint64_t end = run_end(segment, slot, to);
        ms_status_t status = end > slot ? device_unmap(pool, segment, slot, end) : MS_OK;
        if (status != MS_OK) {
            for (uint64_t undone = from; undone < slot;) {
                uint64_t undone_end = run_end(segment, undone, slot);
                map_again(pool, segment, undone, undone_end);
                undone = undone_end + 1;
            }
            return status;
        }
        slot = end + 1;
    }
    return MS_OK;
}

/* The device has unmapped it: the proxy takes its chunks with it, or ends. */
static void leave(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_growth_role)
{
    struct ms_segment *segment = proxy->segment;
    uint64_t first = proxy->slot;
    uint64_t end = first + slots_of(pool, proxy);
    for (uint64_t slot = first; slot < end; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        if (chunk == NULL) {
            continue;
        }
        ms_backing_record(pool, MS_EVENT_UNMAP, chunk);
        ms_backing_clear(pool, chunk);
        chunk->stuck = false;
        if (chunk->host) {
            ms_backing_add_spare(pool, chunk);
        } else {
            take_along(proxy, chunk, first);
        }
    }
    ms_state_acquire(pool);
    tell(pool, MS_EVENT_PROXY_UNMAP, proxy);
    fresh_no_more(pool, proxy);
    move_out(pool, proxy);
    owe_locked(pool, proxy, proxy->bytes - chunk_bytes(proxy->chunks), 0);
    ms_state_release(pool);
}

/* Ends one that nobody refers to and that is mapped nowhere. */
static void end_if_unused(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_growth_role)
{
    if (proxy->references > 0 || proxy->segment != NULL) {
        return;
    }
    ms_state_acquire(pool);
    fresh_no_more(pool, proxy);
    owe_locked(pool, proxy, 0, proxy->bytes - chunk_bytes(proxy->chunks));
    ms_state_release(pool);
    give_chunks(pool, proxy);
    *(proxy->prev != NULL ? &proxy->prev->next : &pool->proxies.first) = proxy->next;
    if (proxy->next != NULL) {
        proxy->next->prev = proxy->prev;
    }
    ms_slab_give(&pool->proxies.slab, proxy);
}

/* Whether [addr, addr + bytes) is whole proxies. */
static ms_status_t whole_proxies(const struct ms_pool *pool, const struct ms_segment *segment,
                                 uint64_t slot, uint64_t end)
{
    if (slot == end || segment->proxies[slot] == NULL || segment->proxies[slot]->slot != slot) {
        return MS_ERR_NOT_OURS;
    }
    while (slot < end) {
        const struct ms_proxy *proxy = segment->proxies[slot];
        if (proxy == NULL || slot + slots_of(pool, proxy) > end) {
            return MS_ERR_INVALID;
        }
        slot += slots_of(pool, proxy);
    }
    return MS_OK;
}

static ms_status_t unmap_proxies(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_segment *segment = foreign_of(pool, addr, bytes);
    uint64_t granule = pool->granule_bytes;
    if (segment == NULL || (addr - segment->base) % granule != 0) {
        return MS_ERR_NOT_OURS;
    }
    uint64_t slot = (addr - segment->base) / granule;
    uint64_t end = slot + ms_round_up(bytes, granule) / granule;
    ms_status_t status = bytes % granule != 0 ? MS_ERR_INVALID : MS_OK;
    if (status == MS_OK) {
        status = whole_proxies(pool, segment, slot, end);
    }
    if (status == MS_OK) {
        status = unmap_slots(pool, segment, slot, end);
    }
    while (slot < end && status == MS_OK) {
        struct ms_proxy *proxy = segment->proxies[slot];
        slot += slots_of(pool, proxy);
        leave(pool, proxy);
        end_if_unused(pool, proxy);
    }
    return status;
}

ms_status_t ms_proxy_unmap(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_growth_acquire(pool);
    ms_status_t status = unmap_proxies(pool, addr, bytes);
    (void)ms_backing_release_spares(pool);
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return status;
}

/* ---- references, and what is known of one */

void ms_proxy_retain(ms_pool_t *pool, ms_proxy_t *proxy)
{
    ms_growth_acquire(pool);
    proxy->references++;
    ms_growth_release(pool);
}

void ms_proxy_release(ms_pool_t *pool, ms_proxy_t *proxy)
{
    ms_growth_acquire(pool);
    proxy->references--;
    end_if_unused(pool, proxy);
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
                                  .addr = proxy->segment != NULL ? addr_of(pool, proxy) : 0,
                                  .bytes = proxy->bytes,
                                  .chunk = one ? chunk->handle : 0,
                                  .pinned = proxy->pinned};
}

ms_status_t ms_proxy_at(ms_pool_t *pool, ms_addr_t addr, struct ms_proxy_info *out)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_state_acquire(pool);
    const struct ms_segment *segment = foreign_of(pool, addr, 0);
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

/* Where it is mapped. State lock. */
static void set_pinned(struct ms_pool *pool, struct ms_proxy *proxy, bool pinned)
    MS_REQUIRES(ms_state_role)
{
    proxy->pinned = pinned;
    if (proxy->segment != NULL) {
        ms_granules_pin(proxy->segment, proxy->slot, proxy->slot + slots_of(pool, proxy), pinned);
    }
}

static ms_status_t back_on_device(struct ms_pool *pool, struct ms_proxy *proxy)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t end = proxy->slot + slots_of(pool, proxy);
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

/* What lies on the host comes back first; what has no backing gets it with the new chunk. */
static ms_status_t make_whole(struct ms_pool *pool, const struct ms_proxy *proxy)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t end = proxy->slot + slots_of(pool, proxy);
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
        status = proxy->segment != NULL ? make_whole(pool, proxy) : MS_ERR_NOT_SUPPORTED;
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
            tell(pool, MS_EVENT_PROXY_UNMAP, proxy);
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
            obligation_bytes += proxy->bytes - chunk_bytes(proxy->chunks);
            *chunks_bytes += chunk_bytes(proxy->chunks);
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
        obligation_bytes += proxy->segment == NULL ? proxy->bytes - chunk_bytes(proxy->chunks) : 0;
        *bytes += proxy->bytes;
    }
    return obligation_bytes;
}
