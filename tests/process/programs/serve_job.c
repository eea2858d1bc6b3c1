/* SPDX-License-Identifier: Apache-2.0 */
/* What the serving half promises, seen from the outside: each scenario is a program of its own,
 * chosen by the first argument, that compares what memshim says (cuMemGetInfo, results) with what
 * the simulated GPU counts. They expect memshim in front of them. */
#define MEMSHIM_WEAK
#include <cuda.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "say.h"
#include "scenario.h"
#include "shim/memshim.h"
#include "simgpu.h"

enum { POOL_STEPS = 4000, CONTEXT_STEPS = 10000, POOL_ROUNDS = 300, CONTEXT_ROUNDS = 100 };

static CUdevice device;
static CUcontext context;

static size_t free_bytes(void)
{
    size_t free = 0;
    size_t total = 0;
    MUST(cuMemGetInfo(&free, &total));
    EXPECT(free <= total);
    return free;
}

/* A device whose pool holds nothing that it need not hold. */
static void settle(void)
{
    CUmemoryPool pool;
    MUST(cuCtxSynchronize());
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolTrimTo(pool, 0));
}

static CUmemAllocationProp chunk_properties(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static void give_access(CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(at, bytes, &access, 1));
}

/* --- the application's own chunks --------------------------------------------------------------
 */

/* Charged from creation until released and unmapped everywhere. */
static void vmm(void)
{
    CUmemAllocationProp prop = chunk_properties();
    CUmemGenericAllocationHandle chunk;
    CUmemGenericAllocationHandle again;
    CUdeviceptr at;
    size_t before = free_bytes();
    MUST(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&chunk, 16 * MIB, &prop, 0));
    EXPECT(free_bytes() == before - 16 * MIB);
    MUST(cuMemMap(at, 16 * MIB, 0, chunk, 0));
    MUST(cuMemMap(at + 32 * MIB, 16 * MIB, 0, chunk, 0));
    give_access(at, 16 * MIB);
    MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
    EXPECT(again == chunk);
    MUST(cuMemRelease(chunk));
    MUST(cuMemRelease(again));
    EXPECT(free_bytes() == before - 16 * MIB);
    MUST(cuMemUnmap(at, 16 * MIB));
    EXPECT(free_bytes() == before - 16 * MIB);
    MUST(cuMemUnmap(at + 32 * MIB, 16 * MIB));
    EXPECT(free_bytes() == before);
    MUST(cuMemAddressFree(at, 64 * MIB));
    EXPECT(simgpu_live("chunk") == 0);
    EXPECT(simgpu_live("reservation") == 0);
}

