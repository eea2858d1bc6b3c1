/* SPDX-License-Identifier: Apache-2.0 */
/* Takes such a block from the driver, as managed or pinned memory, and frees it when the work on it
 * is done. */
#include "shim/policy/host_blocks.h"

#include "allocator/base/units.h"
#include "shim/device/capture.h"
#include "shim/device/operations/fences.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/policy/grant.h"
#include "shim/policy/spill.h"
#include "shim/process/log.h"
#include "shim/tables/host_bytes.h"

/* The number of such blocks, and how many of them wait to be freed. */
static _Atomic uint32_t blocks, leaving;

/* If the driver refuses the first hint, the memory is no use here: the driver may keep it on the
 * device. */
static bool make_managed(const struct ms_device *device, uint64_t bytes, CUdeviceptr_v2 *out)
{
    if (!MS_REAL(cuMemAllocManaged) || !ms_driver()->cuMemAdvise ||
        MS_REAL(cuMemAllocManaged)(out, bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) {
        return false;
    }
    if (ms_driver()->cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                 CU_DEVICE_CPU) == CUDA_SUCCESS) {
        (void)ms_driver()->cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device->handle);
        return true;
    }
    (void)MS_REAL(cuMemFree_v2)(*out);
    return false;
}

static bool make_pinned(uint64_t bytes, CUdeviceptr_v2 *out)
{
    void *memory = NULL;
    if (!MS_REAL(cuMemHostAlloc) || !ms_driver()->cuMemHostGetDevicePointer_v2 ||
        MS_REAL(cuMemHostAlloc)(
            &memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS) {
        return false;
    }
    /* The block is freed by this address, so it must equal the host's own, as with unified
     * addressing. */
    if (ms_driver()->cuMemHostGetDevicePointer_v2(out, memory, 0) == CUDA_SUCCESS &&
        *out == (CUdeviceptr_v2)(uintptr_t)memory) {
        return true;
    }
    (void)MS_REAL(cuMemFreeHost)(memory);
    return false;
}

enum { LEAVING_AT_ONCE = 16 };

/* ---- freed in the order of a stream */

static bool is_leaving(void *ctx, const struct ms_grant *grant)
{
    (void)ctx;
    return grant->space == MS_SPACE_LEAVING;
}

/* Whether the work queued before the free is done. If no fence could be taken then (a stream
 * captured), a fence of the whole device is taken now. */
static bool work_is_done(struct ms_device *device, struct ms_grant *grant)
{
    if (grant->extent_bytes == 0 &&
        device->ops.fence_take(device, MS_STREAM_DEVICE, &grant->extent_bytes) != MS_OK) {
        grant->extent_bytes = 0;
        return false;
    }
    return device->ops.fence_query(device, grant->extent_bytes) == MS_OK;
}

static CUresult free_really(const struct ms_grant *grant)
{
    return grant->taking == MS_TAKING_MANAGED_HOST
               ? MS_REAL(cuMemFree_v2)(grant->name)
               : MS_REAL(cuMemFreeHost)((void *)(uintptr_t)grant->name);
}

/* Frees those whose work is done. */
static void free_those_left(void)
{
    struct ms_grant left[LEAVING_AT_ONCE];
    struct ms_grant displaced;
    if (atomic_load_explicit(&leaving, memory_order_relaxed) == 0) {
        return;
    }
    size_t count = ms_ledger_sweep(is_leaving, NULL, left, LEAVING_AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        if (work_is_done(ms_device_get(left[i].device), &left[i])) {
            ms_forwarded_leaves(&left[i]);
            ms_forwarded_freed(&left[i], free_really(&left[i]));
        } else {
            (void)ms_ledger_put(&left[i], &displaced); /* there was room for it before */
        }
    }
}

CUresult ms_host_block_free_after(const struct ms_grant *grant, ms_stream_t stream)
{
    struct ms_device *device = ms_device_get(grant->device);
    struct ms_grant displaced;
    struct ms_grant leaves = *grant;
    ms_fence_t fence = 0;
    leaves.space = MS_SPACE_LEAVING;
    leaves.extent_bytes = device->ops.fence_take(device, stream, &fence) == MS_OK ? fence : 0;
    if (!ms_ledger_put(&leaves, &displaced)) {
        if (leaves.extent_bytes != 0) {
            device->ops.fence_release(device, leaves.extent_bytes);
        }
        return ms_host_block_free(grant);
    }
    atomic_fetch_add(&leaving, 1);
    return CUDA_SUCCESS;
}

/* ---- blocks */

bool ms_host_block_alloc(struct ms_device *device, uint64_t bytes, uint32_t site,
                         CUdeviceptr_v2 *out)
{
    struct ms_context *context = ms_context_current();
    struct ms_grant displaced = {0};
    char text[24];
    bool moves = device->granule_bytes != 0 && device->no_host_access == NULL;
    free_those_left();
    if (moves || !context || context->device != device || ms_captures_running() ||
        !ms_budget_charge(ms_spill_budget(), MS_OWNER_FORWARDED, bytes)) {
        return false;
    }
    struct ms_grant grant = {.bytes = bytes,
                             .holder = context,
                             .site = site,
                             .space = MS_SPACE_DEVICE,
                             .kind = MS_GRANT_FORWARDED,
                             .device = device->ordinal};
    bool managed = false, made = false;
    if (ms_host_take(bytes)) {
        managed = make_managed(device, bytes, out);
        made = managed || make_pinned(bytes, out);
    }
    grant.name = made ? *out : 0;
    grant.taking = managed ? MS_TAKING_MANAGED_HOST : MS_TAKING_PINNED_HOST;
    if (!made || !ms_ledger_put(&grant, &displaced)) {
        ms_budget_discharge(ms_spill_budget(), MS_OWNER_FORWARDED, bytes);
        if (made) {
            (void)(managed ? MS_REAL(cuMemFree_v2)(*out)
                           : MS_REAL(cuMemFreeHost)((void *)(uintptr_t)*out));
        }
        return false;
    }
    if (displaced.name != 0) {
        ms_release_dead(&displaced);
    }
    atomic_fetch_add(&blocks, 1);
    ms_grant_emit_host(MS_EVENT_HOST_ALLOC, &grant);
    MS_LOG_ONCE(MS_LOG_WARN,
                "device %d: no device memory was left for %s; it lies in %s, where it stays, and "
                "work on it is slow (live memory on the device cannot move: %s)",
                device->ordinal, ms_bytes_text(bytes, text, sizeof text),
                managed ? "managed memory on the host" : "pinned host memory",
                device->no_host_access ? device->no_host_access : "it cannot map memory");
    return true;
}

bool ms_host_block_is(const struct ms_grant *grant)
{
    return (grant->space == MS_SPACE_DEVICE || grant->space == MS_SPACE_LEAVING) &&
           grant->kind == MS_GRANT_FORWARDED &&
           (grant->taking == MS_TAKING_MANAGED_HOST || grant->taking == MS_TAKING_PINNED_HOST);
}

/* The driver knows where a block of either kind begins. */
bool ms_host_block_at(CUdeviceptr_v2 addr, struct ms_device **device, struct ms_block_info *out)
{
    CUdeviceptr_v2 base = 0;
    struct ms_grant grant;
    if (atomic_load_explicit(&blocks, memory_order_relaxed) == 0 ||
        MS_REAL(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, addr) !=
            CUDA_SUCCESS ||
        !ms_ledger_find(MS_SPACE_DEVICE, base, &grant) || !ms_host_block_is(&grant)) {
        return false;
    }
    *device = ms_device_get(grant.device);
    *out = (struct ms_block_info){
        .addr = base, .bytes = grant.bytes, .holder = &((struct ms_context *)grant.holder)->holder};
    return true;
}

CUresult ms_host_block_free(const struct ms_grant *grant)
{
    free_those_left();
    if (grant->taking == MS_TAKING_MANAGED_HOST) {
        ms_forwarded_leaves(grant);
        CUresult result = MS_REAL(cuMemFree_v2)(grant->name);
        ms_forwarded_freed(grant, result);
        return result;
    }
    /* cuMemFree waits for the device; freeing host memory need not */
    CUresult result = ms_fences_wait_for_work(ms_device_get(grant->device));
    ms_forwarded_leaves(grant);
    if (result == CUDA_SUCCESS) {
        result = MS_REAL(cuMemFreeHost)((void *)(uintptr_t)grant->name);
    }
    ms_forwarded_freed(grant, result);
    return result;
}

void ms_host_block_gone(const struct ms_grant *grant)
{
    atomic_fetch_sub(&blocks, 1);
    if (grant->space == MS_SPACE_LEAVING) {
        struct ms_device *device = ms_device_get(grant->device);
        atomic_fetch_sub(&leaving, 1);
        if (grant->extent_bytes != 0) {
            device->ops.fence_release(device, grant->extent_bytes);
        }
    }
    ms_budget_discharge(ms_spill_budget(), MS_OWNER_FORWARDED, grant->bytes);
}
