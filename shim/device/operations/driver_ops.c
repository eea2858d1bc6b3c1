/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks and addresses, through the driver's virtual memory management. */
#include "shim/device/operations/driver_ops.h"

#include <string.h>

#include "shim/device/addresses/reservations.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/operations/fences.h"
#include "shim/device/operations/standstill.h"
#include "shim/driver/driver.h"
#include "shim/process/log.h"
#include "shim/tables/host_bytes.h"

/* The properties that are known to work for a device's memory: the program gets these chunks from
 * cuMemAlloc. */
static CUmemAllocationProp_v1 standard_properties(const struct ms_device *device,
                                                  enum ms_location location)
{
    CUmemAllocationProp_v1 prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (location == MS_LOCATION_HOST) {
        prop.location = device->host_location;
    } else {
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = device->handle;
        prop.allocFlags.gpuDirectRDMACapable = atomic_load(&device->rdma_flag) == 1;
        prop.requestedHandleTypes = atomic_load(&device->share_flag) == 1
                                        ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                        : CU_MEM_HANDLE_TYPE_NONE;
        prop.allocFlags.usage =
            atomic_load(&device->decompress_flag) == 1 ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0;
    }
    return prop;
}

static ms_status_t address_reserve(void *ctx, uint64_t bytes, uint64_t alignment, ms_addr_t *out)
{
    struct ms_device *device = ctx;
    struct ms_scope scope;
    CUdeviceptr_v2 addr = 0;
    ms_scope_enter(device, &scope);
    CUresult result = MS_REAL(cuMemAddressReserve)(&addr, bytes, alignment, 0, 0);
    ms_scope_leave(&scope);
    if (result == CUDA_SUCCESS) {
        ms_device_range_reserved(device, addr, bytes);
        *out = addr;
    }
    return ms_status_from(result);
}