/* The cap holds for chunks too, and the pool gives way: MEMSHIM_LIMIT=256MiB. */
static void vmm_cap(void)
{
    CUmemAllocationProp prop = chunk_properties();
    CUmemGenericAllocationHandle chunk;
    CUmemGenericAllocationHandle other;
    CUdeviceptr block;
    MUST(cuMemAlloc(&block, 150 * MIB));
    EXPECT(cuMemCreate(&chunk, 150 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemFree(block));
    MUST(cuMemCreate(&chunk, 150 * MIB, &prop, 0)); /* what the pool kept makes room */
    EXPECT(simgpu_used_bytes(device) <= 256 * MIB);
    EXPECT(cuMemCreate(&other, 150 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAlloc(&block, 150 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemRelease(chunk));
    MUST(cuMemAlloc(&block, 150 * MIB));
    MUST(cuMemFree(block));
}

/* All that is said to be free, as far as chunks are whole, can be had at once. Gives it back. */
static void have_all(void)
{
    const size_t bytes = free_bytes() / (2 * MIB) * (2 * MIB);
    CUdeviceptr all;
    EXPECT(bytes > 64 * MIB);
    MUST(cuMemAlloc(&all, bytes));
    EXPECT(free_bytes() < 2 * MIB);
    MUST(cuMemFree(all));
}

/* What is left over beside small blocks serves nothing large: MEMSHIM_LIMIT=256MiB. */
static void told_free(void)
{
    enum { MANY = 200 };
    static CUdeviceptr blocks[MANY];
    CUdeviceptr large;
    uint64_t seed = 7;
    have_all();
    for (int i = 0; i < MANY; i++) {
        MUST(cuMemAlloc(&blocks[i], 1 + next_random(&seed) % MIB));
    }
    have_all();
    for (int i = 0; i < MANY; i += 2) {
        MUST(cuMemFree(blocks[i]));
    }
    have_all();
    MUST(cuMemAlloc(&large, 9 * MIB + 5));
    have_all();
    for (int i = 1; i < MANY; i += 4) {
        MUST(cuMemFree(blocks[i]));
    }
    have_all();
    MUST(cuMemFree(large));
    have_all();
}

/* A library is loaded into a context by the first question about what is in it, and a variable may
 * get its memory no sooner. What that takes is charged; and if the pool holds all of the device, it
 * gives some back. Unloading ends the charge. */
static void loaded_late(void)
{
    static const char image[] = "simgpu-module\nkernel k\nglobal g 4096\n";
    CUlibrary libraries[2];
    CUmodule module;
    CUmodule of_library;
    CUdeviceptr at;
    size_t bytes;
    size_t at_first = free_bytes();
    MUST(cuModuleLoadData(&module, image));
    for (int i = 0; i < 2; i++) {
        MUST(cuLibraryLoadData(&libraries[i], image, NULL, NULL, 0, NULL, NULL, 0));
    }
    for (int call = 0; call < 3; call++) {
        size_t before = free_bytes();
        uint64_t used = simgpu_used_bytes(device);
        CUdeviceptr all;
        MUST(cuMemAlloc(&all, before));
        MUST(cuMemFree(all));
        MUST(call == 0   ? cuModuleGetGlobal(&at, &bytes, module, "g")
             : call == 1 ? cuLibraryGetGlobal(&at, &bytes, libraries[0], "g")
                         : cuLibraryGetModule(&of_library, libraries[1]));
        size_t after = free_bytes();
        settle();
        EXPECT(simgpu_used_bytes(device) > used);
        EXPECT(after == before - (simgpu_used_bytes(device) - used));
    }
    MUST(cuLibraryUnload(libraries[1]));
    MUST(cuLibraryUnload(libraries[0]));
    MUST(cuModuleUnload(module)); /* its variable had the granule first */
    EXPECT(free_bytes() == at_first);
}

/* --- contexts ----------------------------------------------------------------------------------
 */

static void reset(void)
{
    CUdeviceptr block;
    CUdeviceptr ordered;
    size_t before = free_bytes();
    MUST(cuMemAlloc(&block, 100 * MIB));
    MUST(cuMemAllocAsync(&ordered, 50 * MIB, NULL));
    MUST(cuMemsetD8Async(ordered, 1, 50 * MIB, NULL));
    MUST(cuDevicePrimaryCtxReset(device));
    EXPECT(simgpu_live("chunk") == 0);
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    EXPECT(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(free_bytes() == before);
    MUST(cuMemAlloc(&block, 100 * MIB));
    MUST(cuMemsetD8(block, 7, 100 * MIB));
    MUST(cuMemFree(block));
    settle();
    EXPECT(free_bytes() == before);
}

static CUcontext new_context(void)
{
    CUcontext made;
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&made, NULL, 0, device));
#else
    MUST(cuCtxCreate(&made, 0, device));
#endif
    return made;
}

/* cuda.h, cuCtxDestroy: what cuMemAlloc gave goes with the context, what was stream-ordered stays.
 */
static void destroyed_context(void)
{
    CUdeviceptr kept;
    CUdeviceptr gone;
    CUdeviceptr ordered;
    CUstream stream;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&kept, 8 * MIB));
    MUST(cuMemsetD8(kept, 3, 8 * MIB));
    size_t before = free_bytes();
    CUcontext second = new_context();
    EXPECT(free_bytes() < before); /* a context costs something */
    MUST(cuMemAlloc(&gone, 64 * MIB));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocAsync(&ordered, 4 * MIB, stream));
    MUST(cuMemsetD8Async(ordered, 5, 4 * MIB, stream));
    MUST(cuCtxDestroy(second));
    MUST(cuCtxSetCurrent(context));
    EXPECT(cuMemFree(gone) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemcpyDtoH(&byte, ordered + 4 * MIB - 1, 1));
    EXPECT(byte == 5);
    MUST(cuMemcpyDtoH(&byte, kept, 1));
    EXPECT(byte == 3);
    MUST(cuMemFreeAsync(ordered, NULL));
    settle();
    EXPECT(free_bytes() == before);
    MUST(cuMemFree(kept));
}

