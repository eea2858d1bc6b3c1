/* SPDX-License-Identifier: Apache-2.0 */
/* A caching allocator as frameworks have it. See repair_allocator.h. */
#include "repair_allocator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MEMSHIM_WEAK
#include "say.h"
#include "shim/memshim.h"

#define ALIGNMENT_BYTES   512u
#define SMALL_BYTES       MIB /* up to here from small arenas */
#define SMALL_ARENA_BYTES (2 * MIB)
#define PAGE_BYTES        (20 * MIB) /* of an arena that grows, and of a large one */
#define ALONE_BYTES       (10 * MIB) /* from here on an arena of its own */
#define RESERVATION_BYTES (8 * GIB)
#define USERS             4

/* c10::reportMemoryUsageToProfiler. device: type (1: CUDA) and ordinal, in a byte each. */
void torch_report(void *at, int64_t bytes, size_t total_allocated, size_t total_reserved,
                  uint16_t device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

/* A part of an arena. Neighbours in one list, by address. */
struct part {
    struct part *next, *before;
    struct arena *arena;
    CUdeviceptr at;
    size_t bytes;
    bool live;
    CUevent users[USERS]; /* of a dead part that is held back */
    size_t user_count;
};

struct arena {
    struct arena *next;
    CUstream stream;
    CUdeviceptr at;
    size_t bytes; /* backed by the driver, from `at` on */
    bool small, grows;
    struct part *parts;
};

struct repair_allocator {
    pthread_mutex_t lock;
    CUdevice device;
    enum repair_arenas kind;
    CUmemAccessDesc access[8];
    size_t access_count;
    struct arena *arenas;
    struct repair_stats stats;
};

struct repair_allocator *repair_allocator_new(CUdevice device, enum repair_arenas kind,
                                              const CUdevice *peers, size_t peer_count)
{
    struct repair_allocator *made = calloc(1, sizeof(*made));
    EXPECT(made != NULL && peer_count < 8);
    made->device = device;
    made->kind = kind;
    MUST(pthread_mutex_init(&made->lock, NULL));
    for (size_t i = 0; i <= peer_count; i++) {
        made->access[i] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i == 0 ? device : peers[i - 1]},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    made->access_count = peer_count + 1;
    return made;
}

/* --- Parts -------------------------------------------------------------------------------------
 */

/* Held back no longer, where all its users' events have passed; wait: until they have. */
static bool is_free(struct part *part, bool wait)
{
    if (part->live) {
        return false;
    }
    while (part->user_count > 0) {
        CUevent user = part->users[part->user_count - 1];
        if (wait) {
            MUST(cuEventSynchronize(user));
        } else if (cuEventQuery(user) != CUDA_SUCCESS) {
            return false;
        }
        MUST(cuEventDestroy(user));
        part->user_count--;
    }
    return true;
}

static void join_next(struct part *part)
{
    struct part *gone = part->next;
    part->bytes += gone->bytes;
    part->next = gone->next;
    if (part->next != NULL) {
        part->next->before = part;
    }
    free(gone);
}

static struct part *add_part(struct arena *arena, struct part *before, CUdeviceptr at, size_t bytes)
{
    struct part *part = calloc(1, sizeof(*part));
    EXPECT(part != NULL);
    *part = (struct part){.before = before,
                          .next = before != NULL ? before->next : arena->parts,
                          .arena = arena,
                          .at = at,
                          .bytes = bytes};
    *(before != NULL ? &before->next : &arena->parts) = part;
    if (part->next != NULL) {
        part->next->before = part;
    }
    return part;
}

/* Free neighbours become one. */
static void tidy(struct arena *arena, bool wait)
{
    for (struct part *part = arena->parts; part != NULL; part = part->next) {
        while (is_free(part, wait) && part->next != NULL && is_free(part->next, wait)) {
            join_next(part);
        }
    }
}

static struct part *best_part(struct repair_allocator *allocator, size_t bytes, CUstream stream)
{
    struct part *best = NULL;
    bool small = bytes <= SMALL_BYTES;
    for (struct arena *arena = allocator->arenas; arena != NULL; arena = arena->next) {
        if (arena->stream != stream || arena->small != small) {
            continue;
        }
        tidy(arena, false);
        for (struct part *part = arena->parts; part != NULL; part = part->next) {
            if (part->bytes >= bytes && (best == NULL || part->bytes < best->bytes) &&
                is_free(part, false)) {
                best = part;
            }
        }
    }
    return best;
}

/* --- Arenas ------------------------------------------------------------------------------------
 */

static void hold(struct repair_allocator *allocator, size_t bytes)
{
    allocator->stats.held_bytes += bytes;
    if (allocator->stats.held_bytes > allocator->stats.peak_held_bytes) {
        allocator->stats.peak_held_bytes = allocator->stats.held_bytes;
    }
}

static struct arena *new_arena(struct repair_allocator *allocator, CUstream stream, bool small)
{
    struct arena *arena = calloc(1, sizeof(*arena));
    EXPECT(arena != NULL);
    *arena = (struct arena){.next = allocator->arenas, .stream = stream, .small = small};
    allocator->arenas = arena;
    return arena;
}

static void delete_arena(struct repair_allocator *allocator, struct arena *arena)
{
    struct arena **link = &allocator->arenas;
    while (*link != arena) {
        link = &(*link)->next;
    }
    *link = arena->next;
    free(arena);
}

static bool add_segment(struct repair_allocator *allocator, size_t bytes, CUstream stream)
{
    bool small = bytes <= SMALL_BYTES;
    size_t size = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    CUdeviceptr at;
    if (bytes < ALONE_BYTES) {
        size = small ? SMALL_ARENA_BYTES : PAGE_BYTES;
    }
    CUresult result = cuMemAlloc(&at, size);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        MUST(result);
        struct arena *arena = new_arena(allocator, stream, small);
        arena->at = at;
        arena->bytes = size;
        (void)add_part(arena, NULL, at, size);
        hold(allocator, size);
    }
    return result == CUDA_SUCCESS;
}

