/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels and libraries: attributes, occupancy, explicit loading, device variables.
 */
#include "runtime.h"

/* The kernel in the calling thread's context, whose attributes and occupancy are wanted. */
static cudaError_t function_of(const struct rt_driver **driver, const void *symbol, CUfunction *out)
{
    CUkernel kernel = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, driver);
    if (error == cudaSuccess) {
        error = rt_kernel_of(*driver, symbol, &kernel);
    }
    return error == cudaSuccess ? RT_TRY(*driver, cuKernelGetFunction, out, kernel) : error;
}

static int attribute(const struct rt_driver *driver, CUfunction function, CUfunction_attribute name,
                     cudaError_t *error)
{
    int value = 0;
    if (*error == cudaSuccess) {
        *error = RT_TRY(driver, cuFuncGetAttribute, &value, name, function);
    }
    return value;
}

RT_API(cudaFuncGetAttributes, (struct cudaFuncAttributes * out, const void *symbol))
{
    const struct rt_driver *driver = NULL;
    CUfunction function = NULL;
    cudaError_t error = function_of(&driver, symbol, &function);
    if (error != cudaSuccess) {
        return rt_note(error);
    }
#define GET(name) attribute(driver, function, CU_FUNC_ATTRIBUTE_##name, &error)
    *out = (struct cudaFuncAttributes){
        .sharedSizeBytes = (size_t)GET(SHARED_SIZE_BYTES),
        .constSizeBytes = (size_t)GET(CONST_SIZE_BYTES),
        .localSizeBytes = (size_t)GET(LOCAL_SIZE_BYTES),
        .maxThreadsPerBlock = GET(MAX_THREADS_PER_BLOCK),
        .numRegs = GET(NUM_REGS),
        .ptxVersion = GET(PTX_VERSION),
        .binaryVersion = GET(BINARY_VERSION),
        .cacheModeCA = GET(CACHE_MODE_CA),
        .maxDynamicSharedSizeBytes = GET(MAX_DYNAMIC_SHARED_SIZE_BYTES),
        .preferredShmemCarveout = GET(PREFERRED_SHARED_MEMORY_CARVEOUT),
        .clusterDimMustBeSet = GET(CLUSTER_SIZE_MUST_BE_SET),
        .requiredClusterWidth = GET(REQUIRED_CLUSTER_WIDTH),
        .requiredClusterHeight = GET(REQUIRED_CLUSTER_HEIGHT),
        .requiredClusterDepth = GET(REQUIRED_CLUSTER_DEPTH),
        .clusterSchedulingPolicyPreference = GET(CLUSTER_SCHEDULING_POLICY_PREFERENCE),
        .nonPortableClusterSizeAllowed = GET(NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
    };
#undef GET
    return rt_note(error);
}

/* The settable attributes have the driver's numbers (cudaFuncAttribute in driver_types.h). */
static cudaError_t set_attribute(const struct rt_driver *driver, CUkernel kernel, int name,
                                 int value, int device)
{
    CUdevice handle = 0;
    cudaError_t error = RT_TRY(driver, cuDeviceGet, &handle, device);
    return error == cudaSuccess ? RT_TRY(driver, cuKernelSetAttribute, (CUfunction_attribute)name,
                                         value, kernel, handle)
                                : error;
}

static cudaError_t kernel_here(const struct rt_driver **driver, const void *symbol,
                               CUkernel *kernel, int *device)
{
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, driver);
    if (error == cudaSuccess) {
        error = rt_kernel_of(*driver, symbol, kernel);
    }
    if (error == cudaSuccess) {
        error = rt_current_device(*driver, device);
    }
    return error;
}

RT_API(cudaFuncSetAttribute, (const void *symbol, enum cudaFuncAttribute name, int value))
{
    const struct rt_driver *driver = NULL;
    CUkernel kernel = NULL;
    int device = 0;
    cudaError_t error = kernel_here(&driver, symbol, &kernel, &device);
    if (error == cudaSuccess) {
        error = set_attribute(driver, kernel, (int)name, value, device);
    }
    return rt_note(error);
}

