/* SPDX-License-Identifier: Apache-2.0 */
/* Puts chunks behind addresses and takes them away: creation, mapping, access, and release. */
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/views.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

/* The largest chunk that is made, in granules: 32 MiB where the granule is 2 MiB. A chunk costs
 * some 230 us whatever its size, so large requests want few; but it cannot be split, so that
 * whatever stays live in it keeps all of it. */
enum { LARGEST_CHUNK_GRANULES = 16 };

/* Chunks are large up to this part of the cap only: what is large now cannot be split when memory
 * is short. The overhead ratio of the eleven recorded jobs (memshim replay --min-cap, traces of
 * tests/traces), at worst and on the median:
 *
 *     part of the cap     native            tensor
 *     1/2                 1.029   1.0087    1.036   1.0111
 *     1/8                 1.025   1.0043    1.018   1.0059
 *     1/16                1.014   1.0043    1.009   1.0050
 *     1/32                1.014   1.0027    1.007   1.0047
 *     none                1.014   1.0027    1.007   1.0047
 *
 * A program that fills a device of 80 GB pays some 9 seconds for its small ones, once. */
enum { LARGE_CHUNKS_PART = 32 };

void ms_backing_spilled_less(struct ms_pool *pool, uint64_t bytes)
{
    pool->count.spill.spilled_bytes -= bytes;
    if (pool->config.spill_budget != NULL) {
        ms_budget_discharge(pool->config.spill_budget, MS_OWNER_POOL, bytes);
    }
}

void ms_backing_spilled_again(struct ms_pool *pool, uint64_t bytes)
{
    pool->count.spill.spilled_bytes += bytes;
    if (pool->config.spill_budget != NULL) {
        ms_budget_impose(pool->config.spill_budget, MS_OWNER_POOL, bytes);
    }
}

