/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, their capture, and launches into them. Compiled for both stream flavours;
 * stream_common.c has the functions without a per-thread variant. */
#include "runtime.h"

#include <vector_types.h>

RT_STREAM_API(cudaStreamSynchronize, _ptsz, (cudaStream_t stream))
{
    return RT_CALL(cuStreamSynchronize, stream);
}

RT_STREAM_API(cudaStreamQuery, _ptsz, (cudaStream_t stream))
{
    return RT_CALL(cuStreamQuery, stream);
}

RT_STREAM_API(cudaStreamGetPriority, _ptsz, (cudaStream_t stream, int *priority))
{
    return RT_CALL(cuStreamGetPriority, stream, priority);
}

RT_STREAM_API(cudaStreamGetFlags, _ptsz, (cudaStream_t stream, unsigned *flags))
{
    return RT_CALL(cuStreamGetFlags, stream, flags);
}

RT_STREAM_API(cudaStreamGetId, _ptsz, (cudaStream_t stream, unsigned long long *id))
{
    return RT_CALL(cuStreamGetId, stream, id);
}

RT_STREAM_API(cudaStreamGetDevice, _ptsz, (cudaStream_t stream, int *device))
{
    return RT_CALL(cuStreamGetDevice, stream, device);
}

RT_STREAM_API(cudaStreamCopyAttributes, _ptsz, (cudaStream_t destination, cudaStream_t source))
{
    return RT_CALL(cuStreamCopyAttributes, destination, source);
}

/* Launch attributes are the same unions on both sides (cudaLaunchAttributeValue in driver_types.h,
 * CUlaunchAttributeValue in cuda.h). */
RT_STREAM_API(cudaStreamGetAttribute, _ptsz,
              (cudaStream_t stream, cudaLaunchAttributeID name, void *value))
{
    return RT_CALL(cuStreamGetAttribute, stream, (CUstreamAttrID)name, value);
}

RT_STREAM_API(cudaStreamSetAttribute, _ptsz,
              (cudaStream_t stream, cudaLaunchAttributeID name, const void *value))
{
    return RT_CALL(cuStreamSetAttribute, stream, (CUstreamAttrID)name, value);
}

RT_STREAM_API(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned flags))
{
    return RT_CALL(cuStreamWaitEvent, stream, event, flags);
}

RT_STREAM_API(cudaStreamAddCallback, _ptsz,
              (cudaStream_t stream, CUstreamCallback callback, void *data, unsigned flags))
{
    return RT_CALL(cuStreamAddCallback, stream, callback, data, flags);
}

RT_STREAM_API(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t function, void *data))
{
    return RT_CALL(cuLaunchHostFunc, stream, function, data);
}

RT_STREAM_API(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream))
{
    return RT_CALL(cuEventRecord, event, stream);
}

RT_STREAM_API(cudaEventRecordWithFlags, _ptsz,
              (cudaEvent_t event, cudaStream_t stream, unsigned flags))
{
    return RT_CALL(cuEventRecordWithFlags, event, stream, flags);
}

RT_STREAM_API(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureMode mode))
{
    return RT_CALL(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

RT_STREAM_API(cudaStreamBeginCaptureToGraph, _ptsz,
              (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
               const void *edges, size_t number, enum cudaStreamCaptureMode mode))
{
    return RT_CALL(cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, number,
                   (CUstreamCaptureMode)mode);
}

RT_STREAM_API(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph))
{
    return RT_CALL(cuStreamEndCapture, stream, graph);
}

RT_STREAM_API(cudaStreamIsCapturing, _ptsz,
              (cudaStream_t stream, enum cudaStreamCaptureStatus *status))
{
    return RT_CALL(cuStreamIsCapturing, stream, (CUstreamCaptureStatus *)status);
}

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                unsigned long long *id, cudaGraph_t *graph,
                                const cudaGraphNode_t **dependencies, const void **edges,
                                size_t *number)
{
    return RT_CALL(cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status,
                   (cuuint64_t *)id, graph, dependencies, (const CUgraphEdgeData **)edges, number);
}

static cudaError_t update_capture(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                  const void *edges, size_t number, unsigned flags)
{
    return RT_CALL(cuStreamUpdateCaptureDependencies, stream, dependencies, edges, number, flags);
}

#if RT_ABI == 12
RT_STREAM_API(cudaStreamGetCaptureInfo, _ptsz,
              (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id))
{
    return RT_CALL(cuStreamGetCaptureInfo_id, stream, (CUstreamCaptureStatus *)status,
                   (cuuint64_t *)id);
}

RT_STREAM_API(cudaStreamGetCaptureInfo_v2, _ptsz,
              (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
               cudaGraph_t *graph, const cudaGraphNode_t **dependencies, size_t *number))
{
    return RT_CALL(cuStreamGetCaptureInfo_graph, stream, (CUstreamCaptureStatus *)status,
                   (cuuint64_t *)id, graph, dependencies, number);
}

RT_STREAM_API(cudaStreamGetCaptureInfo_v3, _ptsz,
              (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
               cudaGraph_t *graph, const cudaGraphNode_t **dependencies, const void **edges,
               size_t *number))
{
    return capture_info(stream, status, id, graph, dependencies, edges, number);
}

RT_STREAM_API(cudaStreamUpdateCaptureDependencies, _ptsz,
              (cudaStream_t stream, cudaGraphNode_t *dependencies, size_t number, unsigned flags))
{
    return RT_CALL(cuStreamUpdateCaptureDependencies_plain, stream, dependencies, number, flags);
}