/* What outlives a context and was freed behind its work is as safe as ever. */
static void use_and_destroy(CUcontext made, unsigned char value)
{
    CUstream stream = value % 2 ? CU_STREAM_PER_THREAD : NULL;
    CUdeviceptr at;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&at, MIB));
    MUST(cuMemAllocAsync(&at, MIB, stream));
    MUST(cuMemsetD8Async(at, value, MIB, stream));
    MUST(cuMemFreeAsync(at, stream));
    MUST(cuCtxPopCurrent(&made));
    MUST(cuMemAlloc(&at, MIB));
    MUST(cuMemsetD8(at, 1, MIB));
    MUST(cuCtxDestroy(made));
    MUST(cuMemcpyDtoH(&byte, at, 1));
    EXPECT(byte == 1);
    MUST(cuMemFree(at));
}

/* A context for every request: nothing is kept of those that are destroyed. */
static void many_contexts(void)
{
    size_t before = 0;
    size_t used = free_bytes();
    for (int i = 0; i < CONTEXT_STEPS; i++) {
        CUcontext made = new_context();
        if (i % 16 < 2) {
            use_and_destroy(made, (unsigned char)i);
        } else {
            MUST(cuCtxDestroy(made));
        }
        before = i == CONTEXT_STEPS / 2 ? mallinfo2().uordblks : before;
    }
    EXPECT(mallinfo2().uordblks < before + (size_t)CONTEXT_STEPS * 16);
    settle();
    EXPECT(free_bytes() == used);
}

static void *use_contexts(void *value)
{
    for (int round = 0; round < CONTEXT_ROUNDS; round++) {
        CUcontext made;
        MUST(cuCtxSetCurrent(context));
        made = new_context();
        use_and_destroy(made, (unsigned char)(uintptr_t)value);
    }
    return NULL;
}

/* A free waits for the work of all contexts of the device, those that others destroy among them. */
static void contexts_at_once(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    size_t before = free_bytes();
    for (uintptr_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, use_contexts, (void *)i));
    }
    for (size_t i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    settle();
    EXPECT(free_bytes() == before);
}

/* A stream's handle is used again by the driver; its order is not. */
static void reused_handle(void)
{
    unsigned char *host = malloc(MIB);
    simgpu_set_delay(2000, 2000);
    for (unsigned round = 1; round < 40; round++) {
        CUstream stream;
        CUdeviceptr at;
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        MUST(cuMemAllocAsync(&at, MIB, stream));
        MUST(cuMemsetD8Async(at, (unsigned char)round, MIB, stream));
        MUST(cuMemcpyDtoHAsync(host, at, MIB, stream));
        if (round % 2) {
            MUST(cuMemFreeAsync(at, stream));
            MUST(cuStreamDestroy(stream));
        } else {
            MUST(cuMemFree(at));
            MUST(cuStreamSynchronize(stream));
            EXPECT(host[0] == round && host[MIB - 1] == round);
            MUST(cuStreamDestroy(stream));
        }
    }
    MUST(cuCtxSynchronize());
    free(host);
}

/* --- memory pools ------------------------------------------------------------------------------
 */

static cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;
    MUST(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void pools(void)
{
    CUmemoryPool standard;
    CUmemoryPool own;
    CUmemoryPool told = NULL;
    CUdeviceptr one;
    CUdeviceptr two;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .maxSize = 64 * MIB};
    MUST(cuDeviceGetDefaultMemPool(&standard, device));
    MUST(cuMemPoolCreate(&own, &props));
    MUST(cuMemAllocAsync(&one, 10 * MIB, NULL));
    MUST(cuMemAllocFromPoolAsync(&two, 20 * MIB, own, NULL));
    EXPECT(attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 10 * MIB);
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 20 * MIB);
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 20 * MIB);
    MUST(cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, two + 5));
    EXPECT(told == own);
    CUdeviceptr three;
    EXPECT(cuMemAllocFromPoolAsync(&three, 50 * MIB, own, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemFreeAsync(two, NULL));
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 20 * MIB);
    cuuint64_t zero = 0;
    MUST(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
    cuuint64_t threshold = 123456;
    MUST(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold);
    MUST(cuMemFree(one)); /* documented: either call frees either memory */
    EXPECT(attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    MUST(cuMemAlloc(&one, MIB));
    MUST(cuMemFreeAsync(one, NULL));
    MUST(cuMemPoolDestroy(own));
    settle();
    EXPECT(simgpu_live("chunk") == 0);
}

/* Memory that the driver's own pool gave back at a synchronization, as it does by default, is free.
 */
static void given_back(void)
{
    CUdeviceptr block;
    size_t before = free_bytes();
    MUST(cuMemAllocAsync(&block, 64 * MIB, NULL));
    EXPECT(free_bytes() <= before - 64 * MIB);
    MUST(cuMemFreeAsync(block, NULL));
    MUST(cuCtxSynchronize());
    EXPECT(free_bytes() == before);
}

/* Blocks outlive their pool, and with them what the driver's pool holds. */
static void pool_destroyed_first(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUdeviceptr blocks[2];
    CUmemoryPool pool;
    size_t before = free_bytes();
    MUST(cuMemPoolCreate(&pool, &props));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAllocFromPoolAsync(&blocks[i], 32 * MIB, pool, NULL));
    }
    MUST(cuMemPoolDestroy(pool));
    EXPECT(free_bytes() <= before - 64 * MIB);
    MUST(cuMemFreeAsync(blocks[0], NULL));
    MUST(cuCtxSynchronize());
    EXPECT(free_bytes() <= before - 32 * MIB);
    MUST(cuMemFreeAsync(blocks[1], NULL));
    MUST(cuCtxSynchronize());
    EXPECT(free_bytes() == before);
}

