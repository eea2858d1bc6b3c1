/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: addresses, chunks, mappings, faults. */
#include "check.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAllocationProp on_host = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static CUmemGenericAllocationHandle chunk(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &on_device, 0));
    return handle;
}

static CUdeviceptr mapped(size_t bytes)
{
    CUdeviceptr address = reserve(bytes);
    CUmemGenericAllocationHandle handle = chunk(bytes);
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemSetAccess(address, bytes, &read_write, 1));
    OK(cuMemRelease(handle));
    return address;
}

Test(mapping, a_released_chunk_lives_until_it_is_unmapped)
{
    begin();
    CUdeviceptr address = mapped(4 * MIB);
    cr_assert_eq(simgpu_used_bytes(0), 68 * MIB);
    cr_assert_eq(simgpu_live("chunk"), 1);
    fill(NULL, address, 4 * MIB, 1);
    OK(cuCtxSynchronize());
    cr_assert_geq(simgpu_host_bytes(0), 4 * MIB);
    OK(cuMemUnmap(address, 4 * MIB));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    cr_assert_eq(simgpu_live("chunk"), 0);
    cr_assert_lt(simgpu_host_bytes(0), MIB);
    OK(cuMemAddressFree(address, 4 * MIB));
}

Test(mapping, an_unmapped_chunk_lives_until_it_is_released)
{
    begin();
    CUdeviceptr address = reserve(2 * MIB);
    CUmemGenericAllocationHandle handle = chunk(2 * MIB);
    OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * MIB, &read_write, 1));
    fill(NULL, address, 2 * MIB, 42);
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(address, 2 * MIB));
    cr_assert_eq(simgpu_live("chunk"), 1);
    CUdeviceptr elsewhere = reserve(2 * MIB);
    OK(cuMemMap(elsewhere, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(elsewhere, 2 * MIB, &read_write, 1));
    cr_assert_eq(mismatches(NULL, elsewhere, 2 * MIB, 42), 0);
    OK(cuMemUnmap(elsewhere, 2 * MIB));
    OK(cuMemRelease(handle));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(mapping, one_chunk_at_two_addresses_is_the_same_memory)
{
    begin();
    CUdeviceptr first = reserve(2 * MIB), second = reserve(2 * MIB);
    CUmemGenericAllocationHandle handle = chunk(2 * MIB);
    OK(cuMemMap(first, 2 * MIB, 0, handle, 0));
    OK(cuMemMap(second, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(first, 2 * MIB, &read_write, 1));
    OK(cuMemSetAccess(second, 2 * MIB, &read_write, 1));
    fill(NULL, first, MIB, 1);
    fill(NULL, second + MIB, MIB, 2);
    cr_assert_eq(mismatches(NULL, first + MIB, MIB, 2), 0);
    cr_assert_eq(mismatches(NULL, second, MIB, 1), 0);
    cr_assert_eq(simgpu_used_bytes(0), 66 * MIB);
}

Test(mapping, unmapped_memory_faults, .signal = SIGSEGV)
{
    begin();
    CUdeviceptr address = mapped(2 * MIB);
    *(volatile char *)address = 1;
    OK(cuMemUnmap(address, 2 * MIB));
    *(volatile char *)address = 1;
}

Test(mapping, memory_without_access_faults, .signal = SIGSEGV)
{
    begin();
    CUdeviceptr address = reserve(2 * MIB);
    CUmemGenericAllocationHandle handle = chunk(2 * MIB);
    OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
    *(volatile char *)address = 1;
}

Test(mapping, a_kernel_that_runs_after_the_unmap_faults, .signal = SIGSEGV)
{
    begin();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr address = mapped(2 * MIB);
    volatile uint32_t *gate = shut_gate(stream);
    fill(stream, address, 2 * MIB, 1);
    OK(cuMemUnmap(address, 2 * MIB));
    open_gate(gate);
    OK(cuStreamSynchronize(stream));
}

Test(mapping, copies_check_that_memory_is_there)
{
    begin();
    char host[16];
    CUdeviceptr address = mapped(2 * MIB);
    OK(cuMemcpyHtoD(address, host, 16));
    OK(cuMemUnmap(address, 2 * MIB));
    REFUSED(cuMemcpyHtoD(address, host, 16), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemsetD8(address, 0, 16), CUDA_ERROR_INVALID_VALUE);
}

Test(mapping, arguments_are_checked)
{
    begin();
    CUdeviceptr address = reserve(8 * MIB), other;
    CUmemGenericAllocationHandle handle = chunk(4 * MIB), bad;
    REFUSED(cuMemAddressReserve(&other, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemCreate(&bad, MIB, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemMap(address, 6 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemMap(address + 6 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
    REFUSED(cuMemMap(address + 2 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemSetAccess(address, 6 * MIB, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(address, 4 * MIB, &read_write, 1));
    REFUSED(cuMemUnmap(address, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemUnmap(address, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemAddressFree(address, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 4 * MIB));
    REFUSED(cuMemAddressFree(address, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(address, 8 * MIB));
}

/* Seen: an H200, driver 580. */
Test(mapping, only_whole_chunks_are_mapped)
{
    begin();
    CUdeviceptr address = reserve(4 * MIB);
    CUmemGenericAllocationHandle handle = chunk(4 * MIB);
    REFUSED(cuMemMap(address, 2 * MIB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuMemMap(address, 2 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(cuMemMap(address, 4 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
}

/* Likewise. */
Test(mapping, access_over_a_hole_is_given_to_what_is_mapped)
{
    begin();
    CUdeviceptr address = reserve(6 * MIB);
    unsigned long long flags;
    for (int i = 0; i < 2; i++) {
        CUmemGenericAllocationHandle handle = chunk(2 * MIB);
        OK(cuMemMap(address + (CUdeviceptr)i * 4 * MIB, 2 * MIB, 0, handle, 0));
    }
    OK(cuMemSetAccess(address, 6 * MIB, &read_write, 1));
    for (int i = 0; i < 2; i++) {
        CUdeviceptr at = address + (CUdeviceptr)i * 4 * MIB;
        fill(NULL, at, 2 * MIB, 5);
        cr_assert_eq(mismatches(NULL, at, 2 * MIB, 5), 0);
    }
    OK(cuMemMap(address + 2 * MIB, 2 * MIB, 0, chunk(2 * MIB), 0));
    OK(cuMemGetAccess(&flags, &read_write.location, address + 2 * MIB));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    REFUSED(cuMemSetAccess(address, 5 * MIB, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(address, 6 * MIB, &read_write, 1));
}

Test(mapping, addresses_are_aligned_and_hints_are_taken)
{
    begin();
    CUdeviceptr aligned, hinted;
    OK(cuMemAddressReserve(&aligned, 2 * MIB, 1ull << 30, 0, 0));
    cr_assert_eq(aligned % (1ull << 30), 0);
    OK(cuMemAddressReserve(&hinted, 2 * MIB, 0, aligned + 2 * MIB, 0));
    cr_assert_eq(hinted, aligned + 2 * MIB);
}

Test(mapping, retain_gives_the_chunk_that_was_mapped)
{
    begin();
    CUdeviceptr address = reserve(4 * MIB);
    CUmemGenericAllocationHandle handle = chunk(2 * MIB), again;
    CUmemAllocationProp properties;
    OK(cuMemMap(address + 2 * MIB, 2 * MIB, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(address + 3 * MIB)));
    cr_assert_eq(again, handle);
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, again));
    cr_assert_eq(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    REFUSED(cuMemRetainAllocationHandle(&again, (void *)address), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address + 2 * MIB, 2 * MIB));
    OK(cuMemRelease(handle));
    cr_assert_eq(simgpu_live("chunk"), 1);
    OK(cuMemRelease(handle));
    cr_assert_eq(simgpu_live("chunk"), 0);
}

Test(mapping, one_access_call_over_many_mappings)
{
    begin();
    CUdeviceptr address = reserve(16 * MIB), base;
    size_t bytes;
    for (int i = 0; i < 8; i++) {
        CUmemGenericAllocationHandle handle = chunk(2 * MIB);
        OK(cuMemMap(address + (CUdeviceptr)i * 2 * MIB, 2 * MIB, 0, handle, 0));
        OK(cuMemRelease(handle));
    }
    OK(cuMemSetAccess(address, 16 * MIB, &read_write, 1));
    fill(NULL, address + MIB, 14 * MIB, 3);
    cr_assert_eq(mismatches(NULL, address + MIB, 14 * MIB, 3), 0);
    OK(cuMemGetAddressRange(&base, &bytes, address + 3 * MIB));
    cr_assert_eq(base, address + 2 * MIB);
    cr_assert_eq(bytes, 2 * MIB);
    OK(cuMemUnmap(address + 4 * MIB, 8 * MIB));
    cr_assert_eq(mismatches(NULL, address + MIB, 3 * MIB, 3), 0);
    OK(cuMemUnmap(address, 4 * MIB));
    OK(cuMemUnmap(address + 12 * MIB, 4 * MIB));
    cr_assert_eq(simgpu_live("mapping"), 0);
}

Test(mapping, chunks_are_limited_by_the_device)
{
    begin();
    CUmemGenericAllocationHandle big = chunk(960 * MIB), more;
    REFUSED(cuMemCreate(&more, 2 * MIB, &on_device, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemRelease(big));
    OK(cuMemCreate(&more, 2 * MIB, &on_device, 0));
}

Test(mapping, host_chunks_are_usable_and_not_charged)
{
    begin();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = reserve(4 * MIB);
    int supported, fd;
    OK(cuDeviceGetAttribute(&supported, (CUdevice_attribute)141, 0));
    cr_assert_eq(supported, 1);
    OK(cuMemCreate(&handle, 4 * MIB, &on_host, 0));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(address, 4 * MIB, &read_write, 1));
    fill(NULL, address, 4 * MIB, 6);
    cr_assert_eq(mismatches(NULL, address, 4 * MIB, 6), 0);
    cr_assert_neq(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
}

Test(mapping, access_is_per_device)
{
    begin();
    CUcontext second;
    CUstream stream;
    CUdeviceptr address = mapped(2 * MIB), there;
    unsigned long long flags;
    CUmemLocation other = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    OK(cuMemGetAccess(&flags, &read_write.location, address));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemGetAccess(&flags, &other, address));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent(second));
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemAlloc(&there, 4096));
    /* A plain copy is refused, a peer copy works, and so does a plain one with access. */
    REFUSED(cuMemcpyDtoDAsync(there, address, 4096, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxPopCurrent(NULL));
    CUcontext first;
    OK(cuCtxGetCurrent(&first));
    OK(cuMemcpyPeerAsync(there, second, address, first, 4096, stream));
    CUmemAccessDesc peer = {.location = other, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    OK(cuMemSetAccess(address, 2 * MIB, &peer, 1));
    OK(cuMemcpyDtoDAsync(there, address, 4096, stream));
    OK(cuMemGetAccess(&flags, &other, address));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemGetAccess(&flags, &read_write.location, address));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

Test(mapping, exported_chunks_can_be_imported)
{
    begin();
    CUmemGenericAllocationHandle handle = chunk(2 * MIB), imported;
    CUdeviceptr first = reserve(2 * MIB), second = reserve(2 * MIB);
    int fd;
    OK(cuMemMap(first, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(first, 2 * MIB, &read_write, 1));
    fill(NULL, first, 2 * MIB, 77);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemMap(second, 2 * MIB, 0, imported, 0));
    OK(cuMemSetAccess(second, 2 * MIB, &read_write, 1));
    cr_assert_eq(mismatches(NULL, second, 2 * MIB, 77), 0);
    REFUSED(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)0,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
}

Test(mapping, mapped_memory_has_no_ipc_handle)
{
    begin();
    CUipcMemHandle handle;
    unsigned capable;
    CUdeviceptr address = mapped(2 * MIB);
    REFUSED(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    cr_assert_eq(capable, 0);
}

/* A process may have 65,530 mappings, so neighbouring chunks must not take one each. */
Test(mapping, many_chunks_cost_few_mappings)
{
    begin();
    size_t before = 0, after = 0;
    CUdeviceptr address = reserve(960 * MIB);
    FILE *maps = fopen("/proc/self/maps", "re");
    for (int c; (c = getc(maps)) != EOF; before += c == '\n') {
    }
    fclose(maps);
    for (int i = 0; i < 480; i++) {
        CUmemGenericAllocationHandle handle = chunk(2 * MIB);
        OK(cuMemMap(address + (CUdeviceptr)i * 2 * MIB, 2 * MIB, 0, handle, 0));
        OK(cuMemSetAccess(address + (CUdeviceptr)i * 2 * MIB, 2 * MIB, &read_write, 1));
        OK(cuMemRelease(handle));
    }
    maps = fopen("/proc/self/maps", "re");
    for (int c; (c = getc(maps)) != EOF; after += c == '\n') {
    }
    fclose(maps);
    cr_assert_lt(after - before, 10);
}
