/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor allocations and frees, as a framework's allocator reports them: the hot path of native
 * mode. Each report changes the tensors' index and the granules that the tensor touches, under one
 * hold of the pool's state lock. holes.c handles the holes. */

#include "allocator/arenas/arena.h"
#include "allocator/arenas/arenas.h"
#include "allocator/arenas/arenas_state.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/proxies.h"
#include "allocator/arenas/tensors_hot.h"
#include "allocator/base/containers/pages.h"
#include "allocator/base/ids.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

enum { IDS_AT_A_TIME = 1024 };

ms_status_t ms_arenas_create(uint8_t device, ms_pool_t *pool, struct ms_event_sink sink,
                             ms_arenas_t **out)
{
    struct ms_arenas *arenas = ms_pages_map(sizeof(*arenas));
    if (arenas == NULL || !ms_tensors_init(&arenas->tensors) || !ms_tensors_init(&arenas->asleep)) {
        if (arenas != NULL) {
            ms_tensors_destroy(&arenas->tensors);
            ms_pages_unmap(arenas, sizeof(*arenas));
        }
        return MS_ERR_NO_MEMORY;
    }
    arenas->device = device;
    arenas->pool = pool;
    arenas->own_sink = sink;
    arenas->sink = pool != NULL ? &pool->config.sink : &arenas->own_sink;
    ms_lock_init(&arenas->own_lock, MS_RANK_ARENAS);
    arenas->lock = pool != NULL ? &pool->state : &arenas->own_lock;
    if (pool != NULL) {
        ms_state_acquire(pool);
        pool->arenas = arenas;
        ms_state_release(pool);
    }
    *out = arenas;
    return MS_OK;
}

void ms_arenas_destroy(ms_arenas_t *arenas)
{
    if (arenas == NULL) {
        return;
    }
    if (arenas->pool != NULL) {
        ms_state_acquire(arenas->pool);
        arenas->pool->arenas = NULL;
        ms_state_release(arenas->pool);
    }
    ms_tensors_destroy(&arenas->tensors);
    ms_tensors_destroy(&arenas->asleep);
    ms_pages_unmap(arenas, sizeof(*arenas));
}

uint64_t ms_arenas_live_bytes(const struct ms_arenas *arenas)
{
    return arenas->stats.live_bytes;
}

static inline __attribute__((always_inline)) void tell(struct ms_arenas *arenas,
                                                       enum ms_event_kind kind,
                                                       const struct ms_tensor *tensor, uint64_t id,
                                                       uint32_t site, uint64_t block_id)
{
    if (arenas->sink->emit != NULL) {
        arenas->sink->emit(arenas->sink->ctx, &(struct ms_event){.kind = (uint8_t)kind,
                                                                 .device = arenas->device,
                                                                 .owner = MS_OWNER_POOL,
                                                                 .site = site,
                                                                 .id = id,
                                                                 .addr = tensor->addr,
                                                                 .bytes = tensor->bytes,
                                                                 .aux = block_id});
    }
}

/* The segment that holds addr and can have holes; null: there is none. */
static inline struct ms_segment *segment_of(struct ms_arenas *arenas, ms_addr_t addr)
    MS_REQUIRES(ms_state_role)
{
    struct ms_segment *recent = arenas->recent;
    if (recent != NULL && addr - recent->base < recent->bytes) {
        return recent;
    }
    if (arenas->pool == NULL) {
        return NULL;
    }
    struct ms_segment *segment = ms_segment_of(arenas->pool, addr);
    if (segment == NULL || segment->plain) {
        return NULL;
    }
    if (!ms_granules_need(arenas->pool, segment)) {
        /* The segment has no granules, so allocations in it could not be tracked. */
        arenas->pool->frozen = true;
        return NULL;
    }
    arenas->recent = segment;
    return segment;
}

/* MS_ERR_NOT_READY at the first report whose total differs from our sum, else MS_OK. */
static inline ms_status_t compare_total(struct ms_arenas *arenas, uint64_t total_bytes)
{
    if (total_bytes == arenas->stats.live_bytes || total_bytes == UINT64_MAX ||
        arenas->stats.mismatched ||
        total_bytes == arenas->stats.live_bytes + arenas->asleep_bytes) {
        return MS_OK;
    }
    arenas->stats.mismatched = true;
    return MS_ERR_NOT_READY;
}

/* ---- granules under a tensor */

/* The granule that begins right at the tensor's end; null: there is none. */
static inline struct ms_granule *right_behind(const struct ms_segment *segment,
                                              const struct ms_spot *spot)
{
    const uint64_t behind = spot->last_slot + 1;
    const uint64_t read_end = spot->last + 1 + MS_OVERREAD_BYTES;
    const bool near = read_end >> segment->granule_shift >= behind;
    return near && behind < segment->slot_count ? &segment->granules[behind] : NULL;
}

