/* Births and deaths, as a framework's allocator reports them: the hot path of native mode. What
 * they change is the tensors' index and the granules that a tensor touches, under one hold of the
 * pool's state lock; what holes make of that is told in holes.c. */
#include "allocator/arena.h"

#include <stdio.h>

#include "allocator/pool_internal.h"
#include "allocator/tensors.h"

struct ms_arenas {
    uint8_t device;
    ms_pool_t *pool; /* null where there is none */
    struct ms_event_sink sink;
    ms_lock_t *lock; /* the pool's state lock; without a pool its own */
    ms_lock_t own_lock;
    struct ms_segment *recent; /* of the last report */
    bool distrusted;           /* nothing rests on the reports any more. Growth lock */
    struct ms_tensors tensors;
    uint64_t next_id, end_id;
    struct ms_arenas_stats stats;
};

enum { IDS_AT_A_TIME = 1024 };

ms_status_t ms_arenas_create(uint8_t device, ms_pool_t *pool, struct ms_event_sink sink,
                             ms_arenas_t **out)
{
    struct ms_arenas *arenas = ms_pages_map(sizeof(*arenas));
    if (arenas == NULL || !ms_tensors_init(&arenas->tensors)) {
        if (arenas != NULL) {
            ms_pages_unmap(arenas, sizeof(*arenas));
        }
        return MS_ERR_NO_MEMORY;
    }
    arenas->device = device;
    arenas->pool = pool;
    arenas->sink = sink;
    arenas->lock = pool != NULL ? &pool->state : &arenas->own_lock;
    if (pool != NULL) {
        ms_lock_acquire(&pool->state);
        pool->repair.arenas = arenas;
        ms_lock_release(&pool->state);
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
        ms_lock_acquire(&arenas->pool->state);
        arenas->pool->repair.arenas = NULL;
        ms_lock_release(&arenas->pool->state);
    }
    ms_tensors_destroy(&arenas->tensors);
    ms_pages_unmap(arenas, sizeof(*arenas));
}

struct ms_event_sink *ms_arenas_sink(struct ms_arenas *arenas)
{
    return &arenas->sink;
}

uint64_t ms_arenas_live_bytes(const struct ms_arenas *arenas)
{
    return arenas->stats.live_bytes;
}

static void tell(struct ms_arenas *arenas, enum ms_event_kind kind, const struct ms_tensor *tensor,
                 uint32_t site, uint64_t block_id)
{
    if (arenas->sink.emit != NULL) {
        arenas->sink.emit(arenas->sink.ctx, &(struct ms_event){.kind = (uint8_t)kind,
                                                               .device = arenas->device,
                                                               .owner = MS_OWNER_POOL,
                                                               .site = site,
                                                               .id = tensor->id,
                                                               .addr = tensor->addr,
                                                               .bytes = tensor->bytes,
                                                               .aux = block_id});
    }
}

/* The segment that holds addr and can have holes; null where there is none. */
static inline struct ms_segment *segment_of(struct ms_arenas *arenas, ms_addr_t addr)
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
        /* What is born there now, its granules will not know of. */
        arenas->pool->repair.frozen = true;
        return NULL;
    }
    arenas->recent = segment;
    return segment;
}

/* MS_ERR_NOT_READY at the first report whose total is not our sum, else MS_OK. */
static inline ms_status_t compare_total(struct ms_arenas *arenas, uint64_t total_bytes)
{
    if (total_bytes == UINT64_MAX || total_bytes == arenas->stats.live_bytes ||
        arenas->stats.mismatched) {
        return MS_OK;
    }
    arenas->stats.mismatched = true;
    return MS_ERR_NOT_READY;
}

/* ---- granules under a tensor */

/* The slots [*from, *to) that the tensor touches. */
static inline void slots_of(const struct ms_segment *segment, ms_addr_t addr, uint64_t bytes,
                            uint64_t *from, uint64_t *to)
{
    unsigned shift = segment->granule_shift;
    *from = (addr - segment->base) >> shift;
    *to = ((addr - segment->base + bytes - 1) >> shift) + 1;
}