RT_API(cudaKernelSetAttributeForDevice,
       (cudaKernel_t kernel, enum cudaFuncAttribute name, int value, int device))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = set_attribute(driver, (CUkernel)kernel, (int)name, value, device);
    }
    return rt_note(error);
}

RT_API(cudaFuncSetCacheConfig, (const void *symbol, enum cudaFuncCache config))
{
    const struct rt_driver *driver = NULL;
    CUkernel kernel = NULL;
    int device = 0;
    CUdevice handle = 0;
    cudaError_t error = kernel_here(&driver, symbol, &kernel, &device);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGet, &handle, device);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuKernelSetCacheConfig, kernel, (CUfunc_cache)config, handle);
    }
    return rt_note(error);
}

RT_API(cudaFuncGetName, (const char **name, const void *symbol))
{
    const struct rt_driver *driver = NULL;
    CUkernel kernel = NULL;
    int device = 0;
    cudaError_t error = kernel_here(&driver, symbol, &kernel, &device);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuKernelGetName, name, kernel);
    }
    return rt_note(error);
}

RT_API(cudaFuncGetParamInfo, (const void *symbol, size_t index, size_t *offset, size_t *size_bytes))
{
    const struct rt_driver *driver = NULL;
    CUkernel kernel = NULL;
    int device = 0;
    cudaError_t error = kernel_here(&driver, symbol, &kernel, &device);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuKernelGetParamInfo, kernel, index, offset, size_bytes);
    }
    return rt_note(error);
}

RT_API(cudaGetFuncBySymbol, (cudaFunction_t * function, const void *symbol))
{
    const struct rt_driver *driver = NULL;
    return rt_note(function_of(&driver, symbol, (CUfunction *)function));
}

static cudaError_t get_kernel(cudaKernel_t *kernel, const void *symbol)
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = kernel ? rt_enter(RT_LEGACY_STREAM, &driver) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = rt_kernel_of(driver, symbol, (CUkernel *)kernel);
    }
    return error == cudaSuccess ? rt_kernel_give((CUkernel)*kernel) : error;
}

RT_API(cudaGetKernel, (cudaKernel_t * kernel, const void *symbol))
{
    return rt_note(get_kernel(kernel, symbol));
}

RT_API(__cudaGetKernel, (cudaKernel_t * kernel, const void *symbol))
{
    return rt_note(get_kernel(kernel, symbol));
}

RT_API(cudaGetSymbolAddress, (void **pointer, const void *symbol))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_of(driver, symbol, (CUdeviceptr *)pointer, NULL);
    }
    return rt_note(error);
}

RT_API(cudaGetSymbolSize, (size_t * size_bytes, const void *symbol))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_of(driver, symbol, NULL, size_bytes);
    }
    return rt_note(error);
}

RT_API(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
       (int *blocks, const void *symbol, int block_size, size_t shared_bytes))
{
    const struct rt_driver *driver = NULL;
    CUfunction function = NULL;
    cudaError_t error = function_of(&driver, symbol, &function);
    if (error == cudaSuccess) {
        error =
            RT_TRY(driver, cuOccupancyMaxActiveBlocks, blocks, function, block_size, shared_bytes);
    }
    return rt_note(error);
}

RT_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
       (int *blocks, const void *symbol, int block_size, size_t shared_bytes, unsigned flags))
{
    const struct rt_driver *driver = NULL;
    CUfunction function = NULL;
    cudaError_t error = function_of(&driver, symbol, &function);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuOccupancyMaxActiveBlocksWithFlags, blocks, function, block_size,
                       shared_bytes, flags);
    }
    return rt_note(error);
}

RT_API(cudaOccupancyAvailableDynamicSMemPerBlock,
       (size_t * shared_bytes, const void *symbol, int blocks, int block_size))
{
    const struct rt_driver *driver = NULL;
    CUfunction function = NULL;
    cudaError_t error = function_of(&driver, symbol, &function);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuOccupancyAvailableDynamicSMemPerBlock, shared_bytes, function,
                       blocks, block_size);
    }
    return rt_note(error);
}

