/* SPDX-License-Identifier: Apache-2.0 */
/* The application's own virtual memory management. It is forwarded, and charged to the device in
 * the handle's properties, from creation until the handle is released and unmapped everywhere. The
 * pool serves what PyTorch's expandable segments create (proxies.h). */
#include <stdlib.h>

#include "allocator/base/containers/chains.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/ranges.h"
#include "shim/device/addresses/reservations.h"
#include "shim/device/live_maps.h"
#include "shim/driver/caller.h"
#include "shim/driver/torch_library.h"
#include "shim/hooks/serve.h"
#include "shim/policy/chunk_kinds.h"
#include "shim/policy/forwarding.h"
#include "shim/policy/grant.h"
#include "shim/policy/oom.h"
#include "shim/policy/proxies.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/sharing/imports.h"
#include "shim/sites/site.h"

struct chunk {
    struct ms_link by_handle; /* entered while it has references */
    CUmemGenericAllocationHandle_v1 handle;
    uint64_t bytes;
    struct ms_device *device;
    enum ms_owner owner;
    uint32_t site;
    uint64_t references; /* from cuMemCreate and cuMemRetainAllocationHandle */
    uint64_t mappings;
    bool imported; /* another process is charged for it */
    bool reported; /* created by PyTorch, which reports what is live in it */
    bool live;     /* one of its mappings is recorded as live; the others are the same memory
                      again */
};

struct vmm_mapping {
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    struct chunk *chunk;
    struct ms_live_map live; /* its id is 0 if it is not recorded */
    bool arena;              /* counted in the device's mapped_arena_bytes */
};

MS_RANGES_HOLD(struct vmm_mapping);

static struct ms_chains by_handle MS_GUARDED_BY(*MS_LOCK(VMM)) = {
    .offset = offsetof(struct chunk, by_handle)};
static struct ms_ranges mappings MS_GUARDED_BY(*MS_LOCK(VMM)) = {
    .entry_bytes = sizeof(struct vmm_mapping)};
MS_HOT_DATA _Atomic uint64_t ms_live_maps_count;

static void emit(enum ms_event_kind kind, const struct chunk *chunk, CUdeviceptr_v2 addr,
                 uint64_t bytes)
{
    if (chunk->owner != MS_OWNER_APPLICATION || chunk->imported) {
        return; /* NCCL's is recorded as a charge, another process's in that process */
    }
    struct ms_event event = {
        .kind = (uint8_t)kind,
        .device = chunk->device->ordinal,
        .owner = MS_OWNER_APPLICATION,
        .site = chunk->site,
        .id = chunk->handle,
        .addr = addr,
        .bytes = bytes,
        .aux = MS_LOCATION_DEVICE,
    };
    ms_session_emit(&event);
}

static void emit_existence(const struct chunk *chunk, bool created)
{
    if (chunk->owner == MS_OWNER_APPLICATION) {
        emit(created ? MS_EVENT_CHUNK_CREATE : MS_EVENT_CHUNK_RELEASE, chunk, 0, chunk->bytes);
    } else {
        ms_device_note_charge(chunk->device, created, chunk->owner, MS_CHARGE_NCCL, 0, chunk->bytes,
                              chunk->site);
    }
}

/* Releases the lock. If the chunk has no more references or mappings, drops it. */
static void unlock_and_settle(struct chunk *chunk) MS_RELEASE(*MS_LOCK(VMM))
{
    bool gone = chunk->references == 0 && chunk->mappings == 0;
    ms_lock_release(MS_LOCK(VMM));
    if (gone && !chunk->imported) {
        emit_existence(chunk, false);
        ms_device_discharge(chunk->device, chunk->owner, chunk->bytes);
    }
    if (gone) {
        free(chunk);
    }
}

/* --- chunks ----------------------------------------------------------------------------------- */

/* There is no room for a chunk. If the driver would refuse it for another reason (larger than the
 * device, wrong flags, a kind that it does not make), returns that error. CUDA_SUCCESS: to be tried
 * again. */