/* A pool for every step. Nothing is kept of those that are destroyed, but for the first, which a
 * block outlives. */
static void many_pools(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool pool;
    CUmemoryPool told;
    CUmemoryPool outlived = NULL;
    CUdeviceptr kept = 0;
    CUdeviceptr at;
    size_t before = 0;
    for (int i = 0; i < POOL_STEPS; i++) {
        size_t bytes = i % 4 == 0 ? 32 * MIB : 64 * MIB;
        props.maxSize = i % 4 == 0 ? 32 * MIB : 0;
        MUST(cuMemPoolCreate(&pool, &props));
        EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
        MUST(cuMemAllocFromPoolAsync(&at, bytes, pool, NULL));
        EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == bytes);
        if (i == 0) {
            outlived = pool;
            kept = at;
        } else {
            MUST(cuMemFreeAsync(at, NULL));
        }
        MUST(cuMemPoolDestroy(pool));
        before = i == POOL_STEPS / 2 ? mallinfo2().uordblks : before;
    }
    EXPECT(mallinfo2().uordblks < before + (size_t)POOL_STEPS * 16);
    MUST(cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, kept));
    EXPECT(told == outlived);
    MUST(cuMemFreeAsync(kept, NULL));
    settle();
    EXPECT(simgpu_live("chunk") == 0);
}

/* Pools of this thread's own, one after the other: each with memory that outlives it or not. */
static void *use_pools(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    MUST(cuCtxSetCurrent(context));
    for (int round = 0; round < POOL_ROUNDS; round++) {
        const uint64_t dice = next_random(&random);
        const size_t bytes = (dice % 5 + 1) * 64 * KIB;
        CUstream stream = dice & 64 ? CU_STREAM_PER_THREAD : NULL;
        CUmemoryPool pool;
        CUmemoryPool told;
        CUdeviceptr at;
        props.maxSize = dice & 128 ? 16 * MIB : 0;
        MUST(cuMemPoolCreate(&pool, &props));
        MUST(cuMemAllocFromPoolAsync(&at, bytes, pool, stream));
        EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == bytes);
        MUST(cuMemsetD8Async(at, (unsigned char)dice, bytes, stream));
        if (dice & 256) {
            MUST(cuMemPoolDestroy(pool));
            MUST(cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
            EXPECT(told == pool);
            MUST(cuMemFreeAsync(at, stream));
        } else {
            MUST(cuMemFreeAsync(at, stream));
            EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
            if (dice % 16 == 0) {
                MUST(cuMemPoolTrimTo(pool, 0));
            }
            MUST(cuMemPoolDestroy(pool));
        }
    }
    return NULL;
}

static void pools_at_once(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    settle();
    size_t before = free_bytes();
    for (uintptr_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, use_pools, (void *)(i + 1)));
    }
    for (size_t i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    settle();
    EXPECT(free_bytes() == before);
}

static atomic_bool go_on;

static void hold_up(void *unused)
{
    (void)unused;
    while (!go_on) {
        usleep(100);
    }
}

/* Memory that another stream has freed behind unfinished work can only be had behind a wait that
 * the program did not ask for: MEMSHIM_LIMIT=256MiB, MEMSHIM_WAIT_MS=0. */