CUlaunchConfig rt_launch_config(const cudaLaunchConfig_t *config)
{
    return (CUlaunchConfig){
        .gridDimX = config->gridDim.x,
        .gridDimY = config->gridDim.y,
        .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x,
        .blockDimY = config->blockDim.y,
        .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
        .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)config->attrs,
        .numAttrs = config->numAttrs,
    };
}

RT_API(cudaOccupancyMaxPotentialClusterSize,
       (int *size, const void *symbol, const cudaLaunchConfig_t *config))
{
    const struct rt_driver *driver = NULL;
    CUfunction function = NULL;
    cudaError_t error = config ? function_of(&driver, symbol, &function) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        CUlaunchConfig translated = rt_launch_config(config);
        error = RT_TRY(driver, cuOccupancyMaxPotentialClusterSize, size, function, &translated);
    }
    return rt_note(error);
}

RT_API(cudaOccupancyMaxActiveClusters,
       (int *clusters, const void *symbol, const cudaLaunchConfig_t *config))
{
    const struct rt_driver *driver = NULL;
    CUfunction function = NULL;
    cudaError_t error = config ? function_of(&driver, symbol, &function) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        CUlaunchConfig translated = rt_launch_config(config);
        error = RT_TRY(driver, cuOccupancyMaxActiveClusters, clusters, function, &translated);
    }
    return rt_note(error);
}

/* Options of explicit loading have the driver's numbers and are passed on unread. */
RT_API(cudaLibraryLoadData,
       (CUlibrary * library, const void *code, void *jit_options, void **jit_values,
        unsigned jit_count, void *options, void **values, unsigned count))
{
    return RT_CALL(cuLibraryLoadData, library, code, jit_options, jit_values, jit_count, options,
                   values, count);
}

RT_API(cudaLibraryLoadFromFile,
       (CUlibrary * library, const char *file, void *jit_options, void **jit_values,
        unsigned jit_count, void *options, void **values, unsigned count))
{
    return RT_CALL(cuLibraryLoadFromFile, library, file, jit_options, jit_values, jit_count,
                   options, values, count);
}

RT_API(cudaLibraryUnload, (CUlibrary library))
{
    return RT_CALL(cuLibraryUnload, library);
}

RT_API(cudaLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))
{
    cudaError_t error = RT_CALL(cuLibraryGetKernel, kernel, library, name);
    return error == cudaSuccess ? rt_note(rt_kernel_give(*kernel)) : error;
}

RT_API(cudaLibraryGetKernelCount, (unsigned *count, CUlibrary library))
{
    return RT_CALL(cuLibraryGetKernelCount, count, library);
}

RT_API(cudaLibraryEnumerateKernels, (CUkernel * kernels, unsigned count, CUlibrary library))
{
    cudaError_t error = RT_CALL(cuLibraryEnumerateKernels, kernels, count, library);
    for (unsigned i = 0; i < count && error == cudaSuccess; i++) {
        error = kernels[i] ? rt_note(rt_kernel_give(kernels[i])) : cudaSuccess;
    }
    return error;
}

RT_API(cudaLibraryGetGlobal,
       (void **pointer, size_t *size_bytes, CUlibrary library, const char *name))
{
    return RT_CALL(cuLibraryGetGlobal, (CUdeviceptr *)pointer, size_bytes, library, name);
}

RT_API(cudaLibraryGetManaged,
       (void **pointer, size_t *size_bytes, CUlibrary library, const char *name))
{
    return RT_CALL(cuLibraryGetManaged, (CUdeviceptr *)pointer, size_bytes, library, name);
}

RT_API(cudaLibraryGetUnifiedFunction, (void **pointer, CUlibrary library, const char *name))
{
    return RT_CALL(cuLibraryGetUnifiedFunction, pointer, library, name);
}
