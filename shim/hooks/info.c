/* SPDX-License-Identifier: Apache-2.0 */
/* Answers how much memory there is, with the cap in place of the device's size. */
#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/device/graph_memory.h"
#include "shim/device/mempools.h"
#include "shim/driver/driver.h"
#include "shim/hooks/serve.h"
#include "shim/sharing/exports.h"

/* What the process could still get: the rest of the cap, as far as the device has room, and the
 * pool's free memory. */
static CUresult capped(size_t *free_bytes, size_t *total_bytes)
{
    size_t free_real = 0;
    size_t total_real = 0;
    CUresult result = MS_REAL(cuMemGetInfo_v2)(&free_real, &total_real);
    struct ms_context *context = NULL;
    if (result == CUDA_SUCCESS) {
        result = ms_context_query(&context);
    }
    *free_bytes = free_real;
    *total_bytes = total_real;
    if (!context) {
        return result;
    }
    ms_exports_reap();
    struct ms_device *device = context->device;
    ms_mempools_correct(device);
    ms_graph_memory_correct(device);
    if (device->group) {
        (void)ms_group_reap_ended(device->group);
    }
    uint64_t cap = atomic_load(&device->budget.cap_bytes);
    uint64_t room = ms_budget_free_bytes(&device->budget);
    room = free_real < room ? free_real : room;
    if (device->pool) {
        struct ms_pool_stats stats;
        ms_pool_stats(device->pool, &stats);
        room += ms_pool_whole_bytes(device->pool) + ms_device_takeable_bytes(device, &stats);
    }
    room += device->group ? ms_group_spare_bytes(device->group) : 0;
    *free_bytes = room < cap ? room : cap;
    *total_bytes = cap;
    return result;
}

CUresult ms_serve_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (!free || !total) {
        return MS_REAL(cuMemGetInfo_v2)(free, total);
    }
    CUresult result = capped(&free_bytes, &total_bytes);
    if (result == CUDA_SUCCESS) {
        *free = free_bytes;
        *total = total_bytes;
    }
    return result;
}

static unsigned int clamp(uint64_t bytes)
{
    return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX;
}

CUresult ms_serve_cuMemGetInfo(unsigned int *free, unsigned int *total)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (!free || !total || !MS_REAL(cuMemGetInfo_v2)) {
        return MS_REAL(cuMemGetInfo)(free, total);
    }
    CUresult result = capped(&free_bytes, &total_bytes);
    if (result == CUDA_SUCCESS) {
        *free = clamp(free_bytes);
        *total = clamp(total_bytes);
    }
    return result;
}

CUresult ms_serve_cuDeviceTotalMem_v2(size_t *bytes, CUdevice_v1 dev)
{
    CUresult result = MS_REAL(cuDeviceTotalMem_v2)(bytes, dev);
    if (result == CUDA_SUCCESS) {
        *bytes = ms_device_cap_bytes(dev, *bytes);
    }
    return result;
}

CUresult ms_serve_cuDeviceTotalMem(unsigned int *bytes, CUdevice_v1 dev)
{
    CUresult result = MS_REAL(cuDeviceTotalMem)(bytes, dev);
    size_t total_bytes = 0;
    if (result == CUDA_SUCCESS && MS_REAL(cuDeviceTotalMem_v2) &&
        MS_REAL(cuDeviceTotalMem_v2)(&total_bytes, dev) == CUDA_SUCCESS) {
        *bytes = clamp(ms_device_cap_bytes(dev, total_bytes));
    }
    return result;
}