static CUresult refuse(struct ms_device *device, CUmemGenericAllocationHandle_v1 *handle,
                       size_t size, const CUmemAllocationProp_v1 *prop, unsigned long long flags,
                       struct ms_oom_tries *tries)
{
    size_t granule = 0;
    CUresult result =
        MS_REAL(cuMemGetAllocationGranularity)(&granule, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (size > device->total_bytes || flags != 0) {
        result = MS_REAL(cuMemCreate)(handle, size, prop, flags);
        if (result == CUDA_SUCCESS) {
            (void)MS_REAL(cuMemRelease)(*handle);
        }
    } else {
        result = ms_chunk_kind_answer(device, prop);
    }
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) {
        result =
            ms_oom_refuses(device, size, size, tries) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    return result;
}

static CUresult create_charged(struct ms_device *device, struct chunk *chunk,
                               CUmemGenericAllocationHandle_v1 *handle, size_t size,
                               const CUmemAllocationProp_v1 *prop, unsigned long long flags)
{
    struct ms_oom_tries tries = {0};
    CUresult result = CUDA_SUCCESS;
    chunk->site = ms_site_capture(size);
    while (!ms_device_charge(device, chunk->owner, size, true)) {
        result = refuse(device, handle, size, prop, flags, &tries);
        if (result != CUDA_SUCCESS) {
            free(chunk);
            return result;
        }
    }
    result = MS_REAL(cuMemCreate)(handle, size, prop, flags);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ms_device_make_room(device, ms_options()->wait_ns)) {
        result = MS_REAL(cuMemCreate)(handle, size, prop, flags);
    }
    if (result != CUDA_SUCCESS) {
        ms_device_discharge(device, chunk->owner, size);
        free(chunk);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? ms_oom_refuse(device, size) : result;
    }
    chunk->handle = *handle;
    chunk->bytes = size;
    chunk->device = device;
    chunk->references = 1;
    ms_lock_acquire(MS_LOCK(VMM));
    ms_chains_enter(&by_handle, chunk, chunk->handle);
    ms_lock_release(MS_LOCK(VMM));
    emit_existence(chunk, true);
    ms_oom_over(device);
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle_v1 *handle, size_t size,
                       const CUmemAllocationProp_v1 *prop, unsigned long long flags)
{
    struct ms_device *device = handle && prop ? ms_proxies_home(prop, size, flags) : NULL;
    if (device) {
        return ms_proxies_create(device, handle, size, prop);
    }
    if (handle && prop && size != 0 && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        CUresult result = ms_device_use(prop->location.id, &device);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_DEVICE) {
            return result;
        }
    }
    if (!device || (device->granule_bytes != 0 && size % device->granule_bytes != 0)) {
        return MS_REAL(cuMemCreate)(handle, size, prop, flags); /* on the host, or invalid */
    }
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    enum ms_library caller = ms_library_at(ms_caller());
    chunk->owner =
        ms_forwarding_of_call() == MS_FORWARDING_NCCL ? MS_OWNER_FORWARDED : MS_OWNER_APPLICATION;
    chunk->reported = caller == MS_LIBRARY_C10_CUDA && ms_options()->torch == MS_TORCH_NATIVE &&
                      ms_torch_library_will_report();
    return create_charged(device, chunk, handle, size, prop, flags);
}

CUresult ms_serve_cuMemCreate(CUmemGenericAllocationHandle_v1 *handle, size_t size,
                              const CUmemAllocationProp_v1 *prop, unsigned long long flags)
{
    return ms_oom_answered(create(handle, size, prop, flags));
}

CUresult ms_serve_cuMemRelease(CUmemGenericAllocationHandle_v1 handle)
{
    if (ms_proxies_own(handle)) {
        return ms_proxies_release(handle);
    }
    /* Before the driver is asked: afterwards another thread may already get the same handle. */
    ms_lock_acquire(MS_LOCK(VMM));
    struct chunk *chunk = ms_chains_find(&by_handle, handle);
    if (chunk && --chunk->references == 0) {
        ms_chains_remove(&by_handle, chunk);
        chunk->mappings++; /* keeps it until the driver has answered */
    } else if (chunk) {
        chunk->mappings++;
    }
    ms_lock_release(MS_LOCK(VMM));
    CUresult result = MS_REAL(cuMemRelease)(handle);
    if (!chunk) {
        return result;
    }
    ms_lock_acquire(MS_LOCK(VMM));
    chunk->mappings--;
    if (result != CUDA_SUCCESS && chunk->references++ == 0) {
        ms_chains_enter(&by_handle, chunk, chunk->handle);
    }
    unlock_and_settle(chunk);
    return result;
}