static void count_host(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
    MS_REQUIRES(ms_state_role)
{
    struct ms_pool_counters *count = &pool->count;
    uint64_t bytes = chunk->bytes;
    switch (kind) {
    case MS_EVENT_CHUNK_CREATE:
        count->host_reserve_bytes += bytes;
        break;
    case MS_EVENT_CHUNK_RELEASE:
        count->host_reserve_bytes -= bytes;
        break;
    case MS_EVENT_MAP:
        count->host_reserve_bytes -= bytes;
        count->host_backed_bytes += bytes;
        if (count->peak_host_backed_bytes < count->host_backed_bytes) {
            count->peak_host_backed_bytes = count->host_backed_bytes;
        }
        break;
    default:
        count->host_backed_bytes -= bytes;
        count->host_reserve_bytes += bytes;
        ms_backing_spilled_less(pool, chunk->spilled ? bytes : 0);
        chunk->spilled = false;
        break;
    }
}

/* What a chunk event says, told and counted when it has taken effect. State lock. */
static void emit_locked(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
    MS_REQUIRES(ms_state_role)
{
    struct ms_event event = {
        .kind = (uint8_t)kind, .owner = MS_OWNER_POOL, .id = chunk->handle, .bytes = chunk->bytes};
    uint64_t device_bytes = chunk->host ? 0 : chunk->bytes;
    if (kind == MS_EVENT_MAP || kind == MS_EVENT_UNMAP) {
        event.addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    } else {
        event.aux = chunk->host ? MS_LOCATION_HOST : MS_LOCATION_DEVICE;
    }
    switch (kind) {
    case MS_EVENT_CHUNK_CREATE:
        pool->count.chunks_created++;
        pool->count.reserved_bytes += device_bytes;
        break;
    case MS_EVENT_CHUNK_RELEASE:
        pool->count.chunks_released++;
        pool->count.reserved_bytes -= device_bytes;
        break;
    case MS_EVENT_MAP:
        pool->count.maps++;
        pool->count.chunks_moved += chunk->was_mapped ? 1 : 0;
        chunk->was_mapped = true;
        break;
    default:
        pool->count.unmaps++;
        break;
    }
    if (chunk->host) {
        count_host(pool, kind, chunk);
    }
    ms_pool_emit(pool, &event);
}

static void tell(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
{
    ms_state_acquire(pool);
    emit_locked(pool, kind, chunk);
    ms_state_release(pool);
}

/* ---- chunks and spares */

bool ms_backing_ample(const struct ms_pool *pool, uint64_t bytes)
{
    uint64_t limit = ms_budget_limit_bytes(pool->config.budget) / LARGE_CHUNKS_PART;
    uint64_t charged = atomic_load(&pool->config.budget->charged_bytes);
    return charged <= limit && bytes <= limit - charged;
}

ms_status_t ms_backing_chunk_make(struct ms_pool *pool, uint64_t bytes, bool birth,
                                  const void *properties, struct ms_chunk **out)
{
    struct ms_chunk *chunk = ms_slab_take(&pool->chunk_slab);
    if (chunk == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *chunk = (struct ms_chunk){.bytes = bytes};
    if (!ms_obligations_charge(pool, bytes, birth)) {
        ms_slab_give(&pool->chunk_slab, chunk);
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = pool->ops->chunk_create(pool->ops->ctx, bytes, MS_LOCATION_DEVICE,
                                                 properties, &chunk->handle);
    if (status != MS_OK) {
        ms_obligations_discharge(pool, bytes);
        ms_slab_give(&pool->chunk_slab, chunk);
        if (status == MS_ERR_NO_MEMORY) {
            ms_device_room_refused(pool, bytes);
        }
        return status;
    }
    pool->strange_refusals = 0;
    tell(pool, MS_EVENT_CHUNK_CREATE, chunk);
    *out = chunk;
    return MS_OK;
}

void ms_backing_add_spare(struct ms_pool *pool, struct ms_chunk *chunk)
{
    struct ms_chunk **list = chunk->host ? &pool->obligations.reserve : &pool->spares;
    chunk->segment = NULL;
    chunk->returns = 0;
    chunk->promoted = 0;
    chunk->next = *list;
    *list = chunk;
    if (!chunk->host && chunk->bytes > pool->spare_most_bytes) {
        pool->spare_most_bytes = chunk->bytes;
    }
}

void ms_backing_add_spares(struct ms_pool *pool, struct ms_chunk *list)
{
    while (list != NULL) {
        struct ms_chunk *chunk = list;
        list = list->next;
        ms_backing_add_spare(pool, chunk);
    }
}

/* Releases the first chunk of the list; false: the device would not. */
static bool release_first(struct ms_pool *pool, struct ms_chunk **list) MS_REQUIRES(ms_growth_role)
{
    struct ms_chunk *chunk = *list;
    if (pool->ops->chunk_release(pool->ops->ctx, chunk->handle) != MS_OK) {
        return false;
    }
    *list = chunk->next;
    tell(pool, MS_EVENT_CHUNK_RELEASE, chunk);
    if (!chunk->host) {
        ms_obligations_discharge(pool, chunk->bytes);
    }
    ms_slab_give(&pool->chunk_slab, chunk);
    return true;
}

uint64_t ms_backing_release_spares(struct ms_pool *pool)
{
    uint64_t released_bytes = 0;
    struct ms_chunk **link = &pool->spares;
    while (*link != NULL) {
        uint64_t bytes = (*link)->bytes;
        if (release_first(pool, link)) {
            released_bytes += bytes;
        } else {
            link = &(*link)->next; /* still there and still charged: the next time */
        }
    }
    return released_bytes;
}

ms_status_t ms_backing_host_make(struct ms_pool *pool)
{
    struct ms_chunk *chunk = ms_slab_take(&pool->chunk_slab);
    if (chunk == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *chunk = (struct ms_chunk){.bytes = pool->granule_bytes, .host = true};
    ms_status_t status = pool->ops->chunk_create(pool->ops->ctx, chunk->bytes, MS_LOCATION_HOST,
                                                 NULL, &chunk->handle);
    if (status != MS_OK) {
        ms_slab_give(&pool->chunk_slab, chunk);
        return status;
    }
    tell(pool, MS_EVENT_CHUNK_CREATE, chunk);
    ms_backing_add_spare(pool, chunk);
    return MS_OK;
}

void ms_backing_host_release(struct ms_pool *pool, uint64_t keep_bytes)
{
    while (pool->obligations.reserve != NULL && pool->count.host_reserve_bytes > keep_bytes) {
        if (!release_first(pool, &pool->obligations.reserve)) {
            return;
        }
    }
}

/* The largest spare of at most `bytes`, taken from the list; null where there is none. A request of
 * a whole device takes tens of thousands, one by one: the first that is as large as any can be ends
 * the search. */
static struct ms_chunk *take_spare(struct ms_pool *pool, uint64_t bytes)
{
    uint64_t most_bytes = bytes < pool->spare_most_bytes ? bytes : pool->spare_most_bytes;
    struct ms_chunk **best = NULL;
    for (struct ms_chunk **link = &pool->spares; *link != NULL; link = &(*link)->next) {
        if ((*link)->bytes <= bytes && (best == NULL || (*link)->bytes > (*best)->bytes)) {
            best = link;
        }
        if (best != NULL && (*best)->bytes == most_bytes) {
            break;
        }
    }
    if (bytes >= pool->spare_most_bytes) {
        pool->spare_most_bytes = best != NULL ? (*best)->bytes : 0;
    }
    if (best == NULL) {
        return NULL;
    }
    struct ms_chunk *chunk = *best;
    *best = chunk->next;
    return chunk;
}

ms_status_t ms_backing_host_take(struct ms_pool *pool, struct ms_chunk **out)
{
    *out = pool->obligations.reserve;
    if (*out == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    pool->obligations.reserve = (*out)->next;
    return MS_OK;
}

/* As many granules at once as are worth it. */
static uint64_t granules_at_once(const struct ms_pool *pool, uint64_t bytes, bool large)
{
    uint64_t granules = large ? bytes / pool->granule_bytes : 1;
    granules = granules > LARGEST_CHUNK_GRANULES ? LARGEST_CHUNK_GRANULES : granules;
    return ms_backing_ample(pool, granules * pool->granule_bytes) ? granules : 1;
}

/* A chunk of at most `bytes`, smaller where budget or device have no room for a large one. */
static ms_status_t device_chunk_get(struct ms_pool *pool, uint64_t bytes,
                                    const struct ms_fill *fill, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role)
{
    *out = take_spare(pool, bytes);
    if (*out != NULL) {
        return MS_OK;
    }
    uint64_t granules = granules_at_once(pool, bytes, fill->large);
    for (;;) {
        ms_status_t status =
            ms_backing_chunk_make(pool, granules * pool->granule_bytes, fill->birth, NULL, out);
        if (status != MS_ERR_NO_MEMORY) {
            return status;
        }
        if (granules == 1) {
            /* Spares too large for this place still hold budget and device memory. */
            if (ms_backing_release_spares(pool) == 0) {
                return MS_ERR_NO_MEMORY;
            }
            continue;
        }
        granules /= 2;
    }
}

static ms_status_t chunk_get(struct ms_pool *pool, uint64_t bytes, const struct ms_fill *fill,
                             struct ms_chunk **out) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = device_chunk_get(pool, bytes, fill, out);
    return status != MS_OK && fill->host ? ms_backing_host_take(pool, out) : status;
}

/* ---- filling */

ms_status_t ms_backing_give_access(struct ms_pool *pool, const struct ms_segment *segment,
                                   uint64_t from, uint64_t to)
{
    ms_addr_t addr = segment->base + from * pool->granule_bytes;
    uint64_t bytes = (to - from) * pool->granule_bytes;
    ms_status_t status = pool->ops->set_access(pool->ops->ctx, addr, bytes);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        pool->count.set_accesses++;
        ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_SET_ACCESS,
                                              .owner = MS_OWNER_POOL,
                                              .addr = addr,
                                              .bytes = bytes});
        ms_state_release(pool);
    }
    return status;
}

static void set_slots(struct ms_pool *pool, struct ms_chunk *chunk, struct ms_chunk *value)
{
    uint64_t count = chunk->segment->plain ? 1 : chunk->bytes / pool->granule_bytes;
    ms_state_acquire(pool);
    for (uint64_t k = 0; k < count; k++) {
        chunk->segment->slots[chunk->slot + k] = value;
    }
    ms_granules_place(pool, chunk->segment, chunk->slot, chunk->slot + count, value);
    ms_state_release(pool);
}

void ms_backing_clear(struct ms_pool *pool, struct ms_chunk *chunk)
{
    set_slots(pool, chunk, NULL);
}

void ms_backing_stick(struct ms_pool *pool, struct ms_chunk *chunk)
{
    uint64_t end = chunk->slot + chunk->bytes / pool->granule_bytes;
    ms_state_acquire(pool);
    chunk->stuck = true;
    ms_granules_place(pool, chunk->segment, chunk->slot, end, chunk);
    ms_state_release(pool);
}

void ms_backing_record_unmap(struct ms_pool *pool, struct ms_chunk *chunk)
{
    tell(pool, MS_EVENT_UNMAP, chunk);
}

ms_status_t ms_backing_map(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                           struct ms_chunk *chunk)
{
    ms_addr_t addr = segment->base + slot * pool->granule_bytes;
    ms_status_t status = pool->ops->map(pool->ops->ctx, addr, chunk->bytes, chunk->handle);
    if (status != MS_OK) {
        return status;
    }
    chunk->segment = segment;
    chunk->slot = slot;
    tell(pool, MS_EVENT_MAP, chunk);
    set_slots(pool, chunk, chunk);
    return MS_OK;
}

ms_status_t ms_backing_unmap(struct ms_pool *pool, struct ms_chunk *const *chunks, size_t count)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < count; at++) {
        bytes += chunks[at]->bytes;
    }
    ms_addr_t addr = chunks[0]->segment->base + chunks[0]->slot * pool->granule_bytes;
    ms_status_t status = pool->ops->unmap(pool->ops->ctx, addr, bytes);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        for (size_t at = 0; at < count; at++) {
            emit_locked(pool, MS_EVENT_UNMAP, chunks[at]);
        }
        ms_state_release(pool);
    }
    return status;
}

