/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools, and memory allocated and freed in stream order. See pool.h. */
#include "pool.h"

#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "stream.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SUPERBLOCK_BYTES (32ull << 20)
#define POOL_UNIT_BYTES  512ull

struct superblock {
    struct sim_node node; /* key: address */
    uint64_t bytes;
};

/* Freed in a stream's order: that stream may reuse it at once, others when the stream has reached
 * the free. */
struct sim_pending_free {
    struct sim_pending_free *next;
    char *address;
    uint64_t bytes;
    CUstream stream; /* referenced */
    uint64_t position;
};

static CUmemoryPool first_pool;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- life ------------------------------------------------------------------------------------ */

CUmemoryPool sim_pool_new(struct sim_device *device)
{
    CUmemoryPool pool = sim_object_new(&sim_pools);
    if (pool) {
        pool->device = device;
        pool->reuse_follow_event = pool->reuse_opportunistic = pool->reuse_internal = 1;
        pool->next = first_pool;
        first_pool = pool;
        pool->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        pool->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        pool->properties.location.id = device ? device->index : 0;
    }
    return pool;
}

bool sim_pool_is(CUmemoryPool pool)
{
    return sim_object_is(&sim_pools, pool) && !pool->is_graph;
}

CUmemoryPool sim_pool_default(struct sim_device *device)
{
    if (!device->default_pool) {
        device->default_pool = sim_pool_new(device);
        if (device->default_pool) {
            device->default_pool->is_default = true;
        }
    }
    return device->default_pool;
}

CUmemoryPool sim_pool_graph(struct sim_device *device)
{
    if (!device->graph_pool) {
        device->graph_pool = sim_pool_new(device);
        if (device->graph_pool) {
            device->graph_pool->is_graph = true;
            device->graph_pool->release_threshold = UINT64_MAX; /* until cuDeviceGraphMemTrim */
        }
    }
    return device->graph_pool;
}

/* ---- superblocks ----------------------------------------------------------------------------- */