/* --- mappings --------------------------------------------------------------------------------- */

static struct vmm_mapping *mapping_at(size_t index) MS_REQUIRES(*MS_LOCK(VMM))
{
    return (struct vmm_mapping *)mappings.entries + index;
}

/* Removes one mapping that lies in the range from the table. */
static bool take_locked(CUdeviceptr_v2 addr, uint64_t bytes, struct vmm_mapping *out)
    MS_REQUIRES(*MS_LOCK(VMM))
{
    size_t i = ms_ranges_place(&mappings, addr);
    if (i == mappings.count || mapping_at(i)->addr < addr ||
        mapping_at(i)->addr + mapping_at(i)->bytes > addr + bytes) {
        return false;
    }
    *out = *mapping_at(i);
    ms_ranges_remove(&mappings, i, 1);
    return true;
}

/* Whether a framework reports what is live there. */
static bool is_arena(const struct chunk *chunk, CUdeviceptr_v2 addr)
{
    struct ms_reservation reservation;
    return chunk->reported || (ms_reservations_at(addr, 1, &reservation) && reservation.framework);
}

/* Counts a mapping of an arena, if this process is charged for it. */
static void count_arena(struct vmm_mapping *mapping)
{
    const struct chunk *chunk = mapping->chunk;
    mapping->arena = chunk->owner == MS_OWNER_APPLICATION && !chunk->imported;
    if (mapping->arena) {
        atomic_fetch_add(&chunk->device->mapped_arena_bytes, mapping->bytes);
    }
}

/* Whether a mapping that is no arena counts as live memory. Not if the chunk is live at another
 * address. NCCL's own memory is recorded as its charge. */
static bool is_live(struct chunk *chunk)
{
    if (chunk->owner != MS_OWNER_APPLICATION && !chunk->imported) {
        return false;
    }
    ms_lock_acquire(MS_LOCK(VMM));
    bool first = !chunk->live;
    chunk->live = true;
    ms_lock_release(MS_LOCK(VMM));
    return first;
}

static void note_mapping(struct chunk *chunk, CUdeviceptr_v2 addr, uint64_t bytes)
{
    struct vmm_mapping mapping = {.addr = addr, .bytes = bytes, .chunk = chunk};
    if (is_arena(chunk, addr)) {
        count_arena(&mapping);
    } else if (is_live(chunk)) {
        ms_live_map_begin(&mapping.live, chunk->device, addr, bytes, !chunk->imported,
                          ms_site_capture(bytes));
        atomic_fetch_add(&ms_live_maps_count, 1);
    }
    ms_lock_acquire(MS_LOCK(VMM));
    bool noted = ms_ranges_insert(&mappings, &mapping);
    ms_lock_release(MS_LOCK(VMM));
    if (!noted) {
        MS_LOG_ONCE(MS_LOG_WARN, "no host memory to note a mapping; what it maps stays charged");
    }
    ms_arenas_mapped(chunk->device->arenas, addr, bytes);
}

/* Takes the first mapping in the range that is recorded as live; it is an arena from now on. */
static bool take_live(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_live_map *out)
{
    ms_lock_acquire(MS_LOCK(VMM));
    size_t i = ms_ranges_place(&mappings, addr);
    while (i < mappings.count && mapping_at(i)->addr < addr + bytes &&
           (mapping_at(i)->live.id == 0 || mapping_at(i)->live.arena)) {
        i++;
    }
    bool found = i < mappings.count && mapping_at(i)->addr < addr + bytes;
    if (found) {
        mapping_at(i)->live.arena = true;
        count_arena(mapping_at(i));
        *out = mapping_at(i)->live;
    }
    ms_lock_release(MS_LOCK(VMM));
    return found;
}

void ms_serve_range_among_maps(uint64_t addr, uint64_t bytes)
{
    struct ms_reservation reservation = {.addr = addr, .bytes = bytes};
    struct ms_live_map map;
    if (ms_device_holding(addr) != NULL) {
        return;
    }
    ms_reservations_note_framework(addr, &reservation);
    while (take_live(reservation.addr, reservation.bytes, &map)) {
        atomic_fetch_sub(&ms_live_maps_count, 1);
        ms_live_map_arena(&map);
    }
}

