/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches, attributes of functions and kernels, occupancy. */
#include "../simgpu.h"

#include "context.h"
#include "device.h"
#include "entry.h"
#include "module.h"
#include "stream.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARP_SIZE     32
#define BLOCK_THREADS 1024 /* at most */
#define GRID_X        2147483647u
#define GRID_YZ       65535u

/* ---- launches ---------------------------------------------------------------------------------
 */

bool sim_kernel_lasts(const struct sim_launch *launch)
{
    return launch->function->symbol->lasts;
}

bool sim_kernel_has_effect(const struct sim_launch *launch)
{
    return launch->computes;
}

unsigned sim_kernel_parameter_count(CUfunction function)
{
    return function->symbol->parameter_count;
}

void sim_kernel_run(const struct sim_launch *launch)
{
    if (launch->computes) {
        launch->function->symbol->run(launch);
    }
}

static unsigned char *memory_of(const struct sim_launch *launch, uint64_t *bytes)
{
    uint64_t address;
    memcpy(&address, launch->parameter_pointers[0], sizeof address);
    memcpy(bytes, launch->parameter_pointers[1], sizeof *bytes);
    return (unsigned char *)address;
}

void sim_kernel_fill(const struct sim_launch *launch)
{
    uint64_t bytes;
    unsigned char *memory = memory_of(launch, &bytes);
    if (!sim_settings.contents && bytes > SIMGPU_SMALL_CONTENTS_BYTES) {
        return;
    }
    simgpu_note_write((uint64_t)memory, bytes);
    memset(memory, *(const uint8_t *)launch->parameter_pointers[2], bytes);
}

void sim_kernel_check(const struct sim_launch *launch)
{
    uint64_t bytes, address, mismatches = 0;
    const unsigned char *memory = memory_of(launch, &bytes);
    for (uint64_t at = 0; at < bytes; at++) {
        mismatches += memory[at] != *(const uint8_t *)launch->parameter_pointers[2];
    }
    memcpy(&address, launch->parameter_pointers[3], sizeof address);
    simgpu_note_write(address, sizeof mismatches);
    atomic_fetch_add((_Atomic uint64_t *)address, mismatches);
}

void sim_kernel_spin(const struct sim_launch *launch)
{
    uint64_t duration_ns;
    memcpy(&duration_ns, launch->parameter_pointers[0], sizeof duration_ns);
    sim_sleep_us(duration_ns / 1000);
}

/* Copies each declared parameter to its offset, as the device would see them. */
static CUresult copy_parameters(struct sim_launch *launch, void **parameters, void **extra)
{
    const struct sim_symbol *symbol = launch->function->symbol;
    const char *buffer = NULL;
    size_t buffer_bytes = 0;
    for (void **at = extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = at[1];
        } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            buffer_bytes = *(const size_t *)at[1];
        }
    }
    if (symbol->parameter_count == 0 || (!parameters && (!buffer || symbol->parameters_untold))) {
        return CUDA_SUCCESS;
    }
    unsigned last = symbol->parameter_count - 1;
    launch->parameter_bytes = symbol->offsets[last] + symbol->sizes[last];
    launch->parameters = calloc(1, launch->parameter_bytes);
    launch->parameter_pointers = calloc(symbol->parameter_count, sizeof(void *));
    if (!launch->parameters || !launch->parameter_pointers) {
        free(launch->parameters);
        free(launch->parameter_pointers);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < symbol->parameter_count; i++) {
        launch->parameter_pointers[i] = launch->parameters + symbol->offsets[i];
        if (parameters) {
            memcpy(launch->parameter_pointers[i], parameters[i], symbol->sizes[i]);
        }
    }
    if (!parameters) {
        memcpy(launch->parameters, buffer,
               buffer_bytes < launch->parameter_bytes ? buffer_bytes : launch->parameter_bytes);
    }
    return CUDA_SUCCESS;
}