static CUresult backing_alloc(CUmemoryPool pool, uint64_t bytes, char **address)
{
    uint64_t occupied;
    if (pool->is_graph) {
        return sim_arena_reserve(pool->device, bytes, address);
    }
    if (pool->device) {
        return sim_arena_alloc(pool->device, bytes, address, &occupied);
    }
    *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *address == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void backing_free(CUmemoryPool pool, char *address, uint64_t bytes)
{
    if (pool->is_graph) {
        sim_arena_unreserve(pool->device, address, bytes);
    } else if (pool->device) {
        sim_arena_free(pool->device, address, bytes);
    } else {
        munmap(address, bytes);
    }
}

static void count_reserved(CUmemoryPool pool, uint64_t bytes)
{
    pool->reserved += bytes;
    pool->reserved_high =
        pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
}

static void count_used(CUmemoryPool pool, uint64_t bytes)
{
    pool->used += bytes;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
}

static CUresult grow(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t size =
        round_up(bytes, bytes > SUPERBLOCK_BYTES ? SIM_GRANULE_BYTES : SUPERBLOCK_BYTES);
    uint64_t limit = pool->properties.maxSize;
    if (limit && pool->reserved + size > limit) {
        size = round_up(bytes, SIM_GRANULE_BYTES); /* the superblock's rest is optional */
    }
    if (limit && pool->reserved + size > limit) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct superblock *block = calloc(1, sizeof *block);
    char *address;
    if (!block) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = backing_alloc(pool, size, &address);
    if (status == CUDA_ERROR_OUT_OF_MEMORY && bytes < size) {
        size = round_up(bytes, SIM_GRANULE_BYTES);
        status = backing_alloc(pool, size, &address);
    }
    if (status != CUDA_SUCCESS) {
        free(block);
        return status;
    }
    block->bytes = size;
    block->node.key = (uint64_t)address;
    sim_tree_insert(&pool->superblocks, &block->node);
    sim_extents_give(&pool->free, (uint64_t)address, size, NULL, NULL);
    if (!pool->is_graph) {
        count_reserved(pool, size);
    }
    return CUDA_SUCCESS;
}

/* True: the whole superblock was free, and is removed from the free ranges. */
static bool carve_whole(CUmemoryPool pool, const struct superblock *block)
{
    uint64_t start = block->node.key;
    if (!sim_extents_contains(&pool->free, start, block->bytes)) {
        return false;
    }
    sim_extents_carve(&pool->free, start, block->bytes);
    return true;
}

/* The memory of graphs that no address has; none while a stream has yet to free some. */
static bool give_unmapped(CUmemoryPool pool)
{
    if (pool->pending) {
        return false;
    }
    uint64_t surplus = pool->reserved - round_up(pool->used, SIM_GRANULE_BYTES);
    sim_account_uncharge(pool->device->index, surplus);
    pool->reserved -= surplus;
    return surplus != 0;
}

bool sim_pool_trim(CUmemoryPool pool, uint64_t keep)
{
    bool given = pool->is_graph && give_unmapped(pool);
    struct sim_node *node = sim_tree_first(&pool->superblocks);
    while (node && (pool->is_graph || pool->reserved > keep)) {
        struct superblock *block = SIM_OWNER(node, struct superblock, node);
        node = sim_tree_next(&pool->superblocks, node);
        if (carve_whole(pool, block)) {
            sim_tree_remove(&pool->superblocks, &block->node);
            pool->reserved -= pool->is_graph ? 0 : block->bytes;
            given = given || !pool->is_graph;
            backing_free(pool, (char *)block->node.key, block->bytes);
            free(block);
        }
    }
    return given;
}

void sim_pool_superblock(const struct sim_range *range, CUdeviceptr *start, uint64_t *bytes)
{
    struct sim_node *node =
        sim_tree_floor(&range->pool->superblocks, (uint64_t)range->address, UINT64_MAX);
    const struct superblock *block = SIM_OWNER(node, struct superblock, node);
    *start = block->node.key;
    *bytes = block->bytes;
}

/* ---- frees in stream order ------------------------------------------------------------------- */

void sim_pool_collect(CUmemoryPool pool)
{
    struct sim_pending_free **link = &pool->pending;
    while (*link) {
        struct sim_pending_free *pending = *link;
        if (pending->stream->completed >= pending->position) {
            sim_extents_give(&pool->free, (uint64_t)pending->address, pending->bytes, NULL, NULL);
            sim_stream_release(pending->stream);
            *link = pending->next;
            free(pending);
        } else {
            link = &pending->next;
        }
    }
}

/* The tightest pending free that `stream` may reuse: one of its own; NULL: none. */
static struct sim_pending_free **find_own(CUmemoryPool pool, uint64_t bytes, CUstream stream)
{
    struct sim_pending_free **best = NULL;
    for (struct sim_pending_free **link = &pool->pending; *link; link = &(*link)->next) {
        if ((*link)->stream == stream && (*link)->bytes >= bytes &&
            (!best || (*link)->bytes < (*best)->bytes)) {
            best = link;
        }
    }
    return best;
}

/* Takes the beginning of a pending free; its rest remains pending. */
static char *take_pending(struct sim_pending_free **link, uint64_t bytes)
{
    struct sim_pending_free *pending = *link;
    char *address = pending->address;
    pending->address += bytes;
    pending->bytes -= bytes;
    if (pending->bytes == 0) {
        *link = pending->next;
        sim_stream_release(pending->stream);
        free(pending);
    }
    return address;
}

/* With CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES another stream's free may be reused, too:
 * the allocating stream then waits for it. */
static char *take_behind(CUmemoryPool pool, uint64_t bytes, CUstream stream)
{
    if (!stream || !pool->reuse_internal) {
        return NULL;
    }
    for (struct sim_pending_free **link = &pool->pending; *link; link = &(*link)->next) {
        if ((*link)->bytes >= bytes) {
            struct sim_work wait = {.kind = SIM_WORK_EMPTY};
            struct sim_dependency behind = {(*link)->stream, (*link)->position};
            if (sim_submit_behind(stream, &wait, behind, NULL) != CUDA_SUCCESS) {
                return NULL;
            }
            return take_pending(link, bytes);
        }
    }
    return NULL;
}

static char *find_free(CUmemoryPool pool, uint64_t bytes, CUstream stream)
{
    uint64_t address;
    struct sim_pending_free **own = stream ? find_own(pool, bytes, stream) : NULL;
    if (own) {
        return take_pending(own, bytes);
    }
    return sim_extents_take(&pool->free, bytes, 1, &address) ? (char *)address : NULL;
}

/* The last resort before an error: waits for all pending frees. */
static void wait_for_pending(CUmemoryPool pool)
{
    while (pool->pending) {
        sim_wait_position(pool->pending->stream, pool->pending->position);
        sim_pool_collect(pool);
    }
}

static CUresult find_memory(CUmemoryPool pool, uint64_t bytes, CUstream stream, char **address)
{
    sim_pool_collect(pool);
    *address = find_free(pool, bytes, stream);
    if (*address) {
        return CUDA_SUCCESS;
    }
    CUresult status = grow(pool, bytes);
    if (status == CUDA_ERROR_OUT_OF_MEMORY && pool->device && sim_pools_give_back(pool->device)) {
        status = grow(pool, bytes);
    }
    if (status == CUDA_ERROR_OUT_OF_MEMORY) {
        *address = take_behind(pool, bytes, stream);
        if (*address) {
            return CUDA_SUCCESS;
        }
        wait_for_pending(pool);
        if (pool->device) {
            sim_pools_give_back(pool->device);
        }
        status = sim_extents_fits(&pool->free, bytes) ? CUDA_SUCCESS : grow(pool, bytes);
    }
    if (status == CUDA_SUCCESS) {
        *address = find_free(pool, bytes, NULL);
        status = *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return status;
}

CUresult sim_pool_alloc(CUmemoryPool pool, uint64_t bytes, CUstream stream,
                        struct sim_range **result)
{
    char *address;
    uint64_t occupied = round_up(bytes, POOL_UNIT_BYTES);
    if (bytes > sim_settings.memory_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = find_memory(pool, occupied, stream, &address);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_range *range = sim_range_new(SIM_RANGE_POOL, address, bytes, pool->device, NULL);
    if (!range) {
        sim_extents_give(&pool->free, (uint64_t)address, occupied, NULL, NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->occupied = occupied;
    range->pool = pool;
    pool->live_ranges++;
    if (!pool->is_graph) {
        count_used(pool, occupied);
    }
    *result = range;
    return CUDA_SUCCESS;
}

/* ---- memory behind the addresses of graphs --------------------------------------------------- */

static CUresult provide(CUmemoryPool pool, uint64_t bytes, uint64_t unit)
{
    uint64_t unused = pool->reserved - pool->used;
    uint64_t more = bytes > unused ? round_up(bytes - unused, unit) : 0;
    CUresult status = more ? sim_account_charge(pool->device->index, more) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        count_reserved(pool, more);
    }
    return status;
}

CUresult sim_pool_provide(CUmemoryPool pool, uint64_t bytes)
{
    CUresult status =
        provide(pool, bytes, bytes > SUPERBLOCK_BYTES ? SIM_GRANULE_BYTES : SUPERBLOCK_BYTES);
    if (status == CUDA_ERROR_OUT_OF_MEMORY) {
        sim_pools_give_back(pool->device);
        status = provide(pool, bytes, SIM_GRANULE_BYTES);
    }
    return status;
}

void sim_pool_back(struct sim_range *range)
{
    if (!range->graph_backed) {
        range->graph_backed = true;
        count_used(range->pool, range->occupied);
    }
}

void sim_pool_unback(struct sim_range *range)
{
    range->graph_backed = false;
    range->pool->used -= range->occupied;
}

/* ---- frees ----------------------------------------------------------------------------------- */

/* The pool no longer counts the range; the caller decides about its bytes. */
static void forget_range(struct sim_range *range)
{
    CUmemoryPool pool = range->pool;
    pool->used -= !pool->is_graph || range->graph_backed ? range->occupied : 0;
    pool->live_ranges--;
    sim_range_delete(range);
}

void sim_pool_release_destroyed(CUmemoryPool pool)
{
    if (!pool->destroyed || pool->live_ranges || pool->pending) {
        return;
    }
    sim_pool_trim(pool, 0);
    CUmemoryPool *link = &first_pool;
    while (*link != pool) {
        link = &(*link)->next;
    }
    *link = pool->next;
    sim_extents_clear(&pool->free);
    sim_object_free(&sim_pools, pool);
}

void sim_pool_free_now(struct sim_range *range)
{
    CUmemoryPool pool = range->pool;
    uint64_t address = (uint64_t)range->address, occupied = range->occupied;
    forget_range(range);
    sim_extents_give(&pool->free, address, occupied, NULL, NULL);
    sim_pool_release_destroyed(pool);
}

CUresult sim_pool_free_in_order(struct sim_range *range, CUstream stream)
{
    CUmemoryPool pool = range->pool;
    struct sim_pending_free *pending = calloc(1, sizeof *pending);
    if (!pending) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_work work = {.kind = SIM_WORK_FREE,
                            .memory = {.address = (CUdeviceptr)range->address}};
    pending->address = range->address;
    pending->bytes = range->occupied;
    pending->stream = sim_stream_retain(stream);
    pending->position = stream->submitted + 1;
    CUresult status = sim_capture_forbids_legacy(stream);
    if (status != CUDA_SUCCESS) {
        sim_stream_release(stream);
        free(pending);
        return status;
    }
    forget_range(range);
    pending->next = pool->pending;
    pool->pending = pending;
    return sim_submit(stream, &work, NULL);
}

/* ---- all pools of a device ------------------------------------------------------------------- */

void sim_pools_at_synchronize(struct sim_device *device)
{
    for (CUmemoryPool pool = first_pool, next; pool; pool = next) {
        next = pool->next;
        if (pool->device == device && pool->reserved) {
            sim_pool_collect(pool);
            if (pool->reserved > pool->release_threshold) {
                sim_pool_trim(pool, pool->release_threshold);
            }
            sim_pool_release_destroyed(pool);
        }
    }
}

bool sim_pools_give_back(struct sim_device *device)
{
    bool given = false;
    for (CUmemoryPool pool = first_pool; pool; pool = pool->next) {
        if (pool->device == device && pool->reserved) {
            sim_pool_collect(pool);
            given = sim_pool_trim(pool, 0) || given;
        }
    }
    return given;
}

static void free_pool_ranges(struct sim_device *device)
{
    struct sim_range *range = sim_range_from((CUdeviceptr)device->arena);
    while (range && range->address < device->arena + device->arena_bytes) {
        CUdeviceptr after = (CUdeviceptr)range->address + 1;
        if (range->kind == SIM_RANGE_POOL) {
            sim_pool_free_now(range);
        }
        range = sim_range_from(after);
    }
}

/* Pools belong to the device, not to a context. But with the device's last context, their memory
 * goes, too (cudaDeviceReset frees all of a device's memory). */
void sim_pools_forget_context(CUcontext context)
{
    for (CUcontext other = sim_first_context(); other; other = other->next) {
        if (other->device == context->device) {
            return;
        }
    }
    free_pool_ranges(context->device);
    sim_pools_give_back(context->device);
}