static void reuse_flags(void)
{
    CUmemoryPool pool;
    CUstream busy;
    CUstream other;
    CUdeviceptr freed;
    CUdeviceptr block;
    int allowed = 0;
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocAsync(&freed, 150 * MIB, busy));
    MUST(cuLaunchHostFunc(busy, hold_up, NULL));
    MUST(cuMemFreeAsync(freed, busy));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed));
    EXPECT(cuMemAllocAsync(&block, 150 * MIB, other) == CUDA_ERROR_OUT_OF_MEMORY);
    allowed = 1;
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed));
    MUST(cuMemAllocAsync(&block, 150 * MIB, other));
    EXPECT(cuStreamQuery(other) == CUDA_ERROR_NOT_READY); /* it waits for the busy one */
    go_on = true;
    MUST(cuStreamSynchronize(other));
    EXPECT(cuStreamQuery(busy) == CUDA_SUCCESS);
    MUST(cuMemFreeAsync(block, other));
    settle();
}

/* --- what leaves the process, and what is asked about an address --------------------------------
 */

static void identity(void)
{
    CUdeviceptr at;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUipcMemHandle handle;
    CUcontext owner = NULL;
    int capable = 0;
    unsigned long long one_id = 0;
    unsigned long long other_id = 0;
    CUdeviceptr other;
    MUST(cuMemAlloc(&at, 3 * MIB + 1));
    MUST(cuMemAlloc(&other, 4 * MIB));
    MUST(cuMemGetAddressRange(&base, &bytes, at + 2 * MIB));
    EXPECT(base == at && bytes == 3 * MIB + 1);
    MUST(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, other + 1));
    MUST(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, other + 1));
    EXPECT(base == other && bytes == 4 * MIB);
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    EXPECT(capable);
    MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    EXPECT(owner == context);
    MUST(cuPointerGetAttribute(&one_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
    MUST(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    EXPECT(one_id != other_id);
    MUST(cuIpcGetMemHandle(&handle, at));
    MUST(cuMemFree(at));
    EXPECT(cuIpcGetMemHandle(&handle, at) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemFree(other));
    EXPECT(cuMemFree(at) == CUDA_ERROR_INVALID_VALUE);
}

/* A block was not mapped by the program. So the calls for mapped memory refuse it, as they refuse
 * the driver's own memory, and its contents stay. */
static void not_mapped(void)
{
    enum { BLOCKS = 12 };
    CUdeviceptr blocks[BLOCKS];
    CUmemAllocationProp prop = chunk_properties();
    CUmemGenericAllocationHandle chunk;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    MUST(cuMemCreate(&chunk, 2 * MIB, &prop, 0));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&blocks[i], (i + 1) * MIB));
        MUST(cuMemsetD8(blocks[i], 1, (i + 1) * MIB));
    }
    for (int i = 0; i < BLOCKS; i++) {
        CUdeviceptr granule = blocks[i] / (2 * MIB) * (2 * MIB);
        EXPECT(cuMemSetAccess(granule, 2 * MIB, &access, 1) == CUDA_ERROR_INVALID_VALUE);
        EXPECT(cuMemMap(granule, 2 * MIB, 0, chunk, 0) == CUDA_ERROR_INVALID_VALUE);
        for (size_t bytes = 2 * MIB; bytes <= 16 * MIB; bytes += 2 * MIB) {
            EXPECT(cuMemUnmap(granule, bytes) == CUDA_ERROR_INVALID_VALUE);
            EXPECT(cuMemAddressFree(granule, bytes) == CUDA_ERROR_INVALID_VALUE);
        }
        EXPECT(cuMemHostRegister((void *)(uintptr_t)blocks[i], MIB, 0) != CUDA_SUCCESS);
    }
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char first = 0;
        MUST(cuMemcpyDtoH(&first, blocks[i], 1));
        EXPECT(first == 1);
        MUST(cuMemsetD8(blocks[i], 2, (i + 1) * MIB));
        MUST(cuMemFree(blocks[i]));
    }
    /* Nor can a chunk be mapped at addresses that the pool keeps. */
    EXPECT(cuMemMap(blocks[0] / (2 * MIB) * (2 * MIB), 2 * MIB, 0, chunk, 0) ==
           CUDA_ERROR_INVALID_VALUE);
    settle();
    EXPECT(cuMemMap(blocks[0] / (2 * MIB) * (2 * MIB), 2 * MIB, 0, chunk, 0) ==
           CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemRelease(chunk));
}