static ms_status_t address_free(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct ms_device *device = ctx;
    struct ms_scope scope;
    ms_scope_enter(device, &scope);
    /* Removed before it is freed: from then on the driver may give the addresses to somebody
     * else. */
    (void)ms_device_range_freed(device, addr);
    CUresult result = MS_REAL(cuMemAddressFree)(addr, bytes);
    if (result != CUDA_SUCCESS) {
        ms_device_range_reserved(device, addr, bytes);
    }
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

/* Does nothing if the access names no device. */
static CUresult grant(const struct ms_access *access, ms_addr_t addr, uint64_t bytes)
{
    CUmemAccessDesc_v1 list[MS_DEVICES_MAX];
    size_t count = ms_access_list(access, list);
    return count ? MS_REAL(cuMemSetAccess)(addr, bytes, list, count) : CUDA_SUCCESS;
}

static CUresult grant_access(struct ms_device *device, ms_addr_t addr, uint64_t bytes)
{
    struct ms_reservation reservation;
    if (ms_reservations_at(addr, bytes, &reservation)) {
        /* Addresses of the application's own get the access that it asked for there; until then
         * nobody may access them. */
        return grant(&reservation.access, addr, bytes);
    }
    uint64_t may = atomic_load(&device->access_mask) | (1ULL << device->ordinal);
    struct ms_access access = {.read_write = may,
                               .none = atomic_load(&device->withdrawn_mask) & ~may};
    return grant(&access, addr, bytes);
}

/* Whether the driver or the device cannot do it at all. Other errors may be gone the next time. */
static bool is_refusal(CUresult result)
{
    return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED ||
           result == CUDA_ERROR_INVALID_VALUE;
}

/* A test of whether there are chunks with these properties, with one granule. */
struct chunk_trial {
    CUmemAllocationProp_v1 prop;
    int works; /* 1: they can be mapped; 0: they cannot; -1: could not be found out */
    bool left; /* the driver failed to free the granule */
};

/* On WSL2 the attribute claims GPUDirect RDMA, but giving access fails with CUDA_ERROR_UNKNOWN
 * (pytorch#192330). */
static void try_to_map(struct ms_device *device, CUmemGenericAllocationHandle_v1 chunk,
                       struct chunk_trial *trial)
{
    const uint64_t bytes = device->granule_bytes;
    CUdeviceptr_v2 addr = 0;
    if (MS_REAL(cuMemAddressReserve)(&addr, bytes, 0, 0, 0) != CUDA_SUCCESS) {
        return;
    }
    CUresult result = MS_REAL(cuMemMap)(addr, bytes, 0, chunk, 0);
    const bool mapped = result == CUDA_SUCCESS;
    if (mapped) {
        result = grant_access(device, addr, bytes);
        trial->left = MS_REAL(cuMemUnmap)(addr, bytes) != CUDA_SUCCESS;
    }
    (void)MS_REAL(cuMemAddressFree)(addr, bytes);
    if (result == CUDA_SUCCESS) {
        trial->works = 1;
    } else if (is_refusal(result) || (mapped && result == CUDA_ERROR_UNKNOWN)) {
        trial->works = 0;
    }
}

/* The caller has charged at least a granule and not used it yet. False: the driver kept the
 * granule, which stays charged, and there is no room for another. */
static bool try_properties(struct ms_device *device, struct chunk_trial *trial)
{
    CUmemGenericAllocationHandle_v1 chunk = 0;
    trial->works = -1;
    CUresult result = MS_REAL(cuMemCreate)(&chunk, device->granule_bytes, &trial->prop, 0);
    if (result != CUDA_SUCCESS) {
        trial->works = is_refusal(result) ? 0 : -1;
        return true;
    }
    try_to_map(device, chunk, trial);
    trial->left = MS_REAL(cuMemRelease)(chunk) != CUDA_SUCCESS || trial->left;
    if (!trial->left) {
        return true;
    }
    const bool fits = ms_budget_charge(&device->budget, MS_OWNER_CONTEXT, device->granule_bytes);
    if (!fits) {
        ms_budget_impose(&device->budget, MS_OWNER_CONTEXT, device->granule_bytes);
    }
    ms_device_note_charge(device, true, MS_OWNER_CONTEXT, MS_CHARGE_CONTEXT, 0,
                          device->granule_bytes, 0);
    return fits;
}

/* An attribute of the device that says whether it has a feature; -1: no answer. */
static int supports(const struct ms_device *device, CUdevice_attribute attribute)
{
    int supported = 0;
    CUresult result = ms_driver()->cuDeviceGetAttribute(&supported, attribute, device->handle);
    return result == CUDA_SUCCESS ? supported != 0 : -1;
}

static bool probe_rdma(struct ms_device *device)
{
    struct chunk_trial trial = {.prop = standard_properties(device, MS_LOCATION_DEVICE)};
    trial.prop.allocFlags.gpuDirectRDMACapable = 1;
    trial.works = supports(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    const bool fits = trial.works != 1 || try_properties(device, &trial);
    atomic_store(&device->rdma_flag, trial.works);
    return fits;
}

/* cuMemAlloc's memory supports decompression (cuda.h, cuMemBatchDecompressAsync), even on devices
 * without an engine for it (seen: an H200). */
static bool probe_decompress(struct ms_device *device)
{
    struct chunk_trial trial = {.prop = standard_properties(device, MS_LOCATION_DEVICE)};
    trial.prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    const bool fits = try_properties(device, &trial);
    atomic_store(&device->decompress_flag, trial.works);
    return fits;
}

/* Finds out once what properties chunks can have. Each is tried together with those found before
 * it. Whether a chunk can be shared with other processes is fixed at its creation (cuda.h,
 * CUmemAllocationProp), and nobody knows then which blocks will be shared. False: there is no more
 * room for what the caller has charged. */
static bool probe(struct ms_device *device)
{
    static const CUdevice_attribute shareable =
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    if (atomic_load(&device->share_flag) < 0) {
        atomic_store(&device->share_flag, supports(device, shareable));
    }
    if (atomic_load(&device->rdma_flag) < 0 && !probe_rdma(device)) {
        return false;
    }
    return atomic_load(&device->decompress_flag) >= 0 || atomic_load(&device->share_flag) < 0 ||
           atomic_load(&device->rdma_flag) < 0 || probe_decompress(device);
}

/* The attribute claimed the handle type and the driver refuses it. If that was the reason, chunks
 * do without it from here on. */
static CUresult create_unshared(struct ms_device *device, CUmemAllocationProp_v1 *prop,
                                uint64_t bytes, CUmemGenericAllocationHandle_v1 *chunk)
{
    prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CUresult result = MS_REAL(cuMemCreate)(chunk, bytes, prop, 0);
    if (result == CUDA_SUCCESS) {
        atomic_store(&device->share_flag, 0);
    }
    return result;
}

static ms_status_t chunk_create(void *ctx, uint64_t bytes, enum ms_location location,
                                const void *properties, ms_handle_t *out)
{
    struct ms_device *device = ctx;
    if (location == MS_LOCATION_HOST &&
        device->host_location.type == CU_MEM_LOCATION_TYPE_INVALID) {
        return MS_ERR_NOT_SUPPORTED;
    }
    if (location == MS_LOCATION_HOST) {
        if (!ms_host_take(bytes)) {
            return MS_ERR_NO_MEMORY;
        }
        ms_device_host_made(device);
    }
    struct ms_scope scope;
    ms_scope_enter(device, &scope);
    const bool standard = properties == NULL && location == MS_LOCATION_DEVICE;
    if (standard && !probe(device)) {
        ms_scope_leave(&scope);
        return MS_ERR_NO_MEMORY;
    }
    CUmemAllocationProp_v1 prop =
        properties != NULL ? *(const CUmemAllocationProp_v1 *)properties /* the caller that gave
                                                                            them knows their type */
                           : standard_properties(device, location);
    CUmemGenericAllocationHandle_v1 chunk = 0;
    CUresult result = MS_REAL(cuMemCreate)(&chunk, bytes, &prop, 0);
    if (standard && prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && is_refusal(result)) {
        result = create_unshared(device, &prop, bytes, &chunk);
    }
    ms_scope_leave(&scope);
    if (result == CUDA_SUCCESS) {
        *out = chunk;
    }
    return ms_status_from(result);
}

static ms_status_t chunk_release(void *ctx, ms_handle_t chunk)
{
    struct ms_scope scope;
    ms_scope_enter(ctx, &scope);
    CUresult result = MS_REAL(cuMemRelease)(chunk);
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

/* NVML would be another way, but it may have to be loaded, which must not happen under a lock. */
static ms_status_t free_bytes(void *ctx, uint64_t *out)
{
    struct ms_scope scope;
    size_t free = 0;
    size_t total = 0;
    if (ms_captures_running()) {
        return MS_ERR_NOT_READY;
    }
    ms_scope_enter(ctx, &scope);
    CUresult result = MS_REAL(cuMemGetInfo_v2)(&free, &total);
    ms_scope_leave(&scope);
    *out = free;
    return ms_status_from(result);
}

static ms_status_t map(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk)
{
    struct ms_scope scope;
    ms_scope_enter(ctx, &scope);
    CUresult result = MS_REAL(cuMemMap)(addr, bytes, 0, chunk, 0);
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

static ms_status_t set_access(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct ms_scope scope;
    ms_scope_enter(ctx, &scope);
    CUresult result = grant_access(ctx, addr, bytes);
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

static ms_status_t unmap(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct ms_scope scope;
    ms_scope_enter(ctx, &scope);
    CUresult result = MS_REAL(cuMemUnmap)(addr, bytes);
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

static ms_status_t plain_alloc(void *ctx, uint64_t bytes, ms_addr_t *out)
{
    struct ms_scope scope;
    CUdeviceptr_v2 addr = 0;
    ms_scope_enter(ctx, &scope);
    CUresult result = MS_REAL(cuMemAlloc_v2)(&addr, bytes);
    ms_scope_leave(&scope);
    if (result == CUDA_SUCCESS) {
        ms_device_range_reserved(ctx, addr, bytes);
        *out = addr;
    }
    return ms_status_from(result);
}

static ms_status_t plain_free(void *ctx, ms_addr_t addr)
{
    struct ms_scope scope;
    ms_scope_enter(ctx, &scope);
    uint64_t bytes = ms_device_range_freed(ctx, addr);
    CUresult result = MS_REAL(cuMemFree_v2)(addr);
    if (result != CUDA_SUCCESS && bytes != 0) {
        ms_device_range_reserved(ctx, addr, bytes);
    }
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

/* The smallest chunk of the device; 0 if it cannot map memory. On a vGPU the attribute claims that
 * it can, and the functions return that it is not supported (xgboost#12217). Other errors are no
 * answer. */
static CUresult find_granule(const struct ms_device *device, size_t *granule_bytes)
{
    int can_map = 0;
    CUmemAllocationProp_v1 prop = standard_properties(device, MS_LOCATION_DEVICE);
    *granule_bytes = 0;
    CUresult result = ms_driver()->cuDeviceGetAttribute(
        &can_map, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->handle);
    if (result == CUDA_SUCCESS && can_map && MS_REAL(cuMemGetAllocationGranularity)) {
        result = MS_REAL(cuMemGetAllocationGranularity)(granule_bytes, &prop,
                                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    }
    if (is_refusal(result)) {
        *granule_bytes = 0;
        return CUDA_SUCCESS;
    }
    return result;
}

CUresult ms_driver_ops_init(struct ms_device *device)
{
    device->ops = (struct ms_device_ops){
        .ctx = device,
        .total_bytes = device->total_bytes,
        .address_reserve = address_reserve,
        .address_free = address_free,
        .chunk_create = chunk_create,
        .chunk_release = chunk_release,
        .free_bytes = free_bytes,
        .map = map,
        .set_access = set_access,
        .unmap = unmap,
        .fence_take = ms_fence_take,
        .fence_query = ms_fence_query,
        .fence_wait = ms_fence_wait,
        .stream_wait = ms_fence_stream_wait,
        .fence_release = ms_fence_release,
        .captures = &ms_captures,
        .halt = ms_standstill_halt,
        .resume = ms_standstill_resume,
        .copy = ms_standstill_copy,
        .copy_wait = ms_standstill_copy_wait,
        .plain_alloc = plain_alloc,
        .plain_free = plain_free,
    };
    size_t granule = 0;
    CUresult result = find_granule(device, &granule);
    if (result == CUDA_SUCCESS && granule == 0) {
        ms_log(MS_LOG_INFO, "device %d has no virtual memory management; its pool cannot expand",
               device->ordinal);
    }
    device->granule_bytes = granule;
    device->ops.granule_bytes = granule;
    return result;
}