/* Notes the tensor on its granules. True: some of them have no backing. */
static inline bool touch(struct ms_pool *pool, struct ms_segment *segment,
                         const struct ms_spot *spot) MS_REQUIRES(ms_state_role)
{
    bool unbacked = false;
    const uint64_t now = ++pool->epochs.clock;
    struct ms_granule *granule = &segment->granules[spot->first_slot];
    for (uint64_t slot = spot->first_slot; slot <= spot->last_slot; slot++, granule++) {
        if (granule->tensors++ == 0) {
            ms_quiet_clear(pool, segment, slot);
            uint64_t gap = now - granule->since;
            granule->last_gap = gap < MS_LONGEST_GAP ? (uint32_t)gap : MS_LONGEST_GAP;
        }
        granule->since = now;
        unbacked |= granule->asks;
    }
    struct ms_granule *behind = right_behind(segment, spot);
    if (behind != NULL) {
        behind->ends_before++;
    }
    return unbacked;
}

static inline void leave(struct ms_pool *pool, struct ms_segment *segment,
                         const struct ms_spot *spot) MS_REQUIRES(ms_state_role)
{
    const uint64_t now = ++pool->epochs.clock;
    for (uint64_t slot = spot->first_slot; slot <= spot->last_slot; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        granule->epoch = pool->epochs.current;
        if (--granule->tensors == 0) {
            granule->since = now;
            if (granule->arena != NULL && !granule->unbacked) {
                ms_quiet_set(pool, segment, slot);
            }
        }
    }
    struct ms_granule *behind = right_behind(segment, spot);
    if (behind != NULL) {
        behind->ends_before--;
    }
}

/* ---- allocations */

static void freeze(struct ms_arenas *arenas, struct ms_arena *arena)
{
    arena->frozen = true;
    arenas->stats.frozen_arenas++;
    if (arenas->sink->emit != NULL) {
        arenas->sink->emit(arenas->sink->ctx, &(struct ms_event){.kind = MS_EVENT_ARENA_FROZEN,
                                                                 .device = arenas->device,
                                                                 .owner = MS_OWNER_POOL,
                                                                 .addr = arena->addr,
                                                                 .bytes = arena->bytes});
    }
}

/* Makes the live block around addr an arena, and returns it. State lock. */
static struct ms_range *mark_block(struct ms_pool *pool, ms_addr_t addr) MS_REQUIRES(ms_state_role)
{
    struct ms_range *range = ms_block_around(pool, addr);
    if (range != NULL && !range->arena) {
        range->arena = true;
        pool->count.arena_bytes += ms_range_asked_bytes(range);
        ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_BLOCK_ARENA,
                                             .owner = MS_OWNER_POOL,
                                             .id = range->live.id,
                                             .addr = range->addr,
                                             .bytes = ms_range_asked_bytes(range)});
    }
    return range;
}

/* The arena that addr lies in, made at the first allocation in its block. Null: there is none. */
static inline struct ms_arena *arena_at(struct ms_arenas *arenas, const struct ms_segment *segment,
                                        const struct ms_spot *spot, ms_addr_t addr,
                                        uint64_t *block_id) MS_REQUIRES(ms_state_role)
{
    struct ms_pool *pool = arenas->pool;
    *block_id = 0;
    if (segment != NULL) {
        struct ms_arena *arena = segment->granules[spot->first_slot].arena;
        if (arena != NULL) {
            *block_id = arena->id;
            return arena;
        }
    }
    struct ms_range *range = pool == NULL ? NULL : mark_block(pool, addr);
    if (range == NULL) {
        return NULL;
    }
    *block_id = range->live.id;
    if (!range->holed && segment != NULL && !range->kept) {
        (void)ms_granules_arena(pool, range); /* without it nothing can be taken */
    }
    return ms_range_holes(range);
}

/* A segment contains addr, and has fewer than MS_TENSOR_MOST_BYTES itself. */
static inline bool fits(const struct ms_segment *segment, ms_addr_t addr, uint64_t bytes)
{
    if (segment != NULL) {
        return bytes - 1 < segment->bytes - (addr - segment->base);
    }
    return addr != 0 && bytes - 1 < MS_TENSOR_MOST_BYTES && bytes <= UINT64_MAX - addr;
}

/* One report of a tensor's allocation. */
struct report {
    ms_addr_t addr;
    uint64_t bytes, total_bytes;
    uint32_t site;
    bool capturing;
};

