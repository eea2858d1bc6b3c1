/* SPDX-License-Identifier: Apache-2.0 */
/* Marks blocks, and waits for the default stream where a call touches a marked one. */
#include "shim/policy/sync_memops.h"

#include "allocator/base/cancel.h"
#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/driver/driver.h"
#include "shim/sharing/imports.h"

_Atomic bool ms_sync_memops_on;

static bool is_marked(CUdeviceptr_v2 addr)
{
    struct ms_block_info block;
    struct ms_import_view import;
    const struct ms_device *device = ms_device_holding(addr);
    return device ? ms_pool_find(device->pool, addr, &block) == MS_OK && block.marked
                  : ms_imports_at(addr, &import) && import.marked;
}

static bool mark(CUdeviceptr_v2 addr, bool on)
{
    const struct ms_device *device = ms_device_holding(addr);
    return device ? ms_pool_mark(device->pool, addr, on) == MS_OK : ms_imports_mark(addr, on);
}

/* The program's own call was allowed to queue work on this stream, so waiting for it is allowed,
 * too: a capture of the stream, or of one that orders itself with it, forbids both. The restriction
 * on unsafe calls while other streams capture (cuThreadExchangeStreamCaptureMode) does not concern
 * this wait. */
static CUresult wait_for(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = ms_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const int cancellation = ms_cancel_hold();
    result = ms_driver()->cuStreamSynchronize(stream);
    ms_cancel_let(cancellation);
    (void)ms_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

CUresult ms_sync_memops_complete(CUresult result, bool per_thread, const uint64_t *values,
                                 size_t count)
{
    size_t i = 0;
    while (i < count && !is_marked(values[i])) {
        i++;
    }
    return i < count && result == CUDA_SUCCESS
               ? wait_for(per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY)
               : result;
}

/* "If there are some previously initiated synchronous memory operations that are pending when this
 * attribute is set, the function does not return until those memory operations are complete"
 * (cuda.h). Not during a capture: the capturing stream may order itself with the default stream,
 * and then that must not be waited for. */
static CUresult wait_for_earlier(void)
{
    if (ms_captures_running()) {
        return CUDA_SUCCESS;
    }
    CUresult result = wait_for(CU_STREAM_LEGACY);
    return result == CUDA_SUCCESS ? wait_for(CU_STREAM_PER_THREAD) : result;
}

CUresult ms_sync_memops_set(CUdeviceptr_v2 addr, bool on, CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) {
        return result;
    }
    const bool already = is_marked(addr);
    if (!mark(addr, on)) {
        return result;
    }
    if (on && !already) {
        atomic_store(&ms_sync_memops_on, true);
        return wait_for_earlier();
    }
    return CUDA_SUCCESS;
}
