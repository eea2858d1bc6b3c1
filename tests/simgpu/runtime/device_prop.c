/* SPDX-License-Identifier: Apache-2.0 */
/* cudaGetDeviceProperties: one table maps the driver's attributes to fields. */
#include "device_prop.h"

#include <string.h>

struct prop_row {
    size_t offset, width_bytes;
    CUdevice_attribute attribute;
};

/* The width distinguishes an int field from a size_t one; an item is one int of an array. */
#define FIELD(field, attribute)                                                                 \
    {                                                                                           \
        offsetof(struct rt_device_prop, field), sizeof(((struct rt_device_prop *)NULL)->field), \
            CU_DEVICE_ATTRIBUTE_##attribute                                                     \
    }
#define ITEM(field, index, attribute)                                                \
    {                                                                                \
        offsetof(struct rt_device_prop, field) + (index) * sizeof(int), sizeof(int), \
            CU_DEVICE_ATTRIBUTE_##attribute                                          \
    }

static const struct prop_row prop_rows[] = {
    FIELD(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    FIELD(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    FIELD(warpSize, WARP_SIZE),
    FIELD(memPitch, MAX_PITCH),
    FIELD(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    ITEM(maxThreadsDim, 0, MAX_BLOCK_DIM_X),
    ITEM(maxThreadsDim, 1, MAX_BLOCK_DIM_Y),
    ITEM(maxThreadsDim, 2, MAX_BLOCK_DIM_Z),
    ITEM(maxGridSize, 0, MAX_GRID_DIM_X),
    ITEM(maxGridSize, 1, MAX_GRID_DIM_Y),
    ITEM(maxGridSize, 2, MAX_GRID_DIM_Z),
    FIELD(totalConstMem, TOTAL_CONSTANT_MEMORY),
    FIELD(major, COMPUTE_CAPABILITY_MAJOR),
    FIELD(minor, COMPUTE_CAPABILITY_MINOR),
    FIELD(textureAlignment, TEXTURE_ALIGNMENT),
    FIELD(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
    FIELD(multiProcessorCount, MULTIPROCESSOR_COUNT),
    FIELD(integrated, INTEGRATED),
    FIELD(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    FIELD(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
    FIELD(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    ITEM(maxTexture2D, 0, MAXIMUM_TEXTURE2D_WIDTH),
    ITEM(maxTexture2D, 1, MAXIMUM_TEXTURE2D_HEIGHT),
    ITEM(maxTexture2DMipmap, 0, MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    ITEM(maxTexture2DMipmap, 1, MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    ITEM(maxTexture2DLinear, 0, MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    ITEM(maxTexture2DLinear, 1, MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    ITEM(maxTexture2DLinear, 2, MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    ITEM(maxTexture2DGather, 0, MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    ITEM(maxTexture2DGather, 1, MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    ITEM(maxTexture3D, 0, MAXIMUM_TEXTURE3D_WIDTH),
    ITEM(maxTexture3D, 1, MAXIMUM_TEXTURE3D_HEIGHT),
    ITEM(maxTexture3D, 2, MAXIMUM_TEXTURE3D_DEPTH),
    ITEM(maxTexture3DAlt, 0, MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    ITEM(maxTexture3DAlt, 1, MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    ITEM(maxTexture3DAlt, 2, MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    FIELD(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH),
    ITEM(maxTexture1DLayered, 0, MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    ITEM(maxTexture1DLayered, 1, MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    ITEM(maxTexture2DLayered, 0, MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    ITEM(maxTexture2DLayered, 1, MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    ITEM(maxTexture2DLayered, 2, MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    ITEM(maxTextureCubemapLayered, 0, MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    ITEM(maxTextureCubemapLayered, 1, MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    FIELD(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH),
    ITEM(maxSurface2D, 0, MAXIMUM_SURFACE2D_WIDTH),
    ITEM(maxSurface2D, 1, MAXIMUM_SURFACE2D_HEIGHT),
    ITEM(maxSurface3D, 0, MAXIMUM_SURFACE3D_WIDTH),
    ITEM(maxSurface3D, 1, MAXIMUM_SURFACE3D_HEIGHT),
    ITEM(maxSurface3D, 2, MAXIMUM_SURFACE3D_DEPTH),
    ITEM(maxSurface1DLayered, 0, MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    ITEM(maxSurface1DLayered, 1, MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    ITEM(maxSurface2DLayered, 0, MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    ITEM(maxSurface2DLayered, 1, MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    ITEM(maxSurface2DLayered, 2, MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    FIELD(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH),
    ITEM(maxSurfaceCubemapLayered, 0, MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    ITEM(maxSurfaceCubemapLayered, 1, MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    FIELD(surfaceAlignment, SURFACE_ALIGNMENT),
    FIELD(concurrentKernels, CONCURRENT_KERNELS),
    FIELD(ECCEnabled, ECC_ENABLED),
    FIELD(pciBusID, PCI_BUS_ID),
    FIELD(pciDeviceID, PCI_DEVICE_ID),
    FIELD(pciDomainID, PCI_DOMAIN_ID),
    FIELD(tccDriver, TCC_DRIVER),
    FIELD(asyncEngineCount, ASYNC_ENGINE_COUNT),
    FIELD(unifiedAddressing, UNIFIED_ADDRESSING),
    FIELD(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    FIELD(l2CacheSize, L2_CACHE_SIZE),
    FIELD(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    FIELD(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    FIELD(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    FIELD(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    FIELD(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    FIELD(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    FIELD(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    FIELD(managedMemory, MANAGED_MEMORY),
    FIELD(isMultiGpuBoard, MULTI_GPU_BOARD),
    FIELD(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    FIELD(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    FIELD(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    FIELD(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    FIELD(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    FIELD(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    FIELD(cooperativeLaunch, COOPERATIVE_LAUNCH),
    FIELD(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    FIELD(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    FIELD(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    FIELD(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    FIELD(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
    FIELD(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
    FIELD(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    FIELD(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED),
    FIELD(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
    FIELD(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    FIELD(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    FIELD(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    FIELD(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    FIELD(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
    FIELD(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    FIELD(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    FIELD(ipcEventSupported, IPC_EVENT_SUPPORTED),
    FIELD(clusterLaunch, CLUSTER_LAUNCH),
    FIELD(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
#if RT_ABI == 12
    FIELD(clockRate, CLOCK_RATE),
    FIELD(deviceOverlap, GPU_OVERLAP),
    FIELD(kernelExecTimeoutEnabled, KERNEL_EXEC_TIMEOUT),
    FIELD(computeMode, COMPUTE_MODE),
    FIELD(maxTexture1DLinear, MAXIMUM_TEXTURE1D_LINEAR_WIDTH),
    FIELD(memoryClockRate, MEMORY_CLOCK_RATE),
    FIELD(singleToDoublePrecisionPerfRatio, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO),
    FIELD(cooperativeMultiDeviceLaunch, COOPERATIVE_MULTI_DEVICE_LAUNCH),
#else
    FIELD(deviceNumaConfig, NUMA_CONFIG),
    FIELD(deviceNumaId, NUMA_ID),
    FIELD(mpsEnabled, MPS_ENABLED),
    FIELD(hostNumaId, HOST_NUMA_ID),
#endif
};

/* An attribute that this driver does not know stays 0, as with an older driver. */
static void fill_rows(const struct rt_driver *driver, CUdevice device, struct rt_device_prop *prop)
{
    for (size_t i = 0; i < sizeof(prop_rows) / sizeof(prop_rows[0]); i++) {
        const struct prop_row *row = &prop_rows[i];
        int value = 0;
        if (RT_TRY(driver, cuDeviceGetAttribute, &value, row->attribute, device) != cudaSuccess) {
            continue;
        }
        char *field = (char *)prop + row->offset;
        if (row->width_bytes == sizeof(size_t)) {
            size_t wide = (size_t)(unsigned)value;
            memcpy(field, &wide, sizeof(wide));
        } else {
            memcpy(field, &value, sizeof(value));
        }
    }
}

static cudaError_t device_prop(struct rt_device_prop *prop, int ordinal)
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    CUdevice device = 0;
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGet, &device, ordinal);
    }
    if (error == cudaSuccess && !prop) {
        error = cudaErrorInvalidValue;
    }
    if (error != cudaSuccess) {
        return error;
    }
    memset(prop, 0, sizeof(*prop));
    error = RT_TRY(driver, cuDeviceGetName, prop->name, (int)sizeof(prop->name), device);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGetUuid, &prop->uuid, device);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceTotalMem, &prop->totalGlobalMem, device);
    }
    if (error == cudaSuccess) {
        fill_rows(driver, device, prop);
    }
    return error;
}

#if RT_ABI == 12
/* The name that CUDA 12's header gives cudaGetDeviceProperties; the plain symbol of libcudart.so.12
   serves binaries built for the shorter structure of CUDA 11, which ends with
   reservedSharedMemPerBlock, and is not doubled. */
RT_API(cudaGetDeviceProperties_v2, (struct rt_device_prop * prop, int device))
{
    return rt_note(device_prop(prop, device));
}
#else
RT_API(cudaGetDeviceProperties, (struct rt_device_prop * prop, int device))
{
    return rt_note(device_prop(prop, device));
}
#endif