/* The granule whose beginning the tensor ends right before; null where there is none. */
static inline struct ms_granule *right_behind(const struct ms_pool *pool,
                                              const struct ms_segment *segment, ms_addr_t addr,
                                              uint64_t bytes, uint64_t to)
{
    uint64_t left_bytes = to * pool->granule_bytes - (addr - segment->base + bytes);
    bool near = left_bytes <= MS_OVERREAD_BYTES && to < segment->slot_count;
    return near ? &segment->granules[to] : NULL;
}

/* True if some of them have no backing. */
static inline bool touch(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr,
                         uint64_t bytes)
{
    uint64_t from = 0;
    uint64_t to = 0;
    bool unbacked = false;
    slots_of(segment, addr, bytes, &from, &to);
    uint64_t now = ++pool->repair.clock;
    struct ms_granule *granule = &segment->granules[from];
    for (uint64_t slot = from; slot < to; slot++, granule++) {
        if (granule->tensors++ == 0) {
            ms_quiet_clear(pool, segment, slot);
            uint64_t gap = now - granule->since;
            granule->last_gap = gap < UINT32_MAX ? (uint32_t)gap : UINT32_MAX;
        }
        granule->since = now;
        unbacked |= granule->asks;
    }
    struct ms_granule *behind = right_behind(pool, segment, addr, bytes, to);
    if (behind != NULL) {
        behind->ends_before++;
    }
    return unbacked;
}

static inline void leave(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr,
                         uint64_t bytes)
{
    uint64_t from = 0;
    uint64_t to = 0;
    slots_of(segment, addr, bytes, &from, &to);
    uint64_t now = ++pool->repair.clock;
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        granule->epoch = pool->repair.epoch;
        if (--granule->tensors == 0) {
            granule->since = now;
            if (granule->arena != NULL && !granule->unbacked) {
                ms_quiet_set(pool, segment, slot);
            }
        }
    }
    struct ms_granule *behind = right_behind(pool, segment, addr, bytes, to);
    if (behind != NULL) {
        behind->ends_before--;
    }
}

/* ---- births */

static void freeze(struct ms_arenas *arenas, struct ms_arena *arena)
{
    arena->frozen = true;
    arenas->stats.frozen_arenas++;
    if (arenas->sink.emit != NULL) {
        arenas->sink.emit(arenas->sink.ctx, &(struct ms_event){.kind = MS_EVENT_ARENA_FROZEN,
                                                               .device = arenas->device,
                                                               .owner = MS_OWNER_POOL,
                                                               .addr = arena->addr,
                                                               .bytes = arena->bytes});
    }
}

/* The arena that addr lies in, made at the first birth in its block. Null where there is none. */
static inline struct ms_arena *arena_at(struct ms_arenas *arenas, const struct ms_segment *segment,
                                        ms_addr_t addr, uint64_t *block_id)
{
    struct ms_pool *pool = arenas->pool;
    *block_id = 0;
    if (segment != NULL) {
        struct ms_arena *arena =
            segment->granules[(addr - segment->base) >> segment->granule_shift].arena;
        if (arena != NULL) {
            *block_id = arena->id;
            return arena;
        }
    }
    struct ms_range *range = pool == NULL ? NULL : ms_pool_mark_arena(pool, addr);
    if (range == NULL) {
        return NULL;
    }
    *block_id = range->live.id;
    if (range->live.holes == NULL && segment != NULL) {
        (void)ms_granules_arena(pool, range); /* without it nothing can be taken */
    }
    return range->live.holes;
}

static inline bool fits(const struct ms_segment *segment, ms_addr_t addr, uint64_t bytes)
{
    return addr != 0 && bytes != 0 && bytes <= UINT64_MAX - addr &&
           (segment == NULL || bytes <= segment->bytes - (addr - segment->base));
}