/* Blocks whose contents have moved to the host are device memory to everybody who asks. */
static void spilled(void)
{
    enum { BLOCKS = 24 };
    CUdeviceptr blocks[BLOCKS];
    struct memshim_stats stats = {.size = sizeof(stats)};
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&blocks[i], 8 * MIB));
        MUST(cuMemsetD8(blocks[i], 1, 8 * MIB));
    }
    MUST(memshim_stats(device, &stats));
    EXPECT(stats.spilled_bytes > 0);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned int type = 0;
        int ordinal = -1;
        void *host = &type;
        CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       CU_POINTER_ATTRIBUTE_HOST_POINTER};
        void *answers[] = {&type, &host};
        MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[i]));
        EXPECT(type == CU_MEMORYTYPE_DEVICE);
        MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, blocks[i]));
        EXPECT(ordinal == device);
        EXPECT(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, blocks[i]) ==
               CUDA_ERROR_INVALID_VALUE);
        EXPECT(host == NULL);
        type = 0;
        MUST(cuPointerGetAttributes(2, asked, answers, blocks[i]));
        EXPECT(type == CU_MEMORYTYPE_DEVICE && host == NULL);
    }
}

/* A block that a framework carves up counts by what is alive in it. */
static void arena(void)
{
    CUdeviceptr carved;
    CUdeviceptr plain;
    EXPECT(memshim_range_born != NULL);
    MUST(cuMemAlloc(&carved, 8 * MIB));
    memshim_range_born(device, (const void *)(uintptr_t)carved, MIB);
    memshim_range_born(device, (const void *)(uintptr_t)(carved + 4 * MIB), 2 * MIB);
    MUST(cuMemAlloc(&plain, 16 * MIB));
    memshim_range_died(device, (const void *)(uintptr_t)carved, MIB);
    MUST(cuMemFree(plain));
    MUST(cuMemFree(carved)); /* with a range that was never reported dead */
}

/* --- the GPUDirect-RDMA flag (SIMGPU_RDMA) ------------------------------------------------------
 */

/* Of memory that came after the first chunk, whatever the test of the flag had met there. */
static unsigned later_flag(void)
{
    CUdeviceptr block;
    unsigned capable = 2;
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAlloc(&block, 64 * MIB));
    }
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                               block + 64 * MIB - 1));
    return capable;
}

static void gpudirect(void)
{
    EXPECT(later_flag() == 1);
}

static void no_gpudirect(void)
{
    EXPECT(later_flag() == 0);
}

/* --- two devices (SIMGPU_DEVICES=2) -------------------------------------------------------------
 */

/* What the current context's device may do at an address. */
static CUmemAccess_flags access_to(CUdeviceptr at)
{
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    MUST(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
    return flags;
}

static void peers(void)
{
    CUcontext second;
    CUdeviceptr here;
    CUdeviceptr there;
    CUdeviceptr later;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&here, 4 * MIB));
    MUST(cuMemsetD8(here, 9, 4 * MIB));
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemAlloc(&there, 4 * MIB));
    MUST(cuMemcpyDtoD(there, here, 4 * MIB)); /* staged by the driver, were it the driver's */
    MUST(cuMemcpyDtoH(&byte, there + MIB, 1));
    EXPECT(byte == 9);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = here,
                          .srcPitch = KIB,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = there,
                          .dstPitch = 2 * KIB,
                          .WidthInBytes = 512,
                          .Height = 16};
    MUST(cuMemsetD8(there, 0, 4 * MIB));
    MUST(cuMemcpy2D(&rows));
    MUST(cuMemcpyDtoH(&byte, there + (size_t)(15 * 2) * KIB + 511, 1));
    EXPECT(byte == 9);
    MUST(cuMemcpyDtoH(&byte, there + 512, 1));
    EXPECT(byte == 0);
    MUST(cuCtxEnablePeerAccess(context, 0));
    EXPECT(access_to(here) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&later, 100 * MIB)); /* the pool grows after the access was given */
    MUST(cuCtxSetCurrent(second));
    EXPECT(access_to(later + 99 * MIB) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuCtxDisablePeerAccess(context));
    EXPECT(access_to(here) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    MUST(cuMemFree(there));
    MUST(cuMemFree(here)); /* any context may free it */
    MUST(cuMemFree(later));
}

/* --- captures -----------------------------------------------------------------------------------
 */