static void undo_fill(struct ms_pool *pool, struct ms_chunk *done) MS_REQUIRES(ms_growth_role)
{
    bool stuck = false;
    while (done != NULL) {
        struct ms_chunk *chunk = done;
        done = chunk->next;
        if (ms_backing_unmap(pool, &chunk, 1) != MS_OK) {
            ms_backing_stick(pool, chunk);
            stuck = true;
            continue;
        }
        set_slots(pool, chunk, NULL);
        ms_backing_add_spare(pool, chunk);
    }
    (void)ms_backing_release_spares(pool);
    if (stuck) {
        ms_obligations_cover(pool); /* it may have been made with what was promised to a hole */
    }
}

/* Fills the slots [from, to), all of them empty; chunks go onto *done as they are mapped. */
static ms_status_t fill_gap(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                            uint64_t to, const struct ms_fill *fill, struct ms_chunk **done)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t slot = from;
    while (slot < to) {
        struct ms_chunk *chunk = NULL;
        ms_status_t status = chunk_get(pool, (to - slot) * pool->granule_bytes, fill, &chunk);
        if (status != MS_OK) {
            return status;
        }
        status = ms_backing_map(pool, segment, slot, chunk);
        if (status != MS_OK) {
            ms_backing_add_spare(pool, chunk);
            return status;
        }
        chunk->next = *done;
        *done = chunk;
        slot += chunk->bytes / pool->granule_bytes;
    }
    return ms_backing_give_access(pool, segment, from, to);
}

ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large)
{
    struct ms_segment *segment = range->segment;
    struct ms_fill fill = {.large = large};
    uint64_t first = (range->addr - segment->base) / pool->granule_bytes;
    uint64_t last = (range->addr + range->bytes - 1 - segment->base) / pool->granule_bytes;
    struct ms_chunk *done = NULL;
    uint64_t slot = first;
    while (slot <= last) {
        if (segment->slots[slot] != NULL) {
            slot++;
            continue;
        }
        uint64_t to = slot;
        while (to <= last && segment->slots[to] == NULL) {
            to++;
        }
        ms_status_t status = fill_gap(pool, segment, slot, to, &fill, &done);
        if (status != MS_OK) {
            undo_fill(pool, done);
            return status;
        }
        slot = to;
    }
    return MS_OK;
}

