/* SPDX-License-Identifier: Apache-2.0 */
/* Memory allocated and freed in stream order, and its pools. */
#include "check.h"

static CUstream new_stream(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name)
{
    cuuint64_t value;
    OK(cuMemPoolGetAttribute(pool, name, &value));
    return value;
}

static CUdeviceptr alloc(size_t bytes, CUstream stream)
{
    CUdeviceptr block;
    OK(cuMemAllocAsync(&block, bytes, stream));
    return block;
}

static void hold(CUmemoryPool pool, cuuint64_t bytes)
{
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

Test(pool, a_stream_reuses_its_own_frees_at_once)
{
    begin();
    CUstream stream = new_stream();
    volatile uint32_t *gate = shut_gate(stream);
    CUdeviceptr first = alloc(4 * MIB, stream);
    fill(stream, first, 4 * MIB, 1);
    OK(cuMemFreeAsync(first, stream));
    CUdeviceptr second = alloc(4 * MIB, stream);
    cr_assert_eq(first, second);
    fill(stream, second, 4 * MIB, 2);
    open_gate(gate);
    cr_assert_eq(mismatches(stream, second, 4 * MIB, 2), 0);
}

Test(pool, another_stream_does_not_get_memory_still_in_use)
{
    begin();
    CUstream owner = new_stream(), other = new_stream();
    volatile uint32_t *gate = shut_gate(owner);
    CUdeviceptr first = alloc(4 * MIB, owner);
    fill(owner, first, 4 * MIB, 1);
    OK(cuMemFreeAsync(first, owner));
    CUdeviceptr second = alloc(4 * MIB, other);
    cr_assert(second >= first + 4 * MIB || second + 4 * MIB <= first);
    fill(other, second, 4 * MIB, 2);
    OK(cuStreamSynchronize(other));
    open_gate(gate);
    OK(cuStreamSynchronize(owner));
    cr_assert_eq(mismatches(other, second, 4 * MIB, 2), 0);
}

/* When nothing else is left, the allocating stream waits for the other one. */
Test(pool, memory_short_makes_streams_wait_instead_of_failing)
{
    begin();
    CUstream owner = new_stream(), other = new_stream();
    volatile uint32_t *gate = shut_gate(owner);
    CUdeviceptr first = alloc(900 * MIB, owner);
    fill(owner, first, MIB, 1);
    OK(cuMemFreeAsync(first, owner));
    CUdeviceptr second = alloc(900 * MIB, other);
    fill(other, second, MIB, 2);
    REFUSED(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuStreamSynchronize(owner));
    cr_assert_eq(mismatches(other, second, MIB, 2), 0);
}

Test(pool, used_and_reserved_are_counted)
{
    begin();
    CUstream stream = new_stream();
    CUmemoryPool pool = default_pool();
    CUdeviceptr block = alloc(10 * MIB, stream);
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 10 * MIB);
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    cr_assert_eq(simgpu_used_bytes(0), 96 * MIB);
    hold(pool, UINT64_MAX);
    OK(cuMemFreeAsync(block, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 10 * MIB);
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    cuuint64_t zero = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    OK(cuMemPoolTrimTo(pool, 0));
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    cr_assert_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 32 * MIB);
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(pool, what_is_above_the_threshold_goes_at_a_synchronization)
{
    begin();
    CUstream stream = new_stream();
    CUmemoryPool pool = default_pool();
    CUdeviceptr blocks[4];
    hold(pool, 64 * MIB);
    for (int i = 0; i < 4; i++) {
        blocks[i] = alloc(32 * MIB, stream);
    }
    for (int i = 0; i < 4; i++) {
        OK(cuMemFreeAsync(blocks[i], stream));
    }
    cr_assert_eq(simgpu_used_bytes(0), 192 * MIB);
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(simgpu_used_bytes(0), 128 * MIB);
    hold(pool, 0);
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(pool, other_allocations_get_what_pools_hold_unused)
{
    begin();
    CUstream stream = new_stream();
    hold(default_pool(), UINT64_MAX);
    OK(cuMemFreeAsync(alloc(900 * MIB, stream), stream));
    OK(cuStreamSynchronize(stream));
    CUdeviceptr block;
    OK(cuMemAlloc(&block, 900 * MIB));
}

Test(pool, out_of_memory)
{
    begin();
    CUstream stream = new_stream();
    CUdeviceptr block = alloc(800 * MIB, stream), other;
    REFUSED(cuMemAllocAsync(&other, 200 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(block, stream));
    OK(cuMemAllocAsync(&other, 900 * MIB, stream));
}

Test(pool, pools_of_the_application)
{
    begin();
    CUstream stream = new_stream();
    CUmemoryPool pool, current;
    CUdeviceptr block, from_current;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                 .maxSize = 64 * MIB};
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&block, 40 * MIB, pool, stream));
    REFUSED(cuMemAllocFromPoolAsync(&from_current, 40 * MIB, pool, stream),
            CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    cr_assert_eq(current, pool);
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuMemAllocAsync(&from_current, MIB, stream));
    OK(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, from_current));
    cr_assert_eq(current, pool);
    /* Destroyed with memory in use: the memory remains, and the default pool is current again. */
    OK(cuMemPoolDestroy(pool));
    OK(cuDeviceGetMemPool(&current, 0));
    cr_assert_eq(current, default_pool());
    fill(stream, block, 40 * MIB, 3);
    cr_assert_eq(mismatches(stream, block, 40 * MIB, 3), 0);
    OK(cuMemFreeAsync(block, stream));
    OK(cuMemFreeAsync(from_current, stream));
    OK(cuStreamSynchronize(stream));
    REFUSED(cuMemPoolDestroy(default_pool()), CUDA_ERROR_INVALID_VALUE);
}

Test(pool, a_destroyed_pool_gives_its_memory_back)
{
    begin();
    CUstream stream = new_stream();
    CUmemoryPool pool;
    CUdeviceptr block;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    uint64_t pools = simgpu_live("pool");
    OK(cuMemPoolCreate(&pool, &properties));
    hold(pool, UINT64_MAX);
    OK(cuMemAllocFromPoolAsync(&block, 40 * MIB, pool, stream));
    OK(cuMemPoolDestroy(pool));
    OK(cuMemFreeAsync(block, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSynchronize());
    cr_assert_eq(simgpu_live("pool"), pools);
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(pool, only_pools_made_for_it_are_shared)
{
    begin();
    CUmemoryPool pool;
    CUmemPoolPtrExportData data;
    int fd;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_FABRIC,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    REFUSED(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuMemPoolExportToShareableHandle(&fd, default_pool(),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemPoolExportPointer(&data, alloc(MIB, NULL)), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemPoolImportFromShareableHandle(&pool, (void *)-1,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_UNKNOWN);
}

Test(pool, access)
{
    begin();
    CUmemoryPool pool = default_pool();
    CUmemLocation other = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUmemAccessDesc grant = {.location = other, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags;
    OK(cuMemPoolGetAccess(&flags, pool, &other));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemPoolSetAccess(pool, &grant, 1));
    OK(cuMemPoolGetAccess(&flags, pool, &other));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

Test(pool, frees_are_checked)
{
    begin();
    CUstream stream = new_stream();
    CUdeviceptr block = alloc(MIB, stream);
    REFUSED(cuMemFreeAsync(block + 512, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(block, stream));
    REFUSED(cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(alloc(MIB, stream)));
    CUdeviceptr plain;
    OK(cuMemAlloc(&plain, MIB));
    OK(cuMemFreeAsync(plain, stream));
    REFUSED(cuMemFree(plain), CUDA_ERROR_INVALID_VALUE);
}
