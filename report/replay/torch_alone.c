/* SPDX-License-Identifier: Apache-2.0 */
/* Models what PyTorch's caching allocator would do in a recorded run. Names in comments are those
 * of its source. */
#include "report/replay/torch_alone.h"

#include <stdlib.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/containers/slab.h"

#define MIB                  (UINT64_C(1) << 20)
#define LEAST_BLOCK          512        /* kMinBlockSize */
#define SMALL_SIZE           MIB        /* kSmallSize: the largest of the small pool */
#define SMALL_SEGMENT        (2 * MIB)  /* kSmallBuffer */
#define LARGE_SEGMENT        (20 * MIB) /* kLargeBuffer */
#define LEAST_OWN_SEGMENT    (10 * MIB) /* kMinLargeAlloc: from this size on a segment of its own */
#define ROUND_SEGMENT        (2 * MIB)  /* kRoundLarge */
#define DRIVER_GRAIN         (2 * MIB)
#define DRIVER_SMALL         MIB /* the driver cuts blocks up to this size out of shared grains */
#define DRIVER_LEAST         512
#define EXPANDABLE_ADDRESSES (LARGE_SEGMENT << 22) /* whole pages of either size */

enum block_state { LIVE, FREE, UNMAPPED };

/* Neighbours by address within a segment; an expandable segment is one long row of them. */
struct block {
    struct block *before, *after;
    struct block *left, *right; /* in its pool's list of free or unmapped blocks */
    struct pool *pool;
    uint64_t addr, bytes;
    enum block_state state;
};

/* One of a stream's two pools. */
struct pool {
    struct block *free, *unmapped; /* unordered */
    uint64_t page_bytes;
    bool small;
};

struct allocator {
    const struct ms_recording *recording;
    struct ms_torch_alone *result;
    struct ms_slab blocks;
    struct block **of_object; /* null: not live, or not PyTorch's */
    uint64_t *beside_bytes;   /* by object, for blocks that are not PyTorch's */
    uint64_t small_bytes;     /* of those, the small ones together */
    struct pool *pools;       /* two for each arena of the recording, and two for all else */
    size_t pool_count;
    uint64_t next_addr;
    uint64_t cap_bytes, reserved_bytes, other_bytes;
    bool expandable;
};

