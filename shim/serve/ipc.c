/* Memory that leaves the process, and memory that comes from others. */
#include "shim/log.h"
#include "shim/serve/device.h"

/* The driver knows no IPC handle for mapped memory: its own error is the answer. */
CUresult ms_serve_cuIpcGetMemHandle(CUipcMemHandle_v1 *pHandle, CUdeviceptr_v2 dptr)
{
    CUresult result = MS_REAL(cuIpcGetMemHandle)(pHandle, dptr);
    if (result != CUDA_SUCCESS && ms_device_holding(dptr)) {
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
