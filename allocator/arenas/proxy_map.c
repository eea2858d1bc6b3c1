/* SPDX-License-Identifier: Apache-2.0 */
/* Maps and unmaps proxies in the framework's reservations, which are segments too, and moves their
 * chunks between proxy and slots. proxy.c has the plan. */

#include "allocator/arenas/arenas.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/page_room.h"
#include "allocator/arenas/proxies.h"
#include "allocator/arenas/proxy_state.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/containers/pages.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

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

struct ms_segment *ms_foreign_of(const struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
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

void ms_proxy_reserved(ms_pool_t *pool, ms_addr_t base, uint64_t reserved_bytes)
{
    struct ms_segment *segment = NULL;
    ms_growth_acquire(pool);
    (void)foreign_need(pool, base, reserved_bytes, &segment); /* or with the first page */
    ms_growth_release(pool);
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

/* Unmaps chunks that an earlier call could not unmap. */
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
    /* While something stays mapped, the device cannot give the addresses back, so keep the
     * segment. */
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

void ms_proxy_emit(struct ms_pool *pool, enum ms_event_kind kind, const struct ms_proxy *proxy)
{
    ms_pool_emit(pool, (struct ms_event){
                           .kind = (uint8_t)kind,
                           .owner = MS_OWNER_POOL,
                           .id = proxy->id,
                           .addr = ms_proxy_addr(pool, proxy),
                           .bytes = proxy->bytes,
                           .aux = kind == MS_EVENT_PROXY_MAP ? proxy->segment->base : 0,
                       });
}

/* Gives the slots to the proxy. State lock. */
static void settle_in(struct ms_pool *pool, struct ms_proxy *proxy, struct ms_segment *segment,
                      uint64_t slot) MS_REQUIRES(ms_state_role)
{
    uint64_t end = slot + ms_proxy_slots(pool, proxy);
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
    uint64_t end = proxy->slot + ms_proxy_slots(pool, proxy);
    ms_granules_leave(pool, segment, proxy->slot, end);
    for (uint64_t k = proxy->slot; k < end; k++) {
        segment->proxies[k] = NULL;
    }
    proxy->segment = NULL;
}

/* Gives the chunk, now mapped nowhere, to the proxy, which leaves `slot`. */
static void take_along(struct ms_proxy *proxy, struct ms_chunk *chunk, uint64_t slot)
{
    chunk->segment = NULL;
    chunk->slot -= slot;
    chunk->next = proxy->chunks;
    proxy->chunks = chunk;
}

/* Undoes a mapping: chunks in slots return to the proxy's list. */
static void undo_map(struct ms_pool *pool, uint64_t slot, struct ms_proxy *proxy,
                     struct ms_chunk *mapped) MS_REQUIRES(ms_growth_role)
{
    while (mapped != NULL) {
        struct ms_chunk *chunk = mapped;
        mapped = chunk->next;
        if (ms_backing_unmap(pool, &chunk, 1) != MS_OK) {
            /* It is lost with its addresses, as any stuck chunk, and an obligation from now on. */
            ms_backing_stick(pool, chunk);
            ms_state_acquire(pool);
            ms_proxy_oblige(pool, proxy, chunk->bytes, 0);
            ms_state_release(pool);
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
    ms_status_t status = clear_stuck(pool, segment, slot, ms_proxy_slots(pool, proxy));
    if (status != MS_OK) {
        return status;
    }
    (void)ms_backing_release_spares(pool);
    if (proxy->segment != NULL || !vacant(segment, slot, ms_proxy_slots(pool, proxy))) {
        return MS_ERR_INVALID;
    }
    uint64_t unbacked_bytes = proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks);
    status = map_chunks(pool, segment, slot, proxy);
    if (status != MS_OK) {
        return status;
    }
    ms_state_acquire(pool);
    ms_proxy_oblige(pool, proxy, 0, unbacked_bytes);
    settle_in(pool, proxy, segment, slot);
    ms_proxy_emit(pool, MS_EVENT_PROXY_MAP, proxy);
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
        (void)ms_holes_back(pool, segment, proxy->slot, proxy->slot + ms_proxy_slots(pool, proxy));
    }
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return status;
}

ms_status_t ms_proxy_access(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_growth_acquire(pool);
    struct ms_segment *segment = ms_foreign_of(pool, addr, bytes);
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

/* Tries of a call that undoes something. */
enum { MAP_TRIES = 24 };

/* Maps the chunks of a run again after the device unmapped them; gives up the slots of a chunk that
 * it keeps refusing. */
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

/* Unmaps the chunks of the slots; if the device refuses one, all stay mapped. */
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

/* Ends the proxy's mapping: it takes its chunks along, or ends. */
static void leave(struct ms_pool *pool, struct ms_proxy *proxy) MS_REQUIRES(ms_growth_role)
{
    struct ms_segment *segment = proxy->segment;
    uint64_t first = proxy->slot;
    uint64_t end = first + ms_proxy_slots(pool, proxy);
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
    ms_proxy_emit(pool, MS_EVENT_PROXY_UNMAP, proxy);
    ms_proxy_fresh_no_more(pool, proxy);
    move_out(pool, proxy);
    ms_proxy_oblige(pool, proxy, proxy->bytes - ms_proxy_chunk_bytes(proxy->chunks), 0);
    ms_state_release(pool);
}

/* Bytes of the slots on host chunks larger than a granule: these do not cover the obligations that
 * the proxies there will have. */
static uint64_t large_on_host(const struct ms_pool *pool, const struct ms_segment *segment,
                              uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;
    for (uint64_t slot = from; slot < to; slot++) {
        const struct ms_chunk *chunk = segment->slots[slot];
        if (chunk != NULL && chunk->host && chunk->slot == slot &&
            chunk->bytes > pool->granule_bytes && !segment->proxies[slot]->released) {
            bytes += chunk->bytes;
        }
    }
    return bytes;
}

/* Checks that [addr, addr + bytes) is whole proxies. */
static ms_status_t whole_proxies(const struct ms_pool *pool, const struct ms_segment *segment,
                                 uint64_t slot, uint64_t end)
{
    if (slot == end || segment->proxies[slot] == NULL || segment->proxies[slot]->slot != slot) {
        return MS_ERR_NOT_OURS;
    }
    while (slot < end) {
        const struct ms_proxy *proxy = segment->proxies[slot];
        if (proxy == NULL || slot + ms_proxy_slots(pool, proxy) > end) {
            return MS_ERR_INVALID;
        }
        slot += ms_proxy_slots(pool, proxy);
    }
    return MS_OK;
}

static ms_status_t unmap_proxies(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_segment *segment = ms_foreign_of(pool, addr, bytes);
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
        uint64_t large_bytes = large_on_host(pool, segment, slot, end);
        if (large_bytes > 0) {
            (void)ms_obligations_secure(pool, large_bytes, true); /* else the next settling does
                                                                     it */
        }
        status = unmap_slots(pool, segment, slot, end);
    }
    while (slot < end && status == MS_OK) {
        struct ms_proxy *proxy = segment->proxies[slot];
        slot += ms_proxy_slots(pool, proxy);
        leave(pool, proxy);
        ms_proxy_end_if_unused(pool, proxy);
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