ms_status_t ms_backing_unstick(struct ms_pool *pool, struct ms_chunk *chunk)
{
    ms_status_t status = ms_backing_unmap(pool, &chunk, 1);
    if (status == MS_OK) {
        chunk->stuck = false;
        set_slots(pool, chunk, NULL);
        ms_backing_add_spare(pool, chunk);
    }
    return status;
}

static ms_status_t fill_hole(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                             uint64_t to, const struct ms_fill *fill) MS_REQUIRES(ms_growth_role)
{
    for (uint64_t slot = from; slot < to; slot++) {
        if (segment->slots[slot] != NULL) {
            ms_status_t status = ms_backing_unstick(pool, segment->slots[slot]);
            if (status != MS_OK) {
                return status;
            }
        }
    }
    struct ms_chunk *done = NULL;
    ms_status_t status = fill_gap(pool, segment, from, to, fill, &done);
    if (status != MS_OK) {
        undo_fill(pool, done);
        return status;
    }
    uint64_t chunks = 0;
    for (; done != NULL; done = done->next) {
        chunks++;
    }
    ms_state_acquire(pool);
    pool->count.holes_backed += chunks;
    ms_granules_backed(pool, segment, from, to);
    ms_state_release(pool);
    return MS_OK;
}

/* No chunk may reach from one proxy into the next: each is unmapped by itself. */
static bool one_owner(const struct ms_segment *segment, uint64_t a, uint64_t b)
{
    return segment->proxies == NULL || segment->proxies[a] == segment->proxies[b];
}