RT_STREAM_API(cudaStreamUpdateCaptureDependencies_v2, _ptsz,
              (cudaStream_t stream, cudaGraphNode_t *dependencies, const void *edges, size_t number,
               unsigned flags))
{
    return update_capture(stream, dependencies, edges, number, flags);
}
#else
RT_STREAM_API(cudaStreamGetCaptureInfo, _ptsz,
              (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
               cudaGraph_t *graph, const cudaGraphNode_t **dependencies, const void **edges,
               size_t *number))
{
    return capture_info(stream, status, id, graph, dependencies, edges, number);
}

RT_STREAM_API(cudaStreamUpdateCaptureDependencies, _ptsz,
              (cudaStream_t stream, cudaGraphNode_t *dependencies, const void *edges, size_t number,
               unsigned flags))
{
    return update_capture(stream, dependencies, edges, number, flags);
}
#endif

RT_STREAM_API(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream))
{
    return RT_CALL(cuGraphLaunch, exec, stream);
}

RT_STREAM_API(cudaGraphUpload, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream))
{
    return RT_CALL(cuGraphUpload, exec, stream);
}

RT_STREAM_API(cudaGraphInstantiateWithParams, _ptsz,
              (cudaGraphExec_t * exec, cudaGraph_t graph, void *params))
{
    return RT_CALL(cuGraphInstantiateWithParams, exec, graph, params);
}

static cudaError_t launch(CUkernel kernel, const dim3 *grid, const dim3 *block, void **arguments,
                          size_t shared_bytes, cudaStream_t stream)
{
    return RT_CALL(cuLaunchKernel, (CUfunction)kernel, grid->x, grid->y, grid->z, block->x,
                   block->y, block->z, (unsigned)shared_bytes, stream, arguments, NULL);
}

/* A launch needs the context first: finding the kernel may load the library that holds it. */
static cudaError_t kernel_to_launch(const void *function, CUkernel *kernel)
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    return rt_note(error == cudaSuccess ? rt_kernel_of(driver, function, kernel) : error);
}

RT_STREAM_API(cudaLaunchKernel, _ptsz,
              (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
               cudaStream_t stream))
{
    CUkernel kernel = NULL;
    cudaError_t error = kernel_to_launch(function, &kernel);
    return error == cudaSuccess ? launch(kernel, &grid, &block, arguments, shared_bytes, stream)
                                : error;
}

RT_STREAM_API(__cudaLaunchKernel, _ptsz,
              (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
               cudaStream_t stream))
{
    return launch((CUkernel)kernel, &grid, &block, arguments, shared_bytes, stream);
}

RT_STREAM_API(cudaLaunchCooperativeKernel, _ptsz,
              (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
               cudaStream_t stream))
{
    CUkernel kernel = NULL;
    cudaError_t error = kernel_to_launch(function, &kernel);
    if (error != cudaSuccess) {
        return error;
    }
    return RT_CALL(cuLaunchCooperativeKernel, (CUfunction)kernel, grid.x, grid.y, grid.z, block.x,
                   block.y, block.z, (unsigned)shared_bytes, stream, arguments);
}

RT_STREAM_API(cudaLaunchKernelExC, _ptsz,
              (const cudaLaunchConfig_t *config, const void *function, void **arguments))
{
    if (!config) {
        return rt_note(cudaErrorInvalidValue);
    }
    CUkernel kernel = NULL;
    cudaError_t error = kernel_to_launch(function, &kernel);
    if (error != cudaSuccess) {
        return error;
    }
    CUlaunchConfig driver_config = rt_launch_config(config);
    return RT_CALL(cuLaunchKernelEx, &driver_config, (CUfunction)kernel, arguments, NULL);
}

/* The meaning of stream 0 for the entry point, if the caller left it open: the flavour of the
 * function that was called. The flags have the driver's values. */
static cudaError_t entry_point(const char *symbol, void **function, unsigned version,
                               unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *status)
{
    const struct rt_driver *driver = NULL;
    if (!symbol || !function) {
        return cudaErrorInvalidValue;
    }
    cudaError_t error = rt_driver_get(RT_FLAVOUR, &driver);
    if (error != cudaSuccess) {
        return error;
    }
    int driver_version = 0;
    error = RT_TRY(driver, cuDriverGetVersion, &driver_version);
    if (error == cudaSuccess && version > (unsigned)driver_version) {
        error = cudaErrorInvalidValue;
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (flags == cudaEnableDefault) {
        flags = RT_FLAVOUR;
    }
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *function = NULL;
    error = rt_error(rt_driver_resolver()(symbol, function, (int)version, flags, &found));
    if (status) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
    }
    /* Documented: for a name that was not found, a null pointer and a status, no error. */
    if (error == cudaErrorSymbolNotFound) {
        error = cudaSuccess;
    }
    return error;
}

RT_STREAM_API(cudaGetDriverEntryPoint, _ptsz,
              (const char *symbol, void **function, unsigned long long flags,
               enum cudaDriverEntryPointQueryResult *status))
{
    return rt_note(entry_point(symbol, function, RT_VERSION, flags, status));
}

RT_STREAM_API(cudaGetDriverEntryPointByVersion, _ptsz,
              (const char *symbol, void **function, unsigned version, unsigned long long flags,
               enum cudaDriverEntryPointQueryResult *status))
{
    return rt_note(entry_point(symbol, function, version, flags, status));
}