static inline __attribute__((always_inline)) ms_status_t
add(struct ms_arenas *arenas, struct ms_segment *segment, const struct ms_spot *spot,
    const struct report *report, struct ms_tensor *out)
{
    if (arenas->next_id == arenas->end_id) {
        arenas->next_id = ms_ids_take(IDS_AT_A_TIME);
        arenas->end_id = arenas->next_id + IDS_AT_A_TIME;
    }
    *out = (struct ms_tensor){.addr = report->addr,
                              .bytes = report->bytes,
                              .id_above = arenas->next_id >> 32 & UINT16_MAX,
                              .id_below = (uint32_t)arenas->next_id,
                              .site = report->site,
                              .counted = segment != NULL};
    ms_status_t status = ms_tensors_add(&arenas->tensors, segment, spot, out);
    if (status != MS_OK) {
        return status;
    }
    struct ms_arenas_stats *stats = &arenas->stats;
    stats->allocations++;
    stats->live_tensors++;
    stats->live_bytes += report->bytes;
    if (stats->live_bytes > stats->peak_live_bytes) {
        stats->peak_live_bytes = stats->live_bytes;
    }
    return MS_OK;
}

static __attribute__((noinline, cold)) ms_status_t not_added(struct ms_arenas *arenas,
                                                             ms_status_t status)
    MS_REQUIRES(ms_state_role)
{
    if (status == MS_ERR_INVALID) {
        arenas->stats.invalid_reports++;
    } else if (arenas->pool != NULL) {
        /* The tensor's place is unknown, so nothing may be taken from under it. */
        arenas->pool->frozen = true;
    }
    return status;
}

/* Inlined twice, with a segment and without, so that only one of them has the code for segments.
 * *unbacked: granules still need backing, which needs the lock released. */
static inline __attribute__((always_inline)) ms_status_t
note_in(struct ms_arenas *arenas, struct ms_segment *segment, const struct report *report,
        bool *unbacked) MS_REQUIRES(ms_state_role)
{
    struct ms_spot spot = {0};
    struct ms_tensor tensor;
    ms_status_t status = MS_ERR_INVALID;
    if (__builtin_expect(fits(segment, report->addr, report->bytes), 1)) {
        spot = segment != NULL ? ms_spot_of(segment, report->addr, report->bytes) : spot;
        status = add(arenas, segment, &spot, report, &tensor);
    }
    if (__builtin_expect(status != MS_OK, 0)) {
        return not_added(arenas, status);
    }
    uint64_t block_id = 0;
    struct ms_arena *arena = arena_at(arenas, segment, &spot, report->addr, &block_id);
    if (arenas->pool != NULL) {
        if (arenas->pool->proxies.fresh != NULL) {
            ms_proxies_tensor_allocated(arenas->pool, report->addr, report->bytes);
        }
        if (segment != NULL) {
            *unbacked = touch(arenas->pool, segment, &spot);
        }
    }
    if (report->capturing && arena != NULL && !arena->frozen) {
        freeze(arenas, arena);
    }
    tell(arenas, MS_EVENT_TENSOR_ALLOC, &tensor, arenas->next_id++, report->site, block_id);
    return compare_total(arenas, report->total_bytes);
}

/* Takes the report by value: its address would keep it out of registers in its caller. */
static __attribute__((noinline)) ms_status_t note_outside(struct ms_arenas *arenas,
                                                          struct report report)
    MS_REQUIRES(ms_state_role)
{
    bool unbacked;
    return note_in(arenas, NULL, &report, &unbacked);
}

/* Backs the tensor's memory. Its owner waits for this call, so the tensor cannot go away
 * meanwhile. */
static ms_status_t back(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_status_t status = MS_OK;
    ms_growth_acquire(pool);
    struct ms_segment *segment = ms_segment_of(pool, addr);
    if (segment != NULL && segment->granules != NULL) {
        uint64_t from = 0;
        uint64_t to = 0;
        ms_tensor_slots(segment, addr, bytes, &from, &to);
        if (ms_holes_want_backing(pool, segment, from, to)) {
            status = ms_holes_back(pool, segment, from, to);
        }
    }
    ms_growth_release(pool);
    return status;
}

/* The reports are wrong: from here on nothing relies on them. */
static void distrust(struct ms_arenas *arenas)
{
    struct ms_pool *pool = arenas->pool;
    if (pool != NULL && pool->granule_bytes != 0) {
        ms_growth_acquire(pool);
        if (!arenas->distrusted) {
            arenas->distrusted = true;
            ms_holes_freeze(pool);
        }
        ms_growth_release(pool);
    }
}

