/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that leaves the process, and memory that comes from others. */
#include "shim/device/device.h"
#include "shim/hooks/serve.h"
#include "shim/policy/host_blocks.h"
#include "shim/process/log.h"

/* The driver knows no IPC handle for mapped memory: its own error is the answer. Of a plain chunk
 * it would give one, for the chunk, and the other process would find another block. */
CUresult ms_serve_cuIpcGetMemHandle(CUipcMemHandle_v1 *pHandle, CUdeviceptr_v2 dptr)
{
    const struct ms_device *device = ms_device_holding(dptr);
    CUresult result = device && device->granule_bytes == 0
                          ? CUDA_ERROR_INVALID_VALUE
                          : MS_REAL(cuIpcGetMemHandle)(pHandle, dptr);
    struct ms_grant grant;
    bool born_here =
        !device && ms_ledger_find(MS_SPACE_DEVICE, dptr, &grant) && ms_host_block_is(&grant);
    if (result != CUDA_SUCCESS && (device || born_here)) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "cuIpcGetMemHandle was refused: memory of the pool cannot be "
                    "opened by another process; set MEMSHIM_POOL=off to let the driver "
                    "allocate it");
    }
    return result;
}

/* What another process allocated is charged there. */
CUresult ms_serve_cuIpcOpenMemHandle(CUdeviceptr_v2 *pdptr, CUipcMemHandle_v1 handle,
                                     unsigned int Flags)
{
    return MS_REAL(cuIpcOpenMemHandle)(pdptr, handle, Flags);
}

CUresult ms_serve_cuIpcOpenMemHandle_v2(CUdeviceptr_v2 *pdptr, CUipcMemHandle_v1 handle,
                                        unsigned int Flags)
{
    return MS_REAL(cuIpcOpenMemHandle_v2)(pdptr, handle, Flags);
}

CUresult ms_serve_cuIpcCloseMemHandle(CUdeviceptr_v2 dptr)
{
    return MS_REAL(cuIpcCloseMemHandle)(dptr);
}
