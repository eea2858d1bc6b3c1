/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of serve_job about memory pools: what they say, that they go before their blocks or
 * many at once, and what their flags allow. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "serve_job.h"

enum { POOL_STEPS = 4000, POOL_ROUNDS = 300 };

static cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;
    MUST(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

void pools(void)
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
void given_back(void)
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
void pool_destroyed_first(void)
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
void many_pools(void)
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

void pools_at_once(void)
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
void reuse_flags(void)
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
