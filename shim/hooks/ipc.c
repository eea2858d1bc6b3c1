/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is shared with other processes, in both directions. */
#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/hooks/serve.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/proxies.h"
#include "shim/process/log.h"
#include "shim/sharing/exports.h"
#include "shim/sharing/imports.h"
#include "shim/sharing/opened.h"

/* The block's own name. Stream-ordered memory has no name with the driver either (cuda.h:
 * "allocated with cuMemAlloc"), and between blocks there is no memory. */
static CUresult name_block(struct ms_device *device, CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out)
{
    struct ms_block_info block;
    if (ms_pool_find(device->pool, addr, &block) != MS_OK ||
        (block.holder && block.holder->kind != MS_HOLDER_CONTEXT) ||
        ms_exports_keep(device, block.addr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return ms_exports_name(device, addr, out);
}

/* Memory of the pool. */
static CUresult name(struct ms_device *device, CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out)
{
    struct ms_context *context = NULL;
    CUresult result = ms_context_query(&context);
    if (result != CUDA_SUCCESS || !context) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
    }
    result = device ? name_block(device, addr, out) : ms_proxies_name(addr, out);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        MS_LOG_ONCE(
            MS_LOG_WARN,
            "cuIpcGetMemHandle was refused: the device's chunks cannot be shared with other "
            "processes; set MEMSHIM_FORWARD to the library or line that allocates the memory (the "
            "report names it), as in libcomm.so or train.py:42, so that the driver allocates it");
    } else if (result == CUDA_SUCCESS) {
        MS_LOG_ONCE(MS_LOG_INFO,
                    "memory is shared by cuIpcGetMemHandle: processes under memshim can open it; "
                    "if another process is refused (invalid value), set MEMSHIM_FORWARD to the "
                    "library or line that allocates it, as in libcomm.so or train.py:42");
    }
    return result;
}

CUresult ms_serve_cuIpcGetMemHandle(CUipcMemHandle_v1 *pHandle, CUdeviceptr_v2 dptr)
{
    struct ms_device *device = ms_device_holding(dptr);
    struct ms_proxy_view page;
    struct ms_grant grant;
    if (pHandle && (device || (ms_proxies_are_malloc() && ms_proxies_at(dptr, &page)))) {
        return name(device, dptr, pHandle);
    }
    CUresult result = MS_REAL(cuIpcGetMemHandle)(pHandle, dptr);
    if (result != CUDA_SUCCESS && ms_ledger_find(MS_SPACE_DEVICE, dptr, &grant) &&
        ms_host_block_is(&grant)) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "cuIpcGetMemHandle was refused: the memory lies on the host, because the cap "
                    "was reached when it was allocated, and cannot be opened by another process");
    }
    return result;
}

/* Opens a handle of the driver's own. */
static CUresult open_drivers(CUdeviceptr_v2 *out, const CUipcMemHandle_v1 *handle, unsigned flags,
                             CUresult (*real)(CUdeviceptr_v2 *, CUipcMemHandle_v1, unsigned))
{
    struct ms_context *context = NULL;
    CUdeviceptr_v2 base = 0;
    size_t bytes = 0;
    CUresult result = real(out, *handle, flags);
    if (result == CUDA_SUCCESS && out && ms_context_query(&context) == CUDA_SUCCESS && context &&
        MS_REAL(cuMemGetAddressRange_v2)(&base, &bytes, *out) == CUDA_SUCCESS) {
        ms_opened_note(context, *out, base + bytes - *out);
    }
    return result;
}

/* Memory that another process allocated is charged to that process. */
static CUresult open_handle(CUdeviceptr_v2 *out, const CUipcMemHandle_v1 *handle, unsigned flags,
                            CUresult (*real)(CUdeviceptr_v2 *, CUipcMemHandle_v1, unsigned))
{
    if (!ms_imports_know(handle)) {
        return open_drivers(out, handle, flags, real);
    }
    struct ms_context *context = NULL;
    CUresult result = ms_context_query(&context);
    if (result != CUDA_SUCCESS || !context) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
    }
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = ms_imports_open(context, handle, out);
    if (result == CUDA_SUCCESS) {
        struct ms_import_view view = {0};
        ms_opened_note(context, *out, ms_imports_at(*out, &view) ? view.bytes : 0);
    }
    return result;
}

CUresult ms_serve_cuIpcOpenMemHandle(CUdeviceptr_v2 *pdptr, CUipcMemHandle_v1 handle,
                                     unsigned int Flags)
{
    return open_handle(pdptr, &handle, Flags, MS_REAL(cuIpcOpenMemHandle));
}

CUresult ms_serve_cuIpcOpenMemHandle_v2(CUdeviceptr_v2 *pdptr, CUipcMemHandle_v1 handle,
                                        unsigned int Flags)
{
    return open_handle(pdptr, &handle, Flags, MS_REAL(cuIpcOpenMemHandle_v2));
}

CUresult ms_serve_cuIpcCloseMemHandle(CUdeviceptr_v2 dptr)
{
    CUresult result = CUDA_SUCCESS;
    if (!ms_imports_close(dptr, &result)) {
        result = MS_REAL(cuIpcCloseMemHandle)(dptr);
    }
    if (result == CUDA_SUCCESS) {
        ms_opened_closed(dptr);
    }
    return result;
}