static struct arena *growing_arena(struct repair_allocator *allocator, CUstream stream, bool small)
{
    struct arena *arena = allocator->arenas;
    while (arena != NULL && (arena->stream != stream || arena->small != small)) {
        arena = arena->next;
    }
    if (arena == NULL) {
        arena = new_arena(allocator, stream, small);
        arena->grows = true;
        MUST(cuMemAddressReserve(&arena->at, RESERVATION_BYTES, 0, 0, 0));
    }
    return arena;
}

static bool add_page(struct repair_allocator *allocator, struct arena *arena)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = allocator->device}};
    CUmemGenericAllocationHandle handle;
    size_t size = arena->small ? SMALL_ARENA_BYTES : PAGE_BYTES;
    CUdeviceptr at = arena->at + arena->bytes;
    EXPECT(arena->bytes + size <= RESERVATION_BYTES);
    CUresult result = cuMemCreate(&handle, size, &properties, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return false;
    }
    MUST(result);
    MUST(cuMemMap(at, size, 0, handle, 0));
    MUST(cuMemSetAccess(at, size, allocator->access, allocator->access_count));
    MUST(cuMemRelease(handle));
    struct part *last = arena->parts;
    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    (void)add_part(arena, last, at, size);
    arena->bytes += size;
    hold(allocator, size);
    return true;
}

/* Enough pages behind the last one that a free part of this size ends there. */
static bool grow(struct repair_allocator *allocator, size_t bytes, CUstream stream)
{
    struct arena *arena = growing_arena(allocator, stream, bytes <= SMALL_BYTES);
    for (;;) {
        tidy(arena, false);
        struct part *last = arena->parts;
        while (last != NULL && last->next != NULL) {
            last = last->next;
        }
        if (last != NULL && last->bytes >= bytes && is_free(last, false)) {
            return true;
        }
        if (!add_page(allocator, arena)) {
            return false;
        }
    }
}

static bool give_back_segment(struct repair_allocator *allocator, struct arena *arena)
{
    if (arena->parts->next != NULL || !is_free(arena->parts, true)) {
        return false;
    }
    MUST(cuMemFree(arena->at));
    allocator->stats.held_bytes -= arena->bytes;
    free(arena->parts);
    delete_arena(allocator, arena);
    return true;
}

static void give_back_pages(struct repair_allocator *allocator, struct arena *arena)
{
    size_t page = arena->small ? SMALL_ARENA_BYTES : PAGE_BYTES;
    struct part *last = arena->parts;
    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    if (last == NULL || !is_free(last, true)) {
        return;
    }
    size_t size = last->bytes / page * page;
    if (size == 0) {
        return;
    }
    MUST(cuMemUnmap(arena->at + arena->bytes - size, size));
    arena->bytes -= size;
    allocator->stats.held_bytes -= size;
    last->bytes -= size;
    if (last->bytes == 0) {
        *(last->before != NULL ? &last->before->next : &arena->parts) = NULL;
        free(last);
    }
}