ms_status_t ms_backing_fill_holes(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to, const struct ms_fill *fill)
{
    ms_status_t status = MS_OK;
    uint64_t slot = from;
    /* Only with the growth lock, which is ours, do granules get or lose their backing. */
    while (segment->granules != NULL && slot < to && status == MS_OK) {
        if (!segment->granules[slot].unbacked) {
            slot++;
            continue;
        }
        uint64_t end = slot + 1;
        while (end < to && segment->granules[end].unbacked && one_owner(segment, slot, end)) {
            end++;
        }
        status = fill_hole(pool, segment, slot, end, fill);
        slot = end;
    }
    return status;
}

void ms_backing_lose(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                     struct ms_chunk *stuck)
{
    ms_state_acquire(pool);
    segment->slots[slot] = stuck;
    ms_granules_place(pool, segment, slot, slot + 1, NULL);
    struct ms_granule *granule = segment->granules != NULL ? &segment->granules[slot] : NULL;
    bool arena = granule != NULL && granule->arena != NULL;
    if (arena && !granule->unbacked) {
        ms_granules_unbacked(pool, segment, slot, slot + 1);
        granule->refused = granule->tensors > 0;
    }
    if (!arena || granule->tensors > 0) {
        pool->count.spill.lost_bytes += pool->granule_bytes;
        ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_LOST,
                                              .owner = MS_OWNER_POOL,
                                              .addr = segment->base + slot * pool->granule_bytes,
                                              .bytes = pool->granule_bytes});
    }
    ms_state_release(pool);
    ms_obligations_cover(pool);
}

