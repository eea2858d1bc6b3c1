#include "allocator/pool_internal.h"

/* The largest chunk that is made, in granules: 32 MiB where the granule is 2 MiB. A chunk costs
 * some 230 us whatever its size, so large requests want few; but it cannot be split, so that
 * whatever stays live in it keeps all of it. */
enum { LARGEST_CHUNK_GRANULES = 16 };

/* What a chunk event says, told and counted when it has taken effect. */
static void tell(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
{
    ms_lock_acquire(&pool->state);
    struct ms_event event = {
        .kind = (uint8_t)kind, .owner = MS_OWNER_POOL, .id = chunk->handle, .bytes = chunk->bytes};
    if (kind == MS_EVENT_MAP || kind == MS_EVENT_UNMAP) {
        event.addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    }
    switch (kind) {
    case MS_EVENT_CHUNK_CREATE:
        event.aux = MS_LOCATION_DEVICE;
        pool->count.chunks_created++;
        pool->count.reserved_bytes += chunk->bytes;
        break;
    case MS_EVENT_CHUNK_RELEASE:
        event.aux = MS_LOCATION_DEVICE;
        pool->count.chunks_released++;
        pool->count.reserved_bytes -= chunk->bytes;
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
    ms_pool_emit(pool, &event);
    ms_lock_release(&pool->state);
}

/* ---- chunks and spares */

static ms_status_t chunk_make(struct ms_pool *pool, uint64_t bytes, struct ms_chunk **out)
{
    struct ms_chunk *chunk = ms_slab_take(&pool->chunk_slab);
    if (chunk == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *chunk = (struct ms_chunk){.bytes = bytes};
    if (!ms_budget_charge(pool->config.budget, MS_OWNER_POOL, bytes)) {
        ms_slab_give(&pool->chunk_slab, chunk);
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status =
        pool->ops->chunk_create(pool->ops->ctx, bytes, MS_LOCATION_DEVICE, NULL, &chunk->handle);
    if (status != MS_OK) {
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, bytes);
        ms_slab_give(&pool->chunk_slab, chunk);
        return status;
    }
    tell(pool, MS_EVENT_CHUNK_CREATE, chunk);
    *out = chunk;
    return MS_OK;
}

static void add_spare(struct ms_pool *pool, struct ms_chunk *chunk)
{
    chunk->segment = NULL;
    chunk->next = pool->spares;
    pool->spares = chunk;
}

uint64_t ms_backing_release_spares(struct ms_pool *pool)
{
    uint64_t released_bytes = 0;
    struct ms_chunk **link = &pool->spares;
    while (*link != NULL) {
        struct ms_chunk *chunk = *link;
        if (pool->ops->chunk_release(pool->ops->ctx, chunk->handle) != MS_OK) {
            link = &chunk->next; /* still there and still charged: the next time */
            continue;
        }
        *link = chunk->next;
        tell(pool, MS_EVENT_CHUNK_RELEASE, chunk);
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, chunk->bytes);
        released_bytes += chunk->bytes;
        ms_slab_give(&pool->chunk_slab, chunk);
    }
    return released_bytes;
}

/* The largest spare of at most `bytes`, taken from the list; null where there is none. */
static struct ms_chunk *take_spare(struct ms_pool *pool, uint64_t bytes)
{
    struct ms_chunk **best = NULL;
    for (struct ms_chunk **link = &pool->spares; *link != NULL; link = &(*link)->next) {
        if ((*link)->bytes <= bytes && (best == NULL || (*link)->bytes > (*best)->bytes)) {
            best = link;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    struct ms_chunk *chunk = *best;
    *best = chunk->next;
    return chunk;
}

/* A chunk of at most `bytes`, smaller where budget or device have no room for a large one. */
static ms_status_t chunk_get(struct ms_pool *pool, uint64_t bytes, bool large,
                             struct ms_chunk **out)
{
    *out = take_spare(pool, bytes);
    if (*out != NULL) {
        return MS_OK;
    }
    uint64_t granules = large ? bytes / pool->granule_bytes : 1;
    if (granules > LARGEST_CHUNK_GRANULES) {
        granules = LARGEST_CHUNK_GRANULES;
    }
    for (;;) {
        ms_status_t status = chunk_make(pool, granules * pool->granule_bytes, out);
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

/* ---- filling */

/* Gives access to slots that are all mapped. */
static ms_status_t give_access(struct ms_pool *pool, const struct ms_segment *segment,
                               uint64_t from, uint64_t to)
{
    ms_addr_t addr = segment->base + from * pool->granule_bytes;
    uint64_t bytes = (to - from) * pool->granule_bytes;
    ms_status_t status = pool->ops->set_access(pool->ops->ctx, addr, bytes);
    if (status == MS_OK) {
        ms_lock_acquire(&pool->state);
        pool->count.set_accesses++;
        ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_SET_ACCESS,
                                              .owner = MS_OWNER_POOL,
                                              .addr = addr,
                                              .bytes = bytes});
        ms_lock_release(&pool->state);
    }
    return status;
}

static void set_slots(struct ms_pool *pool, struct ms_chunk *chunk, struct ms_chunk *value)
{
    uint64_t count = chunk->segment->plain ? 1 : chunk->bytes / pool->granule_bytes;
    ms_lock_acquire(&pool->state);
    for (uint64_t k = 0; k < count; k++) {
        chunk->segment->slots[chunk->slot + k] = value;
    }
    ms_lock_release(&pool->state);
}

static void undo_fill(struct ms_pool *pool, struct ms_chunk *done)
{
    while (done != NULL) {
        struct ms_chunk *chunk = done;
        done = chunk->next;
        ms_addr_t addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
        if (pool->ops->unmap(pool->ops->ctx, addr, chunk->bytes) != MS_OK) {
            chunk->stuck = true;
            continue;
        }
        tell(pool, MS_EVENT_UNMAP, chunk);
        set_slots(pool, chunk, NULL);
        add_spare(pool, chunk);
    }
    (void)ms_backing_release_spares(pool);
}

/* Fills the slots [from, to), all of them empty; chunks go onto *done as they are mapped. */
static ms_status_t fill_gap(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                            uint64_t to, bool large, struct ms_chunk **done)
{
    const struct ms_device_ops *ops = pool->ops;
    uint64_t slot = from;
    while (slot < to) {
        struct ms_chunk *chunk = NULL;
        ms_status_t status = chunk_get(pool, (to - slot) * pool->granule_bytes, large, &chunk);
        if (status != MS_OK) {
            return status;
        }
        ms_addr_t addr = segment->base + slot * pool->granule_bytes;
        status = ops->map(ops->ctx, addr, chunk->bytes, chunk->handle);
        if (status != MS_OK) {
            add_spare(pool, chunk);
            return status;
        }
        chunk->segment = segment;
        chunk->slot = slot;
        chunk->next = *done;
        *done = chunk;
        tell(pool, MS_EVENT_MAP, chunk);
        set_slots(pool, chunk, chunk);
        slot += chunk->bytes / pool->granule_bytes;
    }
    return give_access(pool, segment, from, to);
}

ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large)
{
    struct ms_segment *segment = range->segment;
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
        ms_status_t status = fill_gap(pool, segment, slot, to, large, &done);
        if (status != MS_OK) {
            undo_fill(pool, done);
            return status;
        }
        slot = to;
    }
    return MS_OK;
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
            ms_status_t one = slot == from ? MS_OK : give_access(pool, segment, from, slot);
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

bool ms_backing_idle_chunks(struct ms_pool *pool, uint64_t enough_bytes)
{
    uint64_t found_bytes = 0;
    ms_lock_acquire(&pool->state);
    struct ms_treap_node *root = pool->orders.idle.bins.large;
    struct ms_range *range = ms_range_tree_at_least(root, pool->granule_bytes, 0);
    while (range != NULL && found_bytes < enough_bytes) {
        struct chunk_run run;
        if (find_run(pool, range, enough_bytes - found_bytes, &run)) {
            found_bytes += run.bytes;
        }
        range = ms_range_tree_after(root, range);
    }
    ms_lock_release(&pool->state);
    return found_bytes >= enough_bytes;
}

/* Cuts the run out of its idle range, as a busy range of its own. Null: the host has no memory. */
static struct ms_range *cut_run(struct ms_pool *pool, struct ms_range *range,
                                const struct chunk_run *run)
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
{
    struct ms_segment *segment = range->segment;
    ms_status_t status = pool->ops->unmap(pool->ops->ctx, range->addr, range->bytes);
    if (status != MS_OK) {
        ms_lock_acquire(&pool->state);
        ms_range_make_free(pool, range, NULL);
        ms_lock_release(&pool->state);
        return status;
    }
    uint64_t slot = (range->addr - segment->base) / pool->granule_bytes;
    uint64_t end = slot + range->bytes / pool->granule_bytes;
    while (slot < end) {
        struct ms_chunk *chunk = segment->slots[slot];
        slot += chunk->bytes / pool->granule_bytes;
        tell(pool, MS_EVENT_UNMAP, chunk);
        set_slots(pool, chunk, NULL);
        add_spare(pool, chunk);
    }
    ms_lock_acquire(&pool->state);
    ms_range_make_hole(pool, range);
    ms_lock_release(&pool->state);
    return MS_OK;
}

ms_status_t ms_backing_unmap_idle(struct ms_pool *pool, uint64_t enough_bytes,
                                  uint64_t *taken_bytes)
{
    /* Smallest ranges first: they are the least useful as they are. What is left of a range sorts
     * before it, so going on behind the last one looked at visits each only once. */
    uint64_t past_bytes = pool->granule_bytes;
    ms_addr_t past_addr = 0;
    while (*taken_bytes < enough_bytes) {
        struct chunk_run run = {0};
        struct ms_range *busy = NULL;
        ms_lock_acquire(&pool->state);
        struct ms_treap_node **root = &pool->orders.idle.bins.large;
        struct ms_range *range = ms_range_tree_at_least(*root, past_bytes, past_addr);
        while (range != NULL && !find_run(pool, range, enough_bytes - *taken_bytes, &run)) {
            range = ms_range_tree_after(*root, range);
        }
        if (range != NULL) {
            past_bytes = range->bytes;
            past_addr = range->addr + 1;
            busy = cut_run(pool, range, &run);
        }
        ms_lock_release(&pool->state);
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

/* ---- the end */

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
            (void)ops->chunk_release(ops->ctx, chunk->handle);
        }
        tell(pool, MS_EVENT_UNMAP, chunk);
        tell(pool, MS_EVENT_CHUNK_RELEASE, chunk);
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, chunk->bytes);
    }
    if (!segment->plain) {
        if (!device_gone) {
            (void)ops->address_free(ops->ctx, segment->base, segment->bytes);
        }
        ms_lock_acquire(&pool->state);
        ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_RANGE_FREE,
                                              .owner = MS_OWNER_POOL,
                                              .addr = segment->base,
                                              .bytes = segment->bytes});
        ms_lock_release(&pool->state);
    }
}

void ms_backing_drop_all(struct ms_pool *pool, bool device_gone)
{
    if (!device_gone) {
        (void)ms_backing_release_spares(pool);
    }
    while (pool->spares != NULL) {
        struct ms_chunk *chunk = pool->spares;
        pool->spares = chunk->next;
        tell(pool, MS_EVENT_CHUNK_RELEASE, chunk);
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, chunk->bytes);
    }
    for (size_t at = 0; at < pool->segment_count; at++) {
        drop_segment(pool, pool->segments[at], device_gone);
    }
}