static void capture(void)
{
    CUstream stream;
    CUstream other;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr node;
    CUdeviceptr block;
    CUdeviceptr freed;
    CUstreamCaptureStatus status;
    size_t nodes = 0;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocAsync(&freed, 8 * MIB, other));
    MUST(cuMemsetD8Async(freed, 1, 8 * MIB, other));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemAllocAsync(&node, MIB, stream)); /* a graph node */
    MUST(cuMemsetD8Async(node, 4, MIB, stream));
    MUST(cuMemAlloc(&block, 32 * MIB)); /* the pool grows beside the capture */
    MUST(cuMemFree(block));
    MUST(cuMemFreeAsync(freed, other)); /* not this capture's stream */
    MUST(cuMemAlloc(&block, 4 * MIB));
    MUST(cuMemFreeAsync(node, stream));
    MUST(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 3);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree(block));
    /* A global capture bars unsafe calls on every thread that is not in relaxed mode, as PyTorch's
     * is when it allocates: memshim's own must not harm it. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuMemAlloc(&block, 64 * MIB));
    MUST(cuMemFree(block));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemAlloc(&block, 64 * MIB));
    MUST(cuMemFree(block));
    settle();
    EXPECT(cuStreamQuery(stream) == CUDA_SUCCESS);
}

/* --- every driver call fails once ----------------------------------------------------------------
 */

static CUresult give_back(CUdeviceptr at, CUstream stream)
{
    return stream != NULL ? cuMemFreeAsync(at, stream) : cuMemFree(at);
}

/* Work that grows, shares, frees in other orders, and meets failures; errors are allowed, wrong
 * memory and lost bytes are not. */
static unsigned churn(CUstream *streams)
{
    enum { BLOCKS = 12 };
    CUdeviceptr at[BLOCKS] = {0};
    unsigned failures = 0;
    for (unsigned i = 0; i < 3 * BLOCKS; i++) {
        CUdeviceptr *slot = &at[i % BLOCKS];
        size_t bytes = (size_t)(i * 7 % 5 + 1) * 3 * MIB;
        if (*slot != 0) {
            CUresult result = give_back(*slot, i % 2 ? NULL : streams[i % 2]);
            failures += result != CUDA_SUCCESS;
            EXPECT(result == CUDA_SUCCESS || give_back(*slot, NULL) == CUDA_SUCCESS);
            *slot = 0;
        }
        CUresult result =
            i % 3 ? cuMemAllocAsync(slot, bytes, streams[i % 2]) : cuMemAlloc(slot, bytes);
        if (result != CUDA_SUCCESS) {
            *slot = 0;
            failures++;
        } else {
            MUST(cuMemsetD8Async(*slot, (unsigned char)i, 4 * KIB, streams[i % 2]));
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (at[i] != 0) {
            EXPECT(cuMemFree(at[i]) == CUDA_SUCCESS || cuMemFree(at[i]) == CUDA_SUCCESS);
        }
    }
    return failures;
}

static CUgraphExec graph_that_allocates(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemAllocAsync(&at, 20 * MIB, stream));
    MUST(cuMemFreeAsync(at, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    return exec;
}

static bool all_is_told(void)
{
    size_t free = 0;
    size_t total = 0;
    MUST(cuCtxSynchronize());
    MUST(cuMemGetInfo(&free, &total));
    return free + simgpu_used_bytes(device) == total;
}

/* What the driver holds for graphs is charged whenever it comes and goes: with the first launch,
 * also beside a capture, with later ones, and when the program trims it. */
static void graph_memory(void)
{
    CUstream stream;
    CUstream capturing;
    CUgraph graph;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    CUgraphExec one = graph_that_allocates(stream);
    CUgraphExec other = graph_that_allocates(stream);
    uint64_t before = simgpu_used_bytes(device);
    MUST(cuGraphLaunch(one, stream));
    EXPECT(simgpu_used_bytes(device) > before);
    EXPECT(all_is_told());
    MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuGraphLaunch(other, stream));
    MUST(cuStreamEndCapture(capturing, &graph));
    EXPECT(all_is_told());
    MUST(cuGraphExecDestroy(other));
    MUST(cuDeviceGraphMemTrim(device));
    EXPECT(all_is_told());
    MUST(cuGraphLaunch(one, stream));
    EXPECT(all_is_told());
    MUST(cuGraphExecDestroy(one));
    MUST(cuDeviceGraphMemTrim(device));
    EXPECT(simgpu_used_bytes(device) == before);
    EXPECT(all_is_told());
}

static void injected(void)
{
    static const char *const functions[] = {
        "cuMemCreate",   "cuMemAddressReserve", "cuMemMap",         "cuMemSetAccess",
        "cuEventCreate", "cuEventRecord",       "cuCtxRecordEvent", "cuStreamWaitEvent",
        "cuEventQuery",  "cuMemUnmap",          "cuMemRelease"};
    static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    CUstream streams[2];
    MUST(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    simgpu_set_delay(50, 200);
    EXPECT(churn(streams) == 0);
    settle();
    size_t before = free_bytes();
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            for (uint64_t n = 1; n <= 6; n++) {
                MUST(simgpu_fail(functions[f], n, errors[e]));
                (void)churn(streams);
                simgpu_fail_clear();
                settle();
                if (free_bytes() != before || simgpu_live("chunk") != 0) {
                    (void)fprintf(stderr,
                                  "%s, call %d, error %d: free %zu, before %zu, chunks %d\n",
                                  functions[f], (int)n, (int)errors[e], free_bytes(), before,
                                  (int)simgpu_live("chunk"));
                    exit(1);
                }
            }
        }
    }
    EXPECT(churn(streams) == 0);
}