static inline bool add(struct ms_arenas *arenas, struct ms_segment *segment, ms_addr_t addr,
                       uint64_t bytes, uint32_t site, struct ms_tensor *out)
{
    if (arenas->next_id == arenas->end_id) {
        arenas->next_id = ms_ids_take(IDS_AT_A_TIME);
        arenas->end_id = arenas->next_id + IDS_AT_A_TIME;
    }
    *out = (struct ms_tensor){.addr = addr,
                              .bytes = bytes,
                              .id = arenas->next_id,
                              .site = site,
                              .counted = segment != NULL};
    if (!ms_tensors_add(&arenas->tensors, segment, out)) {
        return false;
    }
    struct ms_arenas_stats *stats = &arenas->stats;
    arenas->next_id++;
    stats->births++;
    stats->live_tensors++;
    stats->live_bytes += bytes;
    if (stats->live_bytes > stats->peak_live_bytes) {
        stats->peak_live_bytes = stats->live_bytes;
    }
    return true;
}

/* What the lock's holder has seen to; *unbacked: what is left to do without it. */
static ms_status_t born(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes, uint32_t site,
                        uint64_t total_bytes, bool capturing, bool *unbacked)
{
    struct ms_segment *segment = segment_of(arenas, addr);
    if (!fits(segment, addr, bytes) || ms_tensors_overlap(&arenas->tensors, segment, addr, bytes)) {
        arenas->stats.invalid_reports++;
        return MS_ERR_INVALID;
    }
    struct ms_tensor tensor;
    if (!add(arenas, segment, addr, bytes, site, &tensor)) {
        /* It lives where nobody knows of it: nothing may be taken from under it. */
        if (arenas->pool != NULL) {
            arenas->pool->repair.frozen = true;
        }
        return MS_ERR_NO_MEMORY;
    }
    uint64_t block_id = 0;
    struct ms_arena *arena = arena_at(arenas, segment, addr, &block_id);
    if (segment != NULL) {
        *unbacked = touch(arenas->pool, segment, addr, bytes);
    }
    if (capturing && arena != NULL && !arena->frozen) {
        freeze(arenas, arena);
    }
    tell(arenas, MS_EVENT_TENSOR_BORN, &tensor, site, block_id);
    return compare_total(arenas, total_bytes);
}

/* Backs what the tensor lies on. Its owner waits for us, so it cannot go away meanwhile. */
static ms_status_t back(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_status_t status = MS_OK;
    ms_lock_acquire(&pool->growth);
    struct ms_segment *segment = ms_segment_of(pool, addr);
    if (segment != NULL && segment->granules != NULL) {
        uint64_t from = 0;
        uint64_t to = 0;
        slots_of(segment, addr, bytes, &from, &to);
        if (ms_holes_want_backing(pool, segment, from, to)) {
            status = ms_holes_back(pool, segment, from, to);
        }
    }
    ms_lock_release(&pool->growth);
    return status;
}

/* The reports are not what they should be: from here on nothing rests on them. */
static void distrust(struct ms_arenas *arenas)
{
    struct ms_pool *pool = arenas->pool;
    if (pool != NULL && pool->granule_bytes != 0) {
        ms_lock_acquire(&pool->growth);
        if (!arenas->distrusted) {
            arenas->distrusted = true;
            ms_holes_freeze(pool);
        }
        ms_lock_release(&pool->growth);
    }
}

__attribute__((hot)) ms_status_t ms_arenas_born(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                                                uint32_t site, uint64_t total_bytes)
{
    struct ms_pool *pool = arenas->pool;
    bool capturing = pool != NULL && pool->ops->capturing(pool->ops->ctx);
    bool unbacked = false;
    ms_lock_acquire(arenas->lock);
    ms_status_t status = born(arenas, addr, bytes, site, total_bytes, capturing, &unbacked);
    ms_lock_release(arenas->lock);
    if (status != MS_OK) {
        distrust(arenas);
    }
    if (unbacked) {
        ms_status_t backed = back(pool, addr, bytes);
        status = backed != MS_OK ? backed : status;
    }
    return status;
}

