/* SPDX-License-Identifier: Apache-2.0 */
/* Linear and stream-ordered memory, what is told of an address, and the way to functions. */
#include <cudaTypedefs.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/assume.h"

static enum verdict large_blocks_charge_granules(const struct gpu *gpu)
{
    CUdeviceptr at;
    (void)gpu;
    size_t before = gpu_free_bytes();
    WORKS(cuMemAlloc(&at, 64 * MIB));
    GIVES(before - gpu_free_bytes(), 64 * MIB);
    WORKS(cuMemFree(at));
    GIVES(before - gpu_free_bytes(), 0);
    return HOLDS;
}

static enum verdict small_blocks_share(const struct gpu *gpu)
{
    enum { BLOCKS = 16 };
    CUdeviceptr at[BLOCKS];
    (void)gpu;
    size_t before = gpu_free_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        WORKS(cuMemAlloc(&at[i], 4 * KIB));
        SO(at[i] % 256 == 0);
    }
    SO(before - gpu_free_bytes() <= 2 * MIB);
    for (int i = 0; i < BLOCKS; i++) {
        WORKS(cuMemFree(at[i]));
    }
    return HOLDS;
}

static enum verdict refusals(const struct gpu *gpu)
{
    CUdeviceptr block = 0;
    CUdeviceptr other = 0;
    size_t pitch = 0;
    (void)gpu;
    GIVES(cuMemAlloc(&block, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree(0), CUDA_SUCCESS);
    GIVES(cuMemFree((CUdeviceptr)0x1234000), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc(&block, 4096 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAllocPitch(&block, &pitch, 4096 * GIB, 4, 4), CUDA_ERROR_OUT_OF_MEMORY);
    WORKS(cuMemAlloc(&block, MIB));
    GIVES(cuMemFree(block + 256), CUDA_ERROR_INVALID_VALUE);
    WORKS(cuMemFree(block));
    GIVES(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    WORKS(cuMemAlloc(&other, MIB));
    WORKS(cuMemFree(other));
    return HOLDS;
}

static enum verdict pitches(const struct gpu *gpu)
{
    CUdeviceptr block;
    size_t pitch = 0;
    (void)gpu;
    WORKS(cuMemAllocPitch(&block, &pitch, 1000, 77, 4));
    GIVES(pitch % 512, 0);
    GIVES(pitch, 1024);
    WORKS(cuMemFree(block));
    return HOLDS;
}

static enum verdict free_waits_for_the_device(const struct gpu *gpu)
{
    CUstream stream;
    CUdeviceptr block;
    CUdeviceptr other;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuMemAlloc(&block, 4 * MIB));
    WORKS(cuMemAlloc(&other, 4 * MIB));
    WORKS(gpu_spin(gpu, 20000000, stream));
    WORKS(gpu_fill(gpu, block, 4 * MIB, 1, stream));
    WORKS(cuMemFree(other));
    GIVES(cuStreamQuery(stream), CUDA_SUCCESS);
    WORKS(cuMemFree(block));
    WORKS(cuStreamDestroy(stream));
    return HOLDS;
}

static enum verdict same_stream_reuses_at_once(const struct gpu *gpu)
{
    CUdeviceptr one;
    CUdeviceptr two;
    CUstream stream;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(gpu_spin(gpu, 5000000, stream));
    WORKS(cuMemAllocAsync(&one, 8 * MIB, stream));
    WORKS(gpu_fill(gpu, one, 8 * MIB, 4, stream));
    WORKS(cuMemFreeAsync(one, stream));
    WORKS(cuMemAllocAsync(&two, 8 * MIB, stream));
    SO(one == two);
    WORKS(cuMemFreeAsync(two, stream));
    WORKS(cuStreamSynchronize(stream));
    WORKS(cuStreamDestroy(stream));
    return HOLDS;
}

static enum verdict out_of_memory_at_the_call(const struct gpu *gpu)
{
    CUdeviceptr at;
    CUstream stream;
    (void)gpu;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GIVES(cuMemAllocAsync(&at, 4096 * GIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
    WORKS(cuMemAllocAsync(&at, MIB, stream));
    WORKS(cuMemFreeAsync(at, stream));
    WORKS(cuStreamSynchronize(stream));
    WORKS(cuStreamDestroy(stream));
    return HOLDS;
}

static enum verdict pool_defaults(const struct gpu *gpu)
{
    CUmemoryPool pool;
    cuuint64_t threshold = 1;
    int on[3] = {0};
    WORKS(cuDeviceGetDefaultMemPool(&pool, gpu->device));
    WORKS(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    GIVES(threshold, 0);
    WORKS(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &on[0]));
    WORKS(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on[1]));
    WORKS(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &on[2]));
    SO(on[0] == 1 && on[1] == 1 && on[2] == 1);
    return HOLDS;
}

/* Of the device's own pool. */
static uint64_t pool_counts(const struct gpu *gpu, CUmemPool_attribute what)
{
    CUmemoryPool pool;
    cuuint64_t bytes = 0;
    MUST(cuDeviceGetDefaultMemPool(&pool, gpu->device));
    MUST(cuMemPoolGetAttribute(pool, what, &bytes));
    return bytes;
}

static uint64_t pool_used(const struct gpu *gpu)
{
    return pool_counts(gpu, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

static enum verdict pools_count(const struct gpu *gpu)
{
    CUmemoryPool pool;
    CUdeviceptr at;
    WORKS(cuDeviceGetDefaultMemPool(&pool, gpu->device));
    WORKS(cuCtxSynchronize());
    uint64_t before = pool_used(gpu);
    WORKS(cuMemAllocAsync(&at, 10 * MIB, NULL));
    GIVES(pool_used(gpu) - before, 10 * MIB);
    WORKS(cuMemFreeAsync(at, NULL));
    WORKS(cuCtxSynchronize());
    GIVES(pool_used(gpu), before);
    return HOLDS;
}

static enum verdict trimmed_pools_are_empty(const struct gpu *gpu)
{
    CUmemoryPool pool;
    CUdeviceptr at;
    WORKS(cuDeviceGetDefaultMemPool(&pool, gpu->device));
    WORKS(cuMemAllocAsync(&at, 10 * MIB, NULL));
    WORKS(cuMemFreeAsync(at, NULL));
    WORKS(cuCtxSynchronize());
    WORKS(cuMemPoolTrimTo(pool, 0));
    GIVES(pool_counts(gpu, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    return HOLDS;
}

/* How far a pool's used bytes are from what they were, at once, after waiting, and after a trim;
 * here they are to be as before in the end. */
static enum verdict left_in_use(const struct gpu *gpu, uint64_t before, const char *call)
{
    static const char *const moments[] = {"at once", "when the device is idle", "after a trim"};
    CUmemoryPool pool;
    uint64_t left = 0;
    WORKS(cuDeviceGetDefaultMemPool(&pool, gpu->device));
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        char question[160];
        if (i == 1) {
            WORKS(cuCtxSynchronize());
        } else if (i == 2) {
            WORKS(cuMemPoolTrimTo(pool, 0));
        }
        left = pool_used(gpu) - before;
        (void)snprintf(question, sizeof question, "%s leaves in use in the pool, %s", call,
                       moments[i]);
        assume_measured(question, (long long)left, "bytes");
    }
    return HOLDS;
}

static enum verdict stream_frees_block(const struct gpu *gpu)
{
    CUdeviceptr block;
    uint64_t before = pool_used(gpu);
    WORKS(cuMemAlloc(&block, MIB));
    WORKS(cuMemFreeAsync(block, NULL));
    return left_in_use(gpu, before, "cuMemFreeAsync of cuMemAlloc's memory");
}

static enum verdict call_frees_stream_memory(const struct gpu *gpu)
{
    CUdeviceptr block;
    uint64_t before = pool_used(gpu);
    WORKS(cuMemAllocAsync(&block, MIB, NULL));
    WORKS(cuCtxSynchronize());
    WORKS(cuMemFree(block));
    return left_in_use(gpu, before, "cuMemFree of cuMemAllocAsync's memory");
}

static enum verdict identity(const struct gpu *gpu)
{
    CUdeviceptr block;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned kind = 0;
    int ordinal = -1;
    WORKS(cuMemAlloc(&block, 5 * MIB));
    WORKS(cuMemGetAddressRange(&base, &bytes, block + MIB));
    SO(base == block);
    GIVES(bytes, 5 * MIB);
    WORKS(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 1));
    GIVES(kind, CU_MEMORYTYPE_DEVICE);
    WORKS(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block + 1));
    GIVES(ordinal, gpu->device);
    WORKS(cuMemFree(block));
    GIVES(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                (CUdeviceptr)(uintptr_t)&kind),
          CUDA_ERROR_INVALID_VALUE);
    return HOLDS;
}

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is set, and is read as it was set. */
static enum verdict synchronizes(CUdeviceptr at)
{
    unsigned on = 1;
    unsigned read = 0;
    WORKS(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    WORKS(cuPointerGetAttribute(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    GIVES(read, 1);
    return HOLDS;
}

static void CUDA_CB take_a_while(void *unused)
{
    (void)unused;
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static enum verdict synchronized_operations(const struct gpu *gpu)
{
    CUdeviceptr marked;
    CUdeviceptr other;
    unsigned read = 2;
    (void)gpu;
    WORKS(cuMemAlloc(&marked, 8 * MIB));
    WORKS(cuMemAlloc(&other, 8 * MIB));
    WORKS(cuPointerGetAttribute(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, marked));
    GIVES(read, 0);
    WORKS(cuLaunchHostFunc(CU_STREAM_LEGACY, take_a_while, NULL));
    WORKS(cuMemcpyDtoD(marked, other, 8 * MIB));
    GIVES(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    SO(synchronizes(marked) == HOLDS);
    GIVES(cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS);
    WORKS(cuLaunchHostFunc(CU_STREAM_LEGACY, take_a_while, NULL));
    WORKS(cuMemcpyDtoD(marked, other, 8 * MIB));
    GIVES(cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS);
    WORKS(cuLaunchHostFunc(CU_STREAM_LEGACY, take_a_while, NULL));
    WORKS(cuMemsetD8(marked, 1, 8 * MIB));
    GIVES(cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS);
    WORKS(cuMemFree(marked));
    WORKS(cuMemFree(other));
    return HOLDS;
}

static enum verdict ordered_memory_synchronizes(const struct gpu *gpu)
{
    CUdeviceptr at;
    (void)gpu;
    WORKS(cuMemAllocAsync(&at, 2 * MIB, CU_STREAM_LEGACY));
    WORKS(cuStreamSynchronize(CU_STREAM_LEGACY));
    SO(synchronizes(at) == HOLDS);
    WORKS(cuMemFree(at));
    return HOLDS;
}

static enum verdict mapped_memory_does_not(const struct gpu *gpu)
{
    const CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr at;
    unsigned value = 1;
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    WORKS(cuMemAddressReserve(&at, gpu->granule_bytes, 0, 0, 0));
    WORKS(cuMemCreate(&chunk, gpu->granule_bytes, &prop, 0));
    WORKS(cuMemMap(at, gpu->granule_bytes, 0, chunk, 0));
    WORKS(gpu_allow(gpu, at, gpu->granule_bytes));
    GIVES(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at),
          CUDA_ERROR_NOT_SUPPORTED);
    WORKS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    GIVES(value, 0);
    WORKS(cuMemUnmap(at, gpu->granule_bytes));
    WORKS(cuMemRelease(chunk));
    WORKS(cuMemAddressFree(at, gpu->granule_bytes));
    return HOLDS;
}

static enum verdict totals_agree(const struct gpu *gpu)
{
    size_t free = 0;
    size_t total = 0;
    size_t device_total = 0;
    WORKS(cuMemGetInfo(&free, &total));
    WORKS(cuDeviceTotalMem(&device_total, gpu->device));
    GIVES(total - device_total, 0);
    SO(free < total);
    return HOLDS;
}

static enum verdict contexts_cost(const struct gpu *gpu)
{
    CUcontext second;
    size_t before = gpu_free_bytes();
#if CUDA_VERSION >= 13000
    WORKS(cuCtxCreate(&second, NULL, 0, gpu->device));
#else
    WORKS(cuCtxCreate(&second, 0, gpu->device));
#endif
    WORKS(cuCtxSetCurrent(gpu->context));
    SO(gpu_free_bytes() < before);
    WORKS(cuCtxDestroy(second));
    WORKS(cuCtxSetCurrent(gpu->context));
    return HOLDS;
}

static enum verdict parameters_are_told(const struct gpu *gpu)
{
    static const size_t offsets[] = {0, 8, 16, 24};
    static const size_t sizes[] = {8, 8, 4, 8};
    size_t offset = 99;
    size_t bytes = 99;
    NEEDS(!gpu_is_simulated(), "its kernels have no declared parameters here");
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        WORKS(cuFuncGetParamInfo(gpu->check, i, &offset, &bytes));
        GIVES(offset, offsets[i]);
        GIVES(bytes, sizes[i]);
    }
    GIVES(cuFuncGetParamInfo(gpu->check, 4, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    return HOLDS;
}

/* Versions and flavours stay exact. */
static enum verdict resolver(const struct gpu *gpu)
{
    void *plain = NULL;
    void *per_thread = NULL;
    void *old = NULL;
    void *none = &plain;
    CUdriverProcAddressQueryResult found;
    (void)gpu;
    WORKS(cuGetProcAddress("cuMemAllocAsync", &plain, 11020, CU_GET_PROC_ADDRESS_DEFAULT, &found));
    GIVES(found, CU_GET_PROC_ADDRESS_SUCCESS);
    WORKS(cuGetProcAddress("cuMemAllocAsync", &per_thread, 11020,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    SO(plain != per_thread);
    WORKS(cuGetProcAddress("cuMemAlloc", &plain, 3020, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    (void)cuGetProcAddress("cuMemAlloc", &old, 2000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    SO(plain != old);
    (void)cuGetProcAddress("cuNoSuchFunction", &none, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    GIVES(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    SO(none == NULL);
    (void)cuGetProcAddress("cuMemAllocAsync", &none, 10000, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    GIVES(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    return HOLDS;
}

const struct assumption assume_memory[] = {
    {"cuMemAlloc of whole granules takes its bytes at once, cuMemFree gives them back",
     large_blocks_charge_granules, false},
    {"small blocks share a granule and lie at multiples of 256", small_blocks_share, false},
    {"what is refused by cuMemAlloc and cuMemFree, and by which error", refusals, false},
    {"pitches are multiples of 512", pitches, false},
    {"cuMemFree waits for the work of the device", free_waits_for_the_device, false},
    {"a pool's used bytes are those asked for", pools_count, false},
    {"a trimmed pool is empty", trimmed_pools_are_empty, false},
    {"cuMemFreeAsync frees cuMemAlloc's memory", stream_frees_block, false},
    {"cuMemFree frees a stream's memory", call_frees_stream_memory, false},
    {"a stream gets at once what it freed", same_stream_reuses_at_once, false},
    {"cuMemAllocAsync is out of memory at the call, and nothing sticks", out_of_memory_at_the_call,
     false},
    {"a pool keeps nothing and reuses all ways unless told", pool_defaults, false},
    {"an address tells its block, kind and device; an unknown one is refused", identity, false},
    {"SYNC_MEMOPS: copies and sets of cuMemAlloc's memory are done when they return",
     synchronized_operations, false},
    {"SYNC_MEMOPS can be set for stream-ordered memory", ordered_memory_synchronizes, false},
    {"SYNC_MEMOPS cannot be set for mapped memory, and is read as off", mapped_memory_does_not,
     false},
    {"cuMemGetInfo and cuDeviceTotalMem agree on the total", totals_agree, false},
    {"a context takes device memory", contexts_cost, false},
    {"a kernel's parameters are told", parameters_are_told, false},
    {"the resolver answers by version and flavour", resolver, false},
    {NULL, NULL, false},
};