/* --- threads against the cap (MEMSHIM_LIMIT=256MiB)
 * ----------------------------------------------- */

static atomic_bool over;
static atomic_ullong most_used;

static void *watch(void *unused)
{
    (void)unused;
    while (!over) {
        unsigned long long now = simgpu_used_bytes(device);
        if (now > most_used) {
            most_used = now;
        }
    }
    return NULL;
}

/* Blocks, chunks and managed memory compete for the same cap. */
static void *compete(void *argument)
{
    unsigned kind = (unsigned)(uintptr_t)argument;
    CUmemAllocationProp prop = chunk_properties();
    MUST(cuCtxSetCurrent(context));
    for (unsigned round = 0; round < 60; round++) {
        size_t bytes = (size_t)(round * 13 % 7 + 1) * 8 * MIB;
        CUdeviceptr at = 0;
        CUmemGenericAllocationHandle chunk = 0;
        CUresult result = kind % 3 == 0   ? cuMemAlloc(&at, bytes)
                          : kind % 3 == 1 ? cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL)
                                          : cuMemCreate(&chunk, bytes, &prop, 0);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        if (result == CUDA_SUCCESS) {
            usleep(200);
            MUST(kind % 3 == 2 ? cuMemRelease(chunk) : cuMemFree(at));
        }
    }
    return NULL;
}

static void race(void)
{
    pthread_t threads[6];
    pthread_t watcher;
    settle();
    size_t before = free_bytes();
    MUST(pthread_create(&watcher, NULL, watch, NULL));
    for (size_t i = 0; i < 6; i++) {
        MUST(pthread_create(&threads[i], NULL, compete, (void *)(uintptr_t)i));
    }
    for (size_t i = 0; i < 6; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    over = true;
    MUST(pthread_join(watcher, NULL));
    if (most_used > 256 * MIB) {
        (void)fprintf(stderr, "%llu bytes in use\n", (unsigned long long)most_used);
        exit(1);
    }
    settle();
    EXPECT(free_bytes() == before);
}

static const struct scenario scenarios[] = {{"vmm", vmm},
                                            {"vmm_cap", vmm_cap},
                                            {"told_free", told_free},
                                            {"loaded_late", loaded_late},
                                            {"reset", reset},
                                            {"destroyed_context", destroyed_context},
                                            {"many_contexts", many_contexts},
                                            {"contexts_at_once", contexts_at_once},
                                            {"reused_handle", reused_handle},
                                            {"pools", pools},
                                            {"given_back", given_back},
                                            {"pool_destroyed_first", pool_destroyed_first},
                                            {"many_pools", many_pools},
                                            {"pools_at_once", pools_at_once},
                                            {"reuse_flags", reuse_flags},
                                            {"identity", identity},
                                            {"not_mapped", not_mapped},
                                            {"spilled", spilled},
                                            {"arena", arena},
                                            {"peers", peers},
                                            {"gpudirect", gpudirect},
                                            {"no_gpudirect", no_gpudirect},
                                            {"capture", capture},
                                            {"graph_memory", graph_memory},
                                            {"injected", injected},
                                            {"race", race}};

int main(int argc, char **argv)
{
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