/* ---- deaths */

static inline __attribute__((hot)) bool bury(struct ms_arenas *arenas, struct ms_segment *segment,
                                             ms_addr_t addr)
{
    struct ms_tensor tensor;
    if (!ms_tensors_take(&arenas->tensors, segment, addr, &tensor)) {
        return false;
    }
    arenas->stats.deaths++;
    arenas->stats.live_tensors--;
    arenas->stats.live_bytes -= tensor.bytes;
    if (segment != NULL && tensor.counted != 0) {
        leave(arenas->pool, segment, addr, tensor.bytes);
    }
    tell(arenas, MS_EVENT_TENSOR_DIED, &tensor, 0, 0);
    return true;
}

__attribute__((hot)) ms_status_t ms_arenas_died(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                                                uint64_t total_bytes)
{
    (void)bytes; /* the birth's size is the one that was counted */
    ms_status_t status = MS_ERR_INVALID;
    ms_lock_acquire(arenas->lock);
    if (bury(arenas, segment_of(arenas, addr), addr)) {
        status = compare_total(arenas, total_bytes);
    } else {
        arenas->stats.invalid_reports++;
    }
    ms_lock_release(arenas->lock);
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
    ms_lock_acquire(arenas->lock);
    ms_arenas_bury(arenas, addr, bytes);
    ms_lock_release(arenas->lock);
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
    ms_lock_acquire(arenas->lock);
    *out = arenas->stats;
    ms_lock_release(arenas->lock);
}

/* ---- the walker */

/* What the live tensors of a segment add up to. */
struct sum {
    uint64_t tensors, bytes;
    const char *violation;
};

static const char *check_granules(const struct ms_arenas *arenas, const struct ms_segment *segment,
                                  const struct ms_granule *seen)
{
    const struct ms_pool *pool = arenas->pool;
    for (uint64_t slot = 0; slot < segment->slot_count; slot++) {
        const struct ms_granule *granule = &segment->granules[slot];
        const struct ms_chunk *chunk = segment->slots[slot];
        bool backed = chunk != NULL && !chunk->stuck;
        bool quiet = granule->arena != NULL && granule->tensors == 0 && !granule->unbacked;
        if (granule->tensors != seen[slot].tensors ||
            granule->ends_before != seen[slot].ends_before) {
            return "a granule's count of live tensors is wrong";
        }
        if (granule->unbacked && granule->arena == NULL) {
            return "a granule of no arena is owed something";
        }
        if (granule->arena != NULL && granule->unbacked == backed) {
            return "an arena's granule is not as backed as it says";
        }
        if (granule->unbacked && granule->tensors > 0 && !granule->refused) {
            return "a live tensor lies on an unbacked granule";
        }
        if (quiet != ms_quiet_test(segment, slot)) {
            return "a granule is not as quiet as it says";
        }
        if (granule->epoch > pool->repair.epoch) {
            return "a granule's epoch has not begun";
        }
    }
    return NULL;
}

static void note(const struct ms_arenas *arenas, const struct ms_segment *segment,
                 struct ms_granule *seen, const struct ms_tensor *tensor)
{
    uint64_t from = 0;
    uint64_t to = 0;
    slots_of(segment, tensor->addr, tensor->bytes, &from, &to);
    for (uint64_t slot = from; slot < to; slot++) {
        seen[slot].tensors++;
    }
    uint64_t left_bytes =
        to * arenas->pool->granule_bytes - (tensor->addr - segment->base + tensor->bytes);
    if (to < segment->slot_count && left_bytes <= MS_OVERREAD_BYTES) {
        seen[to].ends_before++;
    }
}