static uint64_t threads_of(const struct sim_launch *launch)
{
    return (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
}

/* A program's own message is "invalid argument", without the kernel. */
static CUresult refuse(const struct sim_launch *launch)
{
    static bool said;
    const unsigned *grid = launch->grid, *block = launch->block;
    if (!said) {
        said = true;
        fprintf(stderr,
                "simgpu: the simulated GPU, of compute capability %llu.%llu, refuses to launch %s "
                "(invalid argument): %u x %u x %u blocks of %u x %u x %u = %llu threads, with %u "
                "bytes of shared memory each; it has up to %u x %u x %u blocks of %d threads, with "
                "%d bytes. If such a card launches it, please report that. Later refusals are not "
                "told.\n",
                (unsigned long long)sim_settings.capability_major,
                (unsigned long long)sim_settings.capability_minor, launch->function->symbol->name,
                grid[0], grid[1], grid[2], block[0], block[1], block[2],
                (unsigned long long)threads_of(launch), launch->shared_bytes, GRID_X, GRID_YZ,
                GRID_YZ, BLOCK_THREADS, sim_block_shared_bytes());
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_launch_prepare(struct sim_launch *launch, CUfunction function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes, void **parameters,
                            void **extra)
{
    *launch = (struct sim_launch){.function = function, .shared_bytes = shared_bytes};
    memcpy(launch->grid, grid, sizeof launch->grid);
    memcpy(launch->block, block, sizeof launch->block);
    if (parameters && extra) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t threads = threads_of(launch);
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > GRID_X || grid[1] > GRID_YZ ||
        grid[2] > GRID_YZ || threads == 0 || threads > BLOCK_THREADS ||
        shared_bytes > (unsigned)sim_block_shared_bytes()) {
        return refuse(launch);
    }
    CUresult status = copy_parameters(launch, parameters, extra);
    const struct sim_symbol *symbol = function->symbol;
    launch->computes =
        symbol->run && launch->parameters && (!symbol->check || symbol->check(launch));
    return status;
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                       unsigned shared_bytes, CUstream stream_handle, void **parameters,
                       void **extra)
{
    SIM_STREAM(stream_handle, stream);
    CUfunction function = sim_function_of(handle, stream->context);
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct sim_work work = {.kind = SIM_WORK_KERNEL};
    CUresult status =
        sim_launch_prepare(&work.launch, function, grid, block, shared_bytes, parameters, extra);
    if (status == CUDA_SUCCESS) {
        if (work.launch.computes && function->symbol->follow) {
            function->symbol->follow(&work.launch);
        }
        status = sim_function_launched(function);
        if (status != CUDA_SUCCESS) {
            sim_work_release(&work);
        }
    }
    return status == CUDA_SUCCESS ? sim_submit(stream, &work, NULL) : status;
}

SIM_STREAM_PAIR(cuLaunchKernel,
                (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                 unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),
                launch(f, (const unsigned[]){gridDimX, gridDimY, gridDimZ},
                       (const unsigned[]){blockDimX, blockDimY, blockDimZ}, sharedMemBytes, hStream,
                       kernelParams, extra));

SIM_STREAM_PAIR(cuLaunchCooperativeKernel,
                (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                 unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),
                launch(f, (const unsigned[]){gridDimX, gridDimY, gridDimZ},
                       (const unsigned[]){blockDimX, blockDimY, blockDimZ}, sharedMemBytes, hStream,
                       kernelParams, NULL));

static CUresult launch_config(const CUlaunchConfig *config, CUstream stream, CUfunction function,
                              void **parameters, void **extra)
{
    return launch(function,
                  (const unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                  (const unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
                  config->sharedMemBytes, stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                          void **extra)
{
    SIM_JUDGE(config, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuLaunchKernelEx);
    return launch_config(config, config->hStream, f, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra)
{
    SIM_JUDGE(config, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuLaunchKernelEx_ptsz);
    return launch_config(config, sim_per_thread(config->hStream), f, kernelParams, extra);
}

/* ---- attributes -------------------------------------------------------------------------------
 */

static CUresult get_attribute(const int *attributes, int *value, CUfunction_attribute attribute)
{
    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = attributes[attribute];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(int *attributes, CUfunction_attribute attribute, int value)
{
    if ((unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE; /* only the compiler can set the others */
    }
    attributes[attribute] = value;
    return CUDA_SUCCESS;
}

/* The function that a CUfunction argument denotes: a function, or a kernel in the current context.
 * NULL: neither. */
static CUfunction resolve(CUfunction handle)
{
    if (sim_object_is(&sim_functions_kind, handle)) {
        return handle;
    }
    return sim_current_check() == CUDA_SUCCESS ? sim_function_of(handle, sim_current()) : NULL;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    SIM_ENTER(cuFuncGetAttribute);
    CUfunction function = resolve(hfunc);
    return function ? get_attribute(function->attributes, pi, attrib) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    CUfunction function = resolve(hfunc);
    return function ? set_attribute(function->attributes, attrib, value)
                    : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    SIM_ENTER(cuFuncSetCacheConfig);
    return resolve(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    SIM_ENTER(cuFuncGetName);
    CUfunction function = resolve(hfunc);
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *name = function->symbol->name;
    return CUDA_SUCCESS;
}

static CUresult parameter_info(const struct sim_symbol *symbol, size_t index, size_t *offset,
                               size_t *bytes)
{
    if (!offset || index >= symbol->parameter_count || symbol->parameters_untold) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = symbol->offsets[index];
    if (bytes) {
        *bytes = symbol->sizes[index];
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                            size_t *paramSize)
{
    SIM_ENTER(cuFuncGetParamInfo);
    CUfunction function = resolve(func);
    return function ? parameter_info(function->symbol, paramIndex, paramOffset, paramSize)
                    : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTER(cuFuncIsLoaded);
    if (!resolve(function)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!state) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    SIM_JUDGE(function, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuFuncLoad);
    return resolve(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    SIM_ENTER(cuKernelGetAttribute);
    if (!sim_device_of(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return sim_object_is(&sim_kernels, kernel) ? get_attribute(kernel->attributes, pi, attrib)
                                               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    SIM_ENTER(cuKernelSetAttribute);
    if (!sim_device_of(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return sim_object_is(&sim_kernels, kernel) ? set_attribute(kernel->attributes, attrib, val)
                                               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    SIM_ENTER(cuKernelSetCacheConfig);
    if (!sim_device_of(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return sim_object_is(&sim_kernels, kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    SIM_ENTER(cuKernelGetName);
    if (!sim_object_is(&sim_kernels, hfunc)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *name = hfunc->symbol->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                              size_t *paramSize)
{
    SIM_ENTER(cuKernelGetParamInfo);
    return sim_object_is(&sim_kernels, kernel)
               ? parameter_info(kernel->symbol, paramIndex, paramOffset, paramSize)
               : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- occupancy: as of a kernel with 32 registers, so that threads and shared memory limit it - */

static int active_blocks(int block_size, size_t dynamic_shared)
{
    int warps = (block_size + WARP_SIZE - 1) / WARP_SIZE;
    const struct sim_processor *processor = sim_processor();
    int by_threads = processor->threads / (warps * WARP_SIZE);
    int by_shared = (int)((size_t)processor->shared_bytes / (dynamic_shared + SIM_SHARED_RESERVED));
    int blocks = by_threads < by_shared ? by_threads : by_shared;
    return blocks < processor->blocks ? blocks : processor->blocks;
}

static CUresult max_active_blocks(int *blocks, CUfunction function, int block_size, size_t shared)
{
    if (!resolve(function)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!blocks || block_size <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *blocks = block_size > BLOCK_THREADS ? 0 : active_blocks(block_size, shared);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return max_active_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    return max_active_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

/* The largest block of those with which most threads run at a time. */
static CUresult potential_block_size(int *grid, int *block, CUfunction function,
                                     CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
    if (!resolve(function)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!grid || !block) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int most = limit > 0 && limit < BLOCK_THREADS ? limit : BLOCK_THREADS;
    *block = *grid = 0;
    for (int size = most, fullest = 0; size > 0; size = (size - 1) / WARP_SIZE * WARP_SIZE) {
        int blocks = active_blocks(size, shared_of ? shared_of(size) : shared);
        if (blocks * size > fullest) {
            fullest = blocks * size;
            *block = size;
            *grid = blocks * (int)sim_settings.processors;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit)
{
    SIM_ENTER(cuOccupancyMaxPotentialBlockSize);
    return potential_block_size(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
    return potential_block_size(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize)
{
    SIM_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
    if (!resolve(func)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t each = (size_t)sim_processor()->shared_bytes / (size_t)numBlocks;
    *dynamicSmemSize = each > SIM_SHARED_RESERVED ? each - SIM_SHARED_RESERVED : 0;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                            const CUlaunchConfig *config)
{
    SIM_ENTER(cuOccupancyMaxPotentialClusterSize);
    if (!resolve(func)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!clusterSize || !config) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *clusterSize = sim_settings.capability_major >= 9 ? 8 : 1;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                      const CUlaunchConfig *config)
{
    SIM_ENTER(cuOccupancyMaxActiveClusters);
    if (!resolve(func)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!numClusters || !config) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *numClusters = (int)sim_settings.processors / 8;
    return CUDA_SUCCESS;
}