static void empty_cache(struct repair_allocator *allocator, CUstream stream)
{
    MUST(cuStreamSynchronize(stream));
    for (struct arena *arena = allocator->arenas, *next; arena != NULL; arena = next) {
        next = arena->next;
        if (arena->stream != stream) {
            continue;
        }
        tidy(arena, true);
        if (arena->grows) {
            give_back_pages(allocator, arena);
        } else {
            (void)give_back_segment(allocator, arena);
        }
    }
}

/* --- The interface -----------------------------------------------------------------------------
 */

/* With the sums as they are after it. */
static void report(struct repair_allocator *allocator, const struct part *part, bool born)
{
    int64_t bytes = (int64_t)part->bytes;
    void *at = (void *)(uintptr_t)part->at; // NOLINT(performance-no-int-to-ptr)
    if (allocator->kind == REPAIR_PAGES) {
        torch_report(at, born ? bytes : -bytes, allocator->stats.live_bytes,
                     allocator->stats.held_bytes, (uint16_t)(allocator->device << 8 | 1));
    } else if (born && memshim_range_born != NULL) {
        memshim_range_born(allocator->device, at, part->bytes);
    } else if (!born && memshim_range_died != NULL) {
        memshim_range_died(allocator->device, at, part->bytes);
    }
}

static CUdeviceptr hand_out(struct repair_allocator *allocator, struct part *part, size_t bytes)
{
    if (part->bytes - bytes >= ALIGNMENT_BYTES) {
        (void)add_part(part->arena, part, part->at + bytes, part->bytes - bytes);
        part->bytes = bytes;
    }
    part->live = true;
    struct repair_stats *stats = &allocator->stats;
    stats->live_bytes += part->bytes;
    if (stats->live_bytes > stats->peak_live_bytes) {
        stats->peak_live_bytes = stats->live_bytes;
    }
    report(allocator, part, true);
    return part->at;
}

static bool add_memory(struct repair_allocator *allocator, size_t bytes, CUstream stream)
{
    return allocator->kind == REPAIR_PAGES ? grow(allocator, bytes, stream)
                                           : add_segment(allocator, bytes, stream);
}

CUdeviceptr repair_alloc(struct repair_allocator *allocator, size_t bytes, CUstream stream)
{
    size_t rounded = (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    CUdeviceptr at = 0;
    MUST(pthread_mutex_lock(&allocator->lock));
    struct part *part = best_part(allocator, rounded, stream);
    if (part == NULL) {
        bool added = add_memory(allocator, rounded, stream);
        if (!added) {
            empty_cache(allocator, stream);
            added = add_memory(allocator, rounded, stream);
        }
        part = added ? best_part(allocator, rounded, stream) : NULL;
    }
    if (part != NULL) {
        at = hand_out(allocator, part, rounded);
    } else {
        allocator->stats.refused++;
    }
    MUST(pthread_mutex_unlock(&allocator->lock));
    return at;
}

static struct part *live_part(struct repair_allocator *allocator, CUdeviceptr at)
{
    for (struct arena *arena = allocator->arenas; arena != NULL; arena = arena->next) {
        if (at < arena->at || at >= arena->at + arena->bytes) {
            continue;
        }
        for (struct part *part = arena->parts; part != NULL; part = part->next) {
            if (part->at == at && part->live) {
                return part;
            }
        }
    }
    return NULL;
}

void repair_free(struct repair_allocator *allocator, CUdeviceptr at, const CUevent *users,
                 size_t user_count)
{
    MUST(pthread_mutex_lock(&allocator->lock));
    struct part *part = live_part(allocator, at);
    EXPECT(part != NULL && user_count <= USERS);
    allocator->stats.live_bytes -= part->bytes;
    report(allocator, part, false);
    part->live = false;
    for (size_t i = 0; i < user_count; i++) {
        part->users[i] = users[i];
    }
    part->user_count = user_count;
    MUST(pthread_mutex_unlock(&allocator->lock));
}

void repair_empty_cache(struct repair_allocator *allocator, CUstream stream)
{
    MUST(pthread_mutex_lock(&allocator->lock));
    empty_cache(allocator, stream);
    MUST(pthread_mutex_unlock(&allocator->lock));
}

struct repair_stats repair_stats_of(struct repair_allocator *allocator)
{
    MUST(pthread_mutex_lock(&allocator->lock));
    struct repair_stats stats = allocator->stats;
    MUST(pthread_mutex_unlock(&allocator->lock));
    return stats;
}
