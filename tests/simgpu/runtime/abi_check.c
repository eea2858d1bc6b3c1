/* SPDX-License-Identifier: Apache-2.0 */
/* Compares this double's own layouts with the public header at compile time, if the header is of
 * the generation being built. (The other generation's header cannot be included as well.) */
#include "device_prop.h"

#include <cuda_runtime_api.h>

#define SAME_PLACE(field)                                      \
    _Static_assert(offsetof(struct rt_device_prop, field) ==   \
                       offsetof(struct cudaDeviceProp, field), \
                   "cudaDeviceProp." #field)

/* Both generations have this size (CUDA 12.9's and 13.0's driver_types.h). */
_Static_assert(sizeof(struct rt_device_prop) == (RT_ABI == 12 ? 1032 : 1008), "cudaDeviceProp");

#if CUDART_VERSION / 1000 == RT_ABI
_Static_assert(sizeof(struct rt_device_prop) == sizeof(struct cudaDeviceProp), "cudaDeviceProp");
SAME_PLACE(totalGlobalMem);
SAME_PLACE(totalConstMem);
SAME_PLACE(multiProcessorCount);
SAME_PLACE(maxTexture2D);
SAME_PLACE(memoryBusWidth);
SAME_PLACE(pageableMemoryAccess);
SAME_PLACE(sharedMemPerBlockOptin);
SAME_PLACE(reservedSharedMemPerBlock);
SAME_PLACE(unifiedFunctionPointers);
#endif

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "IPC handles");
_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "launch attributes");
_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "pool properties");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "locations");
_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS),
               "allocation nodes");
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo),
               "update results");
_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS),
               "instantiation parameters");

/* Enumerators that are passed on as numbers. */
#define SAME_NUMBER(runtime, driver) _Static_assert((int)(runtime) == (int)(driver), #runtime)
SAME_NUMBER(cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(cudaErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_NUMBER(cudaErrorNotReady, CUDA_ERROR_NOT_READY);
SAME_NUMBER(cudaDevAttrMultiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(cudaDevAttrMemoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME_NUMBER(cudaLimitMallocHeapSize, CU_LIMIT_MALLOC_HEAP_SIZE);
SAME_NUMBER(cudaMemPoolAttrReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME_NUMBER(cudaMemPoolAttrUsedMemHigh, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
SAME_NUMBER(cudaStreamCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_NUMBER(cudaStreamCaptureStatusInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_NUMBER(cudaGraphNodeTypeMemFree, CU_GRAPH_NODE_TYPE_MEM_FREE);
SAME_NUMBER(cudaGraphNodeTypeConditional, CU_GRAPH_NODE_TYPE_CONDITIONAL);
SAME_NUMBER(cudaFuncAttributeMaxDynamicSharedMemorySize,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(cudaHostRegisterReadOnly, CU_MEMHOSTREGISTER_READ_ONLY);
SAME_NUMBER(cudaHostAllocWriteCombined, CU_MEMHOSTALLOC_WRITECOMBINED);
SAME_NUMBER(cudaEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(cudaArrayColorAttachment, CUDA_ARRAY3D_COLOR_ATTACHMENT);
SAME_NUMBER(cudaMemLocationTypeHostNuma, CU_MEM_LOCATION_TYPE_HOST_NUMA);
SAME_NUMBER(cudaDevP2PAttrNativeAtomicSupported, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME_NUMBER(cudaEnablePerThreadDefaultStream, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