/* Rounds up to pages, whose 20 MiB are no power of two. */
static uint64_t round_up_pages(uint64_t bytes, uint64_t page_bytes)
{
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/* ---- lists ---- */

static struct block **list_of(const struct block *block)
{
    return block->state == FREE ? &block->pool->free : &block->pool->unmapped;
}

static void put(struct block *block, enum block_state state)
{
    block->state = state;
    if (state != LIVE) {
        struct block **list = list_of(block);

        block->left = NULL;
        block->right = *list;
        if (*list) {
            (*list)->left = block;
        }
        *list = block;
    }
}

static void take(struct block *block)
{
    if (block->state == LIVE) {
        return;
    }
    if (block->left) {
        block->left->right = block->right;
    } else {
        *list_of(block) = block->right;
    }
    if (block->right) {
        block->right->left = block->left;
    }
    block->state = LIVE;
}

static struct block *new_block(struct allocator *allocator, struct pool *pool, uint64_t addr,
                               uint64_t bytes)
{
    struct block *block = ms_slab_take(&allocator->blocks);

    if (!block) {
        allocator->result->host_memory = true;
        return NULL;
    }
    *block = (struct block){.pool = pool, .addr = addr, .bytes = bytes, .state = LIVE};
    return block;
}

/* Splits off the part after so many bytes, in that state. False: no host memory. */
static bool split(struct allocator *allocator, struct block *block, uint64_t bytes,
                  enum block_state state)
{
    struct block *rest;

    if (block->bytes == bytes) {
        return true;
    }
    rest = new_block(allocator, block->pool, block->addr + bytes, block->bytes - bytes);
    if (!rest) {
        return false;
    }
    rest->before = block;
    rest->after = block->after;
    if (rest->after) {
        rest->after->before = rest;
    }
    block->after = rest;
    block->bytes = bytes;
    put(rest, state);
    return true;
}

/* Joins the next block into this one. */
static void swallow(struct allocator *allocator, struct block *block)
{
    struct block *gone = block->after;

    take(gone);
    block->bytes += gone->bytes;
    block->after = gone->after;
    if (block->after) {
        block->after->before = block;
    }
    ms_slab_give(&allocator->blocks, gone);
}

/* Gives it that state, and joins it with neighbours in the same state. Returns the resulting
 * block. */
static struct block *settle(struct allocator *allocator, struct block *block,
                            enum block_state state)
{
    take(block);
    if (block->after && block->after->state == state) {
        swallow(allocator, block);
    }
    if (block->before && block->before->state == state) {
        block = block->before;
        take(block);
        swallow(allocator, block);
    }
    put(block, state);
    return block;
}

/* ---- the driver's memory ---- */

static bool charge(struct allocator *allocator, uint64_t bytes)
{
    const uint64_t charged = allocator->reserved_bytes + allocator->other_bytes + bytes;

    if (charged > allocator->cap_bytes) {
        return false;
    }
    if (charged > allocator->result->peak_charged_bytes) {
        allocator->result->peak_charged_bytes = charged;
    }
    return true;
}

static bool reserve(struct allocator *allocator, uint64_t bytes)
{
    if (!charge(allocator, bytes)) {
        return false;
    }
    allocator->reserved_bytes += bytes;
    if (allocator->reserved_bytes > allocator->result->peak_reserved_bytes) {
        allocator->result->peak_reserved_bytes = allocator->reserved_bytes;
    }
    return true;
}

/* unmap_block: the whole pages of a free block. */
static void unmap_pages(struct allocator *allocator, struct block *block)
{
    const uint64_t page = block->pool->page_bytes;
    const uint64_t first = round_up_pages(block->addr, page);
    const uint64_t end = (block->addr + block->bytes) / page * page;

    if (end <= first) {
        return;
    }
    take(block);
    if (first > block->addr) {
        if (!split(allocator, block, first - block->addr, LIVE)) {
            put(block, FREE);
            return;
        }
        put(block, FREE);
        block = block->after;
    }
    if (!split(allocator, block, end - first, FREE)) {
        put(block, FREE);
        return;
    }
    allocator->reserved_bytes -= end - first;
    (void)settle(allocator, block, UNMAPPED);
}

/* release_blocks */
static void release_pool(struct allocator *allocator, struct pool *pool)
{
    struct block *next;

    for (struct block *block = pool->free; block; block = next) {
        next = block->right;
        if (allocator->expandable) {
            unmap_pages(allocator, block);
        } else if (!block->before && !block->after) {
            take(block);
            allocator->reserved_bytes -= block->bytes;
            ms_slab_give(&allocator->blocks, block);
        }
    }
}

/* release_cached_blocks */
static void release_cached(struct allocator *allocator)
{
    for (size_t i = 0; i < allocator->pool_count; i++) {
        release_pool(allocator, &allocator->pools[i]);
    }
}

/* ---- a segment, or pages ---- */

/* alloc_block: of the size from get_allocation_size. */
static struct block *new_segment(struct allocator *allocator, struct pool *pool, uint64_t bytes)
{
    const uint64_t segment = pool->small                 ? SMALL_SEGMENT
                             : bytes < LEAST_OWN_SEGMENT ? LARGE_SEGMENT
                                                         : ms_round_up(bytes, ROUND_SEGMENT);
    struct block *block;

    if (!reserve(allocator, segment)) {
        return NULL;
    }
    block = new_block(allocator, pool, allocator->next_addr, segment);
    allocator->next_addr += segment;
    return block;
}

static bool has_room(const struct block *block, uint64_t bytes)
{
    uint64_t room = 0;

    for (; room < bytes && block && block->state != LIVE; block = block->after) {
        room += block->bytes;
    }
    return room >= bytes;
}

/* find_expandable_block: the lowest unmapped block with room after it, or the free one before
 * it. */
static struct block *find_expandable(struct allocator *allocator, struct pool *pool, uint64_t bytes)
{
    struct block *lowest = NULL;

    for (struct block *block = pool->unmapped; block; block = block->right) {
        if ((!lowest || block->addr < lowest->addr) && has_room(block, bytes)) {
            lowest = block;
        }
    }
    if (!lowest) {
        lowest = new_block(allocator, pool, allocator->next_addr, EXPANDABLE_ADDRESSES);
        if (lowest) {
            allocator->next_addr += EXPANDABLE_ADDRESSES;
            put(lowest, UNMAPPED);
        }
        return lowest;
    }
    return lowest->before && lowest->before->state == FREE ? lowest->before : lowest;
}

/* try_allocate_expandable_block. Pages that were mapped before memory ran out stay. */
static struct block *expand(struct allocator *allocator, struct pool *pool, uint64_t bytes)
{
    struct block *block = find_expandable(allocator, pool, bytes);

    while (block && (block->state == UNMAPPED || block->bytes < bytes)) {
        struct block *next = block->state == UNMAPPED ? block : block->after;
        const uint64_t wanted = block->state == UNMAPPED ? bytes : bytes - block->bytes;
        const uint64_t mapped =
            round_up_pages(wanted < next->bytes ? wanted : next->bytes, pool->page_bytes);

        if (next->state == UNMAPPED) {
            if (!reserve(allocator, mapped)) {
                return NULL;
            }
            take(next);
            if (!split(allocator, next, mapped, UNMAPPED)) {
                return NULL;
            }
        }
        block = settle(allocator, next, FREE);
    }
    if (block) {
        take(block);
    }
    return block;
}

/* ---- tensors ---- */

/* By size, then by address. */
static bool is_behind(const struct block *block, uint64_t bytes, uint64_t addr)
{
    return block->bytes > bytes || (block->bytes == bytes && block->addr >= addr);
}

/* The first free block, in that order, from so many bytes and that address on. */
static struct block *first_behind(const struct pool *pool, uint64_t bytes, uint64_t addr)
{
    struct block *first = NULL;

    for (struct block *block = pool->free; block; block = block->right) {
        if (is_behind(block, bytes, addr) &&
            (!first || !is_behind(block, first->bytes, first->addr))) {
            first = block;
        }
    }
    return first;
}

/* The size that it could grow to. */
static uint64_t expandable_bytes(const struct block *block)
{
    const struct block *after = block->after;

    return block->bytes + (after && after->state == UNMAPPED ? after->bytes : 0);
}

/* get_free_block: the smallest that is large enough, of these the lowest. A block that could get
 * more pages counts with the size that it could grow to. */
static struct block *best_fit(const struct allocator *allocator, const struct pool *pool,
                              uint64_t bytes)
{
    struct block *best = first_behind(pool, bytes, 0);

    while (allocator->expandable && best && (best->before || best->after)) {
        struct block *next = first_behind(pool, best->bytes, best->addr + 1);

        if (!next || expandable_bytes(next) >= expandable_bytes(best)) {
            break;
        }
        best = next;
    }
    if (best) {
        take(best);
    }
    return best;
}

/* should_split */
static bool is_split(const struct allocator *allocator, const struct block *block, uint64_t bytes)
{
    const uint64_t rest = block->bytes - bytes;

    return block->pool->small || allocator->expandable ? rest >= LEAST_BLOCK : rest > SMALL_SIZE;
}

static struct pool *pools_of(const struct allocator *allocator, uint32_t arena)
{
    const size_t arenas = ms_recording_arenas(allocator->recording);
    const bool known =
        arena < arenas && ms_recording_arena(allocator->recording, arena)->reservation;

    return &allocator->pools[2 * (known ? (size_t)arena : arenas)];
}

/* The pool of the requesting stream, as far as the recording shows it: PyTorch has an expandable
 * segment for each stream, and the recording one arena for each of those. */
static struct pool *pool_of(struct allocator *allocator, const struct ms_operation *operation)
{
    const bool small = operation->bytes <= SMALL_SIZE;

    return &pools_of(allocator, operation->arena)[small ? 0 : 1];
}

static bool born(struct allocator *allocator, const struct ms_operation *operation)
{
    struct pool *pool = pool_of(allocator, operation);
    const uint64_t bytes =
        ms_round_up(operation->bytes > 0 ? operation->bytes : LEAST_BLOCK, LEAST_BLOCK);
    struct block *block = NULL;

    for (int tries = 0; !block && tries < 2; tries++) {
        block = best_fit(allocator, pool, bytes);
        if (!block) {
            block = (allocator->expandable ? expand : new_segment)(allocator, pool, bytes);
        }
        if (!block) {
            release_cached(allocator);
        }
    }
    if (!block || (is_split(allocator, block, bytes) && !split(allocator, block, bytes, FREE))) {
        return false;
    }
    allocator->of_object[operation->object] = block;
    return true;
}

/* PyTorch has freed its cache for it nonetheless. */
static bool goes_without(struct allocator *allocator, const struct ms_operation *operation)
{
    allocator->result->went_without |= operation->optional;
    return operation->optional;
}

static void died(struct allocator *allocator, const struct ms_operation *operation)
{
    struct block *block = allocator->of_object[operation->object];

    allocator->of_object[operation->object] = NULL;
    if (block) {
        (void)settle(allocator, block, FREE);
    }
}

/* A stream's expandable segment went with its last page, because the program called empty_cache:
 * the stream's next one is another arena. */
static void gave_segment(struct allocator *allocator, uint32_t arena)
{
    struct pool *pools = pools_of(allocator, arena);

    release_pool(allocator, &pools[0]);
    release_pool(allocator, &pools[1]);
}

/* ---- the run ---- */

/* An allocation of the driver's or of a library: neither asks PyTorch to free its cache. So a
 * handle of cuBLAS fails where a tensor of that size would not. */
static bool add_other(struct allocator *allocator, uint64_t bytes)
{
    if (!charge(allocator, bytes)) {
        return false;
    }
    allocator->other_bytes += bytes;
    return true;
}

static void drop_other(struct allocator *allocator, uint64_t bytes)
{
    allocator->other_bytes -= bytes < allocator->other_bytes ? bytes : allocator->other_bytes;
}

/* The whole grains that small blocks of so many bytes take together. */
static uint64_t grains(uint64_t small_bytes)
{
    return ms_round_up(small_bytes, DRIVER_GRAIN);
}

/* False: it is a block of the program's own, not a segment of PyTorch's, and there is no room. */
static bool took(struct allocator *allocator, const struct ms_operation *operation)
{
    const bool small = operation->bytes <= DRIVER_SMALL;
    const uint64_t bytes = ms_round_up(operation->bytes, small ? DRIVER_LEAST : DRIVER_GRAIN);
    const uint64_t before = allocator->small_bytes;

    if (operation->arena != MS_RECORDED_NONE) {
        return true;
    }
    allocator->beside_bytes[operation->object] = bytes;
    allocator->small_bytes += small ? bytes : 0;
    return add_other(allocator, small ? grains(before + bytes) - grains(before) : bytes);
}

static void gave(struct allocator *allocator, const struct ms_operation *operation)
{
    const uint64_t bytes = allocator->beside_bytes[operation->object];
    const uint64_t before = allocator->small_bytes;

    allocator->beside_bytes[operation->object] = 0;
    if (bytes > DRIVER_SMALL) {
        drop_other(allocator, bytes);
        return;
    }
    allocator->small_bytes -= bytes;
    drop_other(allocator, grains(before) - grains(before - bytes));
}

static bool play(struct allocator *allocator, const struct ms_operation *operation)
{
    switch (operation->kind) {
    case MS_OPERATION_TENSOR_ALLOC:
        return born(allocator, operation) || goes_without(allocator, operation);
    case MS_OPERATION_TENSOR_FREE:
        died(allocator, operation);
        return true;
    case MS_OPERATION_ALLOC:
        return took(allocator, operation);
    case MS_OPERATION_FREE:
        gave(allocator, operation);
        return true;
    case MS_OPERATION_UNRESERVE:
        gave_segment(allocator, operation->arena);
        return true;
    case MS_OPERATION_CHARGE:
        return add_other(allocator, operation->bytes);
    case MS_OPERATION_DISCHARGE:
        drop_other(allocator, operation->bytes);
        return true;
    default:
        return true;
    }
}

static bool set_up(struct allocator *allocator)
{
    const size_t objects = (size_t)allocator->recording->objects + 1;

    ms_slab_init(&allocator->blocks, sizeof(struct block));
    allocator->pool_count = 2 * (ms_recording_arenas(allocator->recording) + 1);
    allocator->pools = calloc(allocator->pool_count, sizeof(*allocator->pools));
    allocator->of_object = calloc(objects, sizeof(struct block *));
    allocator->beside_bytes = calloc(objects, sizeof(*allocator->beside_bytes));
    for (size_t i = 0; allocator->pools && i < allocator->pool_count; i++) {
        allocator->pools[i].small = i % 2 == 0;
        allocator->pools[i].page_bytes = i % 2 == 0 ? SMALL_SEGMENT : LARGE_SEGMENT;
    }
    return allocator->pools && allocator->of_object && allocator->beside_bytes;
}

void ms_torch_alone_run(const struct ms_recording *recording, uint64_t cap_bytes, bool expandable,
                        struct ms_torch_alone *result)
{
    struct allocator allocator = {.recording = recording,
                                  .result = result,
                                  .cap_bytes = cap_bytes,
                                  .expandable = expandable,
                                  .next_addr = LARGE_SEGMENT};
    const size_t count = ms_recording_count(recording);

    *result = (struct ms_torch_alone){0};
    result->host_memory = !set_up(&allocator);
    for (size_t i = 0; i < count && !result->host_memory && !result->failed; i++) {
        result->failed = !play(&allocator, ms_recording_at(recording, i));
        result->operation = i;
    }
    ms_slab_destroy(&allocator.blocks);
    free(allocator.pools);
    free((void *)allocator.of_object);
    free(allocator.beside_bytes);
}