__attribute__((hot)) ms_status_t ms_arenas_allocated(ms_arenas_t *arenas, ms_addr_t addr,
                                                     uint64_t bytes, uint32_t site,
                                                     uint64_t total_bytes)
{
    struct ms_pool *pool = arenas->pool;
    const struct report report = {.addr = addr,
                                  .bytes = bytes,
                                  .total_bytes = total_bytes,
                                  .site = site,
                                  .capturing = pool != NULL && ms_device_captures(pool->ops)};
    bool unbacked = false;
    ms_arenas_acquire(arenas);
    struct ms_segment *segment = segment_of(arenas, addr);
    ms_status_t status = segment != NULL ? note_in(arenas, segment, &report, &unbacked)
                                         : note_outside(arenas, report);
    ms_arenas_release(arenas);
    if (status != MS_OK) {
        distrust(arenas);
    }
    /* Only the segments of a pool can be unbacked. */
    if (unbacked && pool != NULL) {
        ms_status_t backed = back(pool, addr, bytes);
        status = backed != MS_OK ? backed : status;
    }
    return status;
}

/* ---- frees */

static inline __attribute__((always_inline)) bool bury(struct ms_arenas *arenas,
                                                       struct ms_segment *segment, ms_addr_t addr)
    MS_REQUIRES(ms_state_role)
{
    struct ms_tensor tensor;
    struct ms_spot spot = {0};
    if (!ms_tensors_take(&arenas->tensors, segment, addr, &tensor, &spot)) {
        return false;
    }
    arenas->stats.frees++;
    arenas->stats.live_tensors--;
    arenas->stats.live_bytes -= tensor.bytes;
    if (segment != NULL && tensor.counted != 0) {
        leave(arenas->pool, segment, &spot);
    }
    tell(arenas, MS_EVENT_TENSOR_FREE, &tensor, ms_tensor_id(&tensor), 0, 0);
    return true;
}

/* Takes a tensor that sleeps; false: there is none. */
static __attribute__((noinline, cold)) bool take_asleep(struct ms_arenas *arenas, ms_addr_t addr,
                                                        struct ms_tensor *out)
    MS_REQUIRES(ms_state_role)
{
    const bool found = ms_tensors_take_from_tree(&arenas->asleep, addr, out);
    arenas->asleep_bytes -= found ? out->bytes : 0;
    return found;
}

__attribute__((hot)) ms_status_t ms_arenas_freed(ms_arenas_t *arenas, ms_addr_t addr,
                                                 uint64_t bytes, uint64_t total_bytes)
{
    (void)bytes; /* the size at its allocation is the one that was counted */
    ms_status_t status = MS_ERR_INVALID;
    struct ms_tensor asleep;
    ms_arenas_acquire(arenas);
    if (bury(arenas, segment_of(arenas, addr), addr) || take_asleep(arenas, addr, &asleep)) {
        status = compare_total(arenas, total_bytes);
    } else {
        arenas->stats.invalid_reports++;
    }
    ms_arenas_release(arenas);
    if (status != MS_OK) {
        distrust(arenas);
    }
    return status;
}

void ms_arenas_bury(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes)
{
    struct ms_segment *segment = segment_of(arenas, addr);
    if (segment != NULL && bytes > segment->bytes - (addr - segment->base)) {
        bytes = segment->bytes - (addr - segment->base);
    }
    const struct ms_tensor *tensor = NULL;
    while ((tensor = ms_tensors_any_in(&arenas->tensors, segment, addr, bytes)) != NULL) {
        (void)bury(arenas, segment, tensor->addr);
    }
}

void ms_arenas_block_gone(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes)
{
    ms_arenas_acquire(arenas);
    ms_arenas_bury(arenas, addr, bytes);
    ms_arenas_release(arenas);
}

/* ---- memory that its program lets sleep */

void ms_arenas_unmapped(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes)
{
    const struct ms_tensor *found = NULL;
    ms_arenas_acquire(arenas);
    while ((found = ms_tensors_any_in(&arenas->tensors, NULL, addr, bytes)) != NULL) {
        const struct ms_tensor tensor = *found;
        (void)bury(arenas, NULL, tensor.addr);
        /* Without host memory for it, its owner's next total will differ from our sum. */
        if (ms_tensors_add_to_tree(&arenas->asleep, NULL, &tensor) == MS_OK) {
            arenas->asleep_bytes += tensor.bytes;
        }
    }
    ms_arenas_release(arenas);
}

