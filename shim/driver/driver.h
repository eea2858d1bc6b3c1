/* SPDX-License-Identifier: Apache-2.0 */
/* Driver functions that memshim calls but does not hook. */
#ifndef MEMSHIM_SHIM_DRIVER_DRIVER_H
#define MEMSHIM_SHIM_DRIVER_DRIVER_H

#include "allocator/base/locks/debt.h"
#include "allocator/base/locks/lock.h"
#include "allocator/base/status.h"
#include "shim/driver/hook.h"

/* MS_DRIVER_ROW(symbol, type): null if this driver lacks it. */
#define MS_DRIVER_ROWS                                   \
    MS_DRIVER_ROW(cuArrayGetMemoryRequirements)          \
    MS_DRIVER_ROW(cuCtxFromGreenCtx)                     \
    MS_DRIVER_ROW(cuCtxGetCurrent)                       \
    MS_DRIVER_ROW(cuCtxGetDevice)                        \
    MS_DRIVER_ROW(cuCtxPopCurrent_v2)                    \
    MS_DRIVER_ROW(cuCtxPushCurrent_v2)                   \
    MS_DRIVER_ROW(cuDeviceCanAccessPeer)                 \
    MS_DRIVER_ROW(cuDeviceGetAttribute)                  \
    MS_DRIVER_ROW(cuDeviceGetGraphMemAttribute)          \
    MS_DRIVER_ROW(cuDeviceGetName)                       \
    MS_DRIVER_ROW(cuDeviceGetPCIBusId)                   \
    MS_DRIVER_ROW(cuDeviceGetUuid)                       \
    MS_DRIVER_ROW(cuDeviceGetUuid_v2)                    \
    MS_DRIVER_ROW(cuDevicePrimaryCtxGetState)            \
    MS_DRIVER_ROW(cuDriverGetVersion)                    \
    MS_DRIVER_ROW(cuEventCreate)                         \
    MS_DRIVER_ROW(cuEventDestroy_v2)                     \
    MS_DRIVER_ROW(cuEventQuery)                          \
    MS_DRIVER_ROW(cuEventRecord)                         \
    MS_DRIVER_ROW(cuEventSynchronize)                    \
    MS_DRIVER_ROW(cuGraphChildGraphNodeGetGraph)         \
    MS_DRIVER_ROW(cuGraphGetNodes)                       \
    MS_DRIVER_ROW(cuGraphMemAllocNodeGetParams)          \
    MS_DRIVER_ROW(cuGraphMemcpyNodeGetParams)            \
    MS_DRIVER_ROW(cuGraphMemsetNodeGetParams)            \
    MS_DRIVER_ROW(cuGraphNodeGetType)                    \
    MS_DRIVER_ROW(cuGreenCtxRecordEvent)                 \
    MS_DRIVER_ROW(cuMemAdvise)                           \
    MS_DRIVER_ROW(cuMemHostGetDevicePointer_v2)          \
    MS_DRIVER_ROW(cuMemcpy3DPeer)                        \
    MS_DRIVER_ROW(cuMemcpy3DPeer_ptds)                   \
    MS_DRIVER_ROW(cuMemcpy3DPeerAsync)                   \
    MS_DRIVER_ROW(cuMemcpy3DPeerAsync_ptsz)              \
    MS_DRIVER_ROW(cuMemcpyPeer)                          \
    MS_DRIVER_ROW(cuMemcpyPeer_ptds)                     \
    MS_DRIVER_ROW(cuMemcpyPeerAsync)                     \
    MS_DRIVER_ROW(cuMemcpyPeerAsync_ptsz)                \
    MS_DRIVER_ROW(cuMipmappedArrayGetMemoryRequirements) \
    MS_DRIVER_ROW(cuStreamGetCtx)                        \
    MS_DRIVER_ROW(cuStreamIsCapturing)                   \
    MS_DRIVER_ROW(cuStreamQuery)                         \
    MS_DRIVER_ROW(cuStreamSynchronize)                   \
    MS_DRIVER_ROW(cuStreamWaitEvent)                     \
    MS_DRIVER_ROW(cuThreadExchangeStreamCaptureMode)

struct ms_driver_functions {
#define MS_DRIVER_ROW(symbol) __typeof__(symbol) *(symbol);
    MS_DRIVER_ROWS
#undef MS_DRIVER_ROW
    CUresult (*cuCtxRecordEvent)(CUcontext context, CUevent event); /* CUDA 12.5 */
    CUresult (*cuGraphKernelNodeGetParams_v2)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *out);
    CUresult (*cuFuncGetParamInfo)(CUfunction function, size_t index, size_t *offset,
                                   size_t *bytes);                               /* CUDA 12.4 */
    CUresult (*cuLibraryGetKernelCount)(unsigned int *count, CUlibrary library); /* CUDA 12.4 */
    CUresult (*cuKernelGetParamInfo)(CUkernel kernel, size_t index, size_t *offset,
                                     size_t *bytes); /* CUDA 12.4 */
};

extern const struct ms_driver_functions *_Atomic ms_driver_found; /* null: not looked up yet */
__attribute__((cold)) const struct ms_driver_functions *ms_driver_find(void);

/* Looked up at the first call; the same table ever after. The driver must have been found
 * before. */
static inline const struct ms_driver_functions *ms_driver(void)
{
    const struct ms_driver_functions *found =
        atomic_load_explicit(&ms_driver_found, memory_order_acquire);
    ms_lock_check_driver("a function");
    ms_debt_check("a function");
    return __builtin_expect(found != NULL, 1) ? found : ms_driver_find();
}

/* The graph's nodes, for the caller to free; null if it has none or the driver refuses. */
CUgraphNode *ms_driver_graph_nodes(CUgraph graph, size_t *count);

/* A driver's result as the pool's status, and a status as the result for the application. */
ms_status_t ms_status_from(CUresult result);
CUresult ms_result_from(ms_status_t status);

#endif