static bool accessible(const struct ms_chunk *chunk)
{
    return chunk != NULL && !chunk->stuck;
}

ms_status_t ms_backing_refresh_access(struct ms_pool *pool)
{
    ms_status_t status = MS_OK;
    for (size_t at = 0; at < pool->segment_count; at++) {
        struct ms_segment *segment = pool->segments[at];
        uint64_t slot = 0;
        while (!segment->plain && slot < segment->slot_count) {
            uint64_t from = slot;
            while (slot < segment->slot_count && accessible(segment->slots[slot])) {
                slot++;
            }
            ms_status_t one =
                slot == from ? MS_OK : ms_backing_give_access(pool, segment, from, slot);
            status = status == MS_OK ? one : status;
            slot += slot == from ? 1 : 0;
        }
    }
    return status;
}

/* ---- taking chunks out of idle ranges */

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
            /* The tail of a chunk that begins before the range. */
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

static uint64_t count_idle(struct ms_pool *pool, uint64_t enough_bytes)
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
    uint64_t found_bytes = count_idle(pool, enough_bytes);
    bool more = found_bytes < enough_bytes && ms_views_return(pool);
    return more ? count_idle(pool, enough_bytes) : found_bytes;
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
        tell(pool, MS_EVENT_UNMAP, chunk);
        set_slots(pool, chunk, NULL);
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
    /* Smallest ranges first: they are the least useful as they are. What is left of a range sorts
     * before it, so going on behind the last one looked at visits each only once. */
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

/* ---- the end */

static void drop_chunk(struct ms_pool *pool, struct ms_chunk *chunk)
{
    tell(pool, MS_EVENT_CHUNK_RELEASE, chunk);
    if (!chunk->host) {
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, chunk->bytes);
    }
}

static void drop_segment(struct ms_pool *pool, struct ms_segment *segment, bool device_gone)
{
    const struct ms_device_ops *ops = pool->ops;
    for (uint64_t slot = 0; slot < segment->slot_count; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        if (chunk == NULL || chunk->slot != slot) {
            continue;
        }
        /* Nobody is left who could act upon a failure: the books are closed either way. */
        if (!device_gone && segment->plain) {
            (void)ops->plain_free(ops->ctx, segment->base);
        } else if (!device_gone) {
            (void)ops->unmap(ops->ctx, segment->base + slot * pool->granule_bytes, chunk->bytes);
        }
        tell(pool, MS_EVENT_UNMAP, chunk);
        if (chunk->twin != NULL) {
            chunk->twin->twin = NULL; /* the last mapping takes the chunk along */
            continue;
        }
        if (!device_gone && !segment->plain) {
            (void)ops->chunk_release(ops->ctx, chunk->handle);
        }
        drop_chunk(pool, chunk);
    }
    if (!segment->plain && segment->foreign == NULL) {
        if (!device_gone) {
            (void)ops->address_free(ops->ctx, segment->base, segment->bytes);
        }
        ms_state_acquire(pool);
        ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_RANGE_FREE,
                                              .owner = MS_OWNER_POOL,
                                              .addr = segment->base,
                                              .bytes = segment->bytes});
        ms_state_release(pool);
    }
}

void ms_backing_drop_list(struct ms_pool *pool, struct ms_chunk *list, bool device_gone)
{
    for (; list != NULL; list = list->next) {
        if (!device_gone) {
            (void)pool->ops->chunk_release(pool->ops->ctx, list->handle);
        }
        drop_chunk(pool, list);
    }
}

void ms_backing_drop_all(struct ms_pool *pool, bool device_gone)
{
    ms_backing_drop_list(pool, pool->spares, device_gone);
    ms_backing_drop_list(pool, pool->obligations.reserve, device_gone);
    for (size_t at = 0; at < pool->segment_count; at++) {
        drop_segment(pool, pool->segments[at], device_gone);
    }
    ms_budget_unpromise(pool->config.budget, pool->obligations.promised_bytes);
}