void ms_arenas_mapped(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes)
{
    const struct ms_tensor *found = NULL;
    struct ms_tensor tensor;
    ms_arenas_acquire(arenas);
    while ((found = ms_tensors_any_in(&arenas->asleep, NULL, addr, bytes)) != NULL &&
           take_asleep(arenas, found->addr, &tensor)) {
        (void)note_outside(arenas, (struct report){.addr = tensor.addr,
                                                   .bytes = tensor.bytes,
                                                   .total_bytes = UINT64_MAX,
                                                   .site = tensor.site});
    }
    ms_arenas_release(arenas);
}

/* ---- arenas that are kept */

void ms_arenas_keep(ms_arenas_t *arenas, ms_addr_t addr)
{
    ms_arenas_acquire(arenas);
    struct ms_range *range = arenas->pool == NULL ? NULL : mark_block(arenas->pool, addr);
    /* A block that holds another framework's tensors stays as it is. */
    if (range != NULL && !range->holed && !range->kept) {
        range->kept = true;
        arenas->stats.kept_arenas++;
    }
    ms_arenas_release(arenas);
}

static bool in_kept(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_range *range =
        arenas->pool == NULL ? NULL : ms_block_around(arenas->pool, addr);
    return range != NULL && range->kept && bytes <= range->bytes - (addr - range->addr);
}

ms_status_t ms_arenas_kept_allocated(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                                     uint32_t site)
{
    ms_status_t status = MS_OK;
    bool unbacked = false;
    ms_arenas_acquire(arenas);
    if (in_kept(arenas, addr, bytes)) {
        struct ms_segment *segment = segment_of(arenas, addr);
        const struct ms_tensor *over = ms_tensors_over(&arenas->tensors, segment, addr);
        if (over != NULL) {
            (void)bury(arenas, segment, over->addr);
        }
        ms_arenas_bury(arenas, addr, bytes);
        const struct report report = {
            .addr = addr, .bytes = bytes, .total_bytes = UINT64_MAX, .site = site};
        status = note_in(arenas, segment, &report, &unbacked);
    }
    ms_arenas_release(arenas);
    return status;
}

void ms_arenas_kept_freed(ms_arenas_t *arenas, ms_addr_t addr)
{
    ms_arenas_acquire(arenas);
    if (in_kept(arenas, addr, 0)) {
        (void)bury(arenas, segment_of(arenas, addr), addr);
    }
    ms_arenas_release(arenas);
}

void ms_arenas_around(struct ms_arenas *arenas, const struct ms_segment *segment, ms_addr_t *addr,
                      uint64_t *bytes)
{
    const struct ms_tensor *tensor =
        ms_tensors_below(&arenas->tensors, segment, segment->base, *addr + 1);
    if (tensor != NULL && *addr - tensor->addr < tensor->bytes) {
        *addr = tensor->addr;
        *bytes = tensor->bytes;
    }
}

static void each_in(const struct ms_arenas *arenas, struct ms_segment *segment,
                    void (*visit)(void *ctx, struct ms_segment *segment,
                                  const struct ms_tensor *tensor),
                    void *ctx)
{
    const struct ms_tensors *tensors = &arenas->tensors;
    ms_addr_t above = segment->base + segment->bytes;
    const struct ms_tensor *tensor = NULL;
    while ((tensor = ms_tensors_below(tensors, segment, segment->base, above)) != NULL) {
        above = tensor->addr;
        visit(ctx, segment, tensor);
    }
    tensor = ms_tensors_in_tree(tensors, segment->base);
    while (tensor != NULL && tensor->addr - segment->base < segment->bytes) {
        visit(ctx, segment, tensor);
        tensor = ms_tensors_in_tree(tensors, tensor->addr + 1);
    }
}

void ms_arenas_each(struct ms_arenas *arenas,
                    void (*visit)(void *ctx, struct ms_segment *segment,
                                  const struct ms_tensor *tensor),
                    void *ctx)
{
    const struct ms_pool *pool = arenas->pool;
    for (size_t at = 0; at < pool->segment_count; at++) {
        if (pool->segments[at]->granules != NULL) {
            each_in(arenas, pool->segments[at], visit, ctx);
        }
    }
}

void ms_arenas_segment_gone(struct ms_arenas *arenas, const struct ms_segment *segment)
{
    if (arenas->recent == segment) {
        arenas->recent = NULL;
    }
}

void ms_arenas_stats(ms_arenas_t *arenas, struct ms_arenas_stats *out)
{
    ms_arenas_acquire(arenas);
    *out = arenas->stats;
    ms_arenas_release(arenas);
}

/* With a pool this is the pool's lock, and the pool handles it. */
void ms_arenas_locks(ms_arenas_t *arenas, void (*act)(ms_lock_t *lock))
{
    act(&arenas->own_lock);
}