static void check_segment(struct ms_arenas *arenas, struct ms_segment *segment, struct sum *sum)
{
    const struct ms_tensors *tensors = &arenas->tensors;
    size_t bytes = segment->slot_count * sizeof(struct ms_granule);
    struct ms_granule *seen = ms_pages_map(bytes);
    if (seen == NULL) {
        sum->violation = "the host has no memory to look";
        return;
    }
    ms_addr_t above = UINT64_MAX;
    const struct ms_tensor *tensor =
        ms_tensors_below(tensors, segment, segment->base, segment->base + segment->bytes);
    while (tensor != NULL) {
        sum->tensors++;
        sum->bytes += tensor->bytes;
        note(arenas, segment, seen, tensor);
        if (tensor->addr + tensor->bytes > above) {
            sum->violation = "two live tensors overlap";
        }
        above = tensor->addr;
        tensor = ms_tensors_below(tensors, segment, segment->base, above);
    }
    tensor = ms_tensors_in_tree(tensors, segment->base);
    while (tensor != NULL && tensor->addr - segment->base < segment->bytes) {
        if (tensor->counted != 0) {
            note(arenas, segment, seen, tensor);
        }
        tensor = ms_tensors_in_tree(tensors, tensor->addr + 1);
    }
    const char *violation = check_granules(arenas, segment, seen);
    sum->violation = sum->violation != NULL ? sum->violation : violation;
    ms_pages_unmap(seen, bytes);
}

static void check_tree(const struct ms_arenas *arenas, struct sum *sum)
{
    const struct ms_tensor *tensor = ms_tensors_in_tree(&arenas->tensors, 0);
    while (tensor != NULL) {
        sum->tensors++;
        sum->bytes += tensor->bytes;
        const struct ms_tensor *next = ms_tensors_in_tree(&arenas->tensors, tensor->addr + 1);
        if (next != NULL && tensor->addr + tensor->bytes > next->addr) {
            sum->violation = "two live tensors overlap";
        }
        tensor = next;
    }
}

static const char *first_violation(struct ms_arenas *arenas)
{
    struct sum sum = {0};
    const struct ms_arenas_stats *stats = &arenas->stats;
    for (size_t at = 0; arenas->pool != NULL && at < arenas->pool->segment_count; at++) {
        if (arenas->pool->segments[at]->granules != NULL) {
            check_segment(arenas, arenas->pool->segments[at], &sum);
        }
    }
    check_tree(arenas, &sum);
    if (sum.violation == NULL &&
        (sum.tensors != stats->live_tensors || stats->births - stats->deaths != sum.tensors)) {
        sum.violation = "the number of live tensors is not births less deaths";
    }
    if (sum.violation == NULL &&
        (sum.bytes != stats->live_bytes || sum.bytes > stats->peak_live_bytes)) {
        sum.violation = "live bytes do not add up";
    }
    return sum.violation;
}

bool ms_arenas_is_valid(ms_arenas_t *arenas, char *why, size_t why_bytes)
{
    if (arenas->pool != NULL) {
        ms_lock_acquire(&arenas->pool->growth);
    }
    ms_lock_acquire(arenas->lock);
    const char *violation = first_violation(arenas);
    ms_lock_release(arenas->lock);
    if (arenas->pool != NULL) {
        ms_lock_release(&arenas->pool->growth);
    }
    if (violation != NULL && why != NULL && why_bytes > 0) {
        (void)snprintf(why, why_bytes, "%s", violation);
    }
    return violation == NULL;
}

/* With a pool its lock is ours, and the pool's part sees to it. */
void ms_arenas_fork_prepare(ms_arenas_t *arenas)
{
    ms_lock_acquire(&arenas->own_lock);
}

void ms_arenas_fork_parent(ms_arenas_t *arenas)
{
    ms_lock_release(&arenas->own_lock);
}

void ms_arenas_fork_child(ms_arenas_t *arenas)
{
    ms_lock_reset(&arenas->own_lock);
}