/* Whether the address is the pool's, or of a block of another process that is open here. The
 * program did not map that memory itself, and the driver refuses calls about mappings for memory
 * that was allocated in another way. */
static bool is_not_of_program(CUdeviceptr_v2 at)
{
    struct ms_import_view opened;
    return ms_device_holding(at) || ms_imports_at(at, &opened);
}

static CUresult map(CUdeviceptr_v2 ptr, size_t size, size_t offset,
                    CUmemGenericAllocationHandle_v1 handle, unsigned long long flags)
{
    if (is_not_of_program(ptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ms_proxies_own(handle)) {
        return ms_proxies_map(ptr, size, offset, handle, flags);
    }
    ms_lock_acquire(MS_LOCK(VMM));
    struct chunk *chunk = ms_chains_find(&by_handle, handle);
    if (chunk) {
        chunk->mappings++; /* keeps it while the driver maps it */
    }
    ms_lock_release(MS_LOCK(VMM));
    CUresult result = MS_REAL(cuMemMap)(ptr, size, offset, handle, flags);
    if (!chunk) {
        return result;
    }
    if (result == CUDA_SUCCESS) {
        emit(MS_EVENT_MAP, chunk, ptr, size);
        note_mapping(chunk, ptr, size);
        ms_lock_acquire(MS_LOCK(VMM));
    } else {
        ms_lock_acquire(MS_LOCK(VMM));
        chunk->mappings--;
    }
    unlock_and_settle(chunk);
    return result;
}

CUresult ms_serve_cuMemMap(CUdeviceptr_v2 ptr, size_t size, size_t offset,
                           CUmemGenericAllocationHandle_v1 handle, unsigned long long flags)
{
    return ms_oom_answered(map(ptr, size, offset, handle, flags));
}

/* The driver has unmapped it. */
static void settle_unmapped(struct vmm_mapping *mapping)
{
    ms_arenas_unmapped(mapping->chunk->device->arenas, mapping->addr, mapping->bytes);
    emit(MS_EVENT_UNMAP, mapping->chunk, mapping->addr, mapping->bytes);
    if (mapping->live.id != 0) {
        ms_live_map_end(&mapping->live);
        atomic_fetch_sub(&ms_live_maps_count, mapping->live.arena ? 0 : 1);
    }
    if (mapping->arena) {
        atomic_fetch_sub(&mapping->chunk->device->mapped_arena_bytes, mapping->bytes);
    }
    ms_lock_acquire(MS_LOCK(VMM));
    mapping->chunk->live = mapping->chunk->live && mapping->live.id == 0;
    mapping->chunk->mappings--;
    unlock_and_settle(mapping->chunk);
}

CUresult ms_serve_cuMemUnmap(CUdeviceptr_v2 ptr, size_t size)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE; /* also for a part of a page (cuda.h) */
    if (ms_proxies_unmap(ptr, size, &result) != MS_PROXIES_NONE) {
        return result;
    }
    if (is_not_of_program(ptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Removed first: another thread may map there as soon as the driver has unmapped the range. */
    struct vmm_mapping *taken = NULL;
    size_t count = 0;
    ms_lock_acquire(MS_LOCK(VMM));
    size_t first = ms_ranges_place(&mappings, ptr);
    size_t last = first;
    while (last < mappings.count && mapping_at(last)->addr >= ptr &&
           mapping_at(last)->addr + mapping_at(last)->bytes <= ptr + size) {
        last++;
    }
    if (last > first) {
        taken = calloc(last - first, sizeof *taken);
        while (taken && count < last - first && take_locked(ptr, size, &taken[count])) {
            count++;
        }
    }
    ms_lock_release(MS_LOCK(VMM));
    if (!taken && last > first) {
        return CUDA_ERROR_OUT_OF_MEMORY; /* without host memory: all is as it was */
    }
    result = MS_REAL(cuMemUnmap)(ptr, size);
    if (result == CUDA_SUCCESS && count > 0 && taken[0].chunk->owner == MS_OWNER_APPLICATION) {
        ms_note_given_back(taken[0].chunk->device->ordinal, ptr, size);
    }
    for (size_t i = 0; i < count; i++) {
        if (result == CUDA_SUCCESS) {
            settle_unmapped(&taken[i]);
            continue;
        }
        ms_lock_acquire(MS_LOCK(VMM));
        (void)ms_ranges_insert(&mappings, &taken[i]); /* there was room for it before */
        ms_lock_release(MS_LOCK(VMM));
    }
    free(taken);
    return result;
}

static CUresult set_access(CUdeviceptr_v2 ptr, size_t size, const CUmemAccessDesc_v1 *desc,
                           size_t count)
{
    CUresult result = CUDA_SUCCESS;
    if (is_not_of_program(ptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ms_proxies_access(ptr, size, desc, count, &result) == MS_PROXIES_WHOLE) {
        return result;
    }
    result = MS_REAL(cuMemSetAccess)(ptr, size, desc, count);
    struct ms_event event = {
        .kind = MS_EVENT_SET_ACCESS, .owner = MS_OWNER_APPLICATION, .addr = ptr, .bytes = size};
    ms_lock_acquire(MS_LOCK(VMM));
    size_t i = ms_ranges_place(&mappings, ptr);
    bool known = i < mappings.count && mapping_at(i)->addr <= ptr &&
                 mapping_at(i)->chunk->owner == MS_OWNER_APPLICATION;
    if (known) {
        event.device = mapping_at(i)->chunk->device->ordinal;
    }
    ms_lock_release(MS_LOCK(VMM));
    if (result == CUDA_SUCCESS && known) {
        ms_session_emit(&event);
    }
    return result;
}

CUresult ms_serve_cuMemSetAccess(CUdeviceptr_v2 ptr, size_t size, const CUmemAccessDesc_v1 *desc,
                                 size_t count)
{
    return ms_oom_answered(set_access(ptr, size, desc, count));
}

/* A handle for what cuMemMap mapped at an address. Memory that was allocated otherwise has no
 * handle (cuda.h); and the handle of one of our chunks would be taken for that of the whole
 * block. */
CUresult ms_serve_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle_v1 *handle, void *addr)
{
    CUdeviceptr_v2 at = (CUdeviceptr_v2)(uintptr_t)addr;
    bool by_torch = ms_library_at(ms_caller()) == MS_LIBRARY_C10_CUDA;
    if (!handle) {
        return MS_REAL(cuMemRetainAllocationHandle)(handle, addr);
    }
    CUresult result = CUDA_SUCCESS;
    if (ms_proxies_retain(at, !by_torch, handle, &result)) {
        return result;
    }
    if (is_not_of_program(at)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = MS_REAL(cuMemRetainAllocationHandle)(handle, addr);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ms_lock_acquire(MS_LOCK(VMM));
    size_t i = ms_ranges_place(&mappings, at);
    if (i < mappings.count && mapping_at(i)->addr <= at) {
        struct chunk *chunk = mapping_at(i)->chunk;
        if (chunk->references++ == 0) {
            chunk->handle = *handle;
            ms_chains_enter(&by_handle, chunk, chunk->handle);
        }
    }
    ms_lock_release(MS_LOCK(VMM));
    return result;
}

/* --- chunks of other processes ---------------------------------------------------------------- */

/* A chunk of another process, or one of this process that comes back. */
static void note_import(CUmemGenericAllocationHandle_v1 handle)
{
    CUmemAllocationProp_v1 prop = {0};
    struct ms_device *device = NULL;
    struct chunk *chunk = NULL;
    if (MS_REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) == CUDA_SUCCESS &&
        prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        ms_device_use(prop.location.id, &device) == CUDA_SUCCESS && device) {
        chunk = calloc(1, sizeof *chunk);
    }
    ms_lock_acquire(MS_LOCK(VMM));
    struct chunk *known = ms_chains_find(&by_handle, handle);
    if (known) {
        known->references++;
    } else if (chunk) {
        *chunk =
            (struct chunk){.handle = handle, .device = device, .references = 1, .imported = true};
        ms_chains_enter(&by_handle, chunk, handle);
        chunk = NULL;
    }
    ms_lock_release(MS_LOCK(VMM));
    free(chunk);
}

CUresult ms_serve_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle_v1 *handle,
                                                 void *osHandle,
                                                 CUmemAllocationHandleType shHandleType)
{
    CUresult result = MS_REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
    if (result == CUDA_SUCCESS && handle) {
        note_import(*handle);
    }
    return result;
}
