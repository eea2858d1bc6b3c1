/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, accounting, host and managed memory, attributes of addresses, injected failures. */
#include "check.h"

#include <stdatomic.h>
#include <stdlib.h>

Test(memory, context_is_charged_and_given_back)
{
    OK(cuInit(0));
    cr_assert_eq(simgpu_used_bytes(0), 0);
    CUcontext context = begin();
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    cr_assert_eq(free_bytes(), 960 * MIB);
    OK(cuDevicePrimaryCtxRelease(0));
    cr_assert_eq(simgpu_used_bytes(0), 0);
    REFUSED(cuCtxSetCurrent(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* The sum of address and size goes beyond the last address. */
Test(memory, a_copy_of_more_bytes_than_there_are_addresses)
{
    begin();
    CUdeviceptr block;
    OK(cuMemAlloc(&block, MIB));
    REFUSED(cuMemcpyDtoD(block, block, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemsetD8(block, 0, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, contexts_of_the_application_stack)
{
    CUcontext primary = begin(), own, seen;
    CUevent event;
    OK(create_context(&own));
    cr_assert_eq(simgpu_used_bytes(0), 128 * MIB);
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuCtxGetCurrent(&seen));
    cr_assert_eq(seen, own);
    OK(cuCtxPopCurrent(&seen));
    cr_assert_eq(seen, own);
    OK(cuCtxGetCurrent(&seen));
    cr_assert_eq(seen, primary);
    OK(cuCtxDestroy(own));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    cr_assert_eq(simgpu_live("event"), 0, "events go with their context");
}

Test(memory, a_reset_keeps_the_references)
{
    CUcontext before = begin(), after;
    CUdeviceptr block;
    unsigned flags;
    int active;
    OK(cuMemAlloc(&block, MIB));
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert_eq(active, 0);
    cr_assert_eq(simgpu_used_bytes(0), 0);
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&after, 0));
    cr_assert_eq(before, after);
    OK(cuMemAlloc(&block, MIB));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert_eq(active, 1);
    OK(cuDevicePrimaryCtxRelease(0));
    REFUSED(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

Test(memory, large_blocks_are_charged_in_granules_and_small_ones_share_them)
{
    begin();
    CUdeviceptr large, small[4];
    OK(cuMemAlloc(&large, 3 * MIB));
    cr_assert_eq(simgpu_used_bytes(0), 68 * MIB);
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc(&small[i], 512));
        cr_assert_eq(small[i] % 256, 0);
    }
    cr_assert_eq(simgpu_used_bytes(0), 70 * MIB);
    for (int i = 0; i < 4; i++) {
        OK(cuMemFree(small[i]));
    }
    OK(cuMemFree(large));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(memory, out_of_memory_is_an_error_from_which_one_recovers)
{
    begin();
    CUdeviceptr big, other;
    OK(cuMemAlloc(&big, 900 * MIB));
    REFUSED(cuMemAlloc(&other, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    REFUSED(cuMemAlloc(&other, 1ull << 60), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(free_bytes(), 60 * MIB);
    OK(cuMemFree(big));
    OK(cuMemAlloc(&other, 960 * MIB));
    cr_assert_eq(free_bytes(), 0);
    REFUSED(cuMemAlloc(&big, 1), CUDA_ERROR_OUT_OF_MEMORY);
}

Test(memory, all_of_it_can_be_had_in_any_pattern)
{
    begin();
    CUdeviceptr blocks[480], whole;
    for (int i = 0; i < 480; i++) {
        OK(cuMemAlloc(&blocks[i], 2 * MIB));
    }
    for (int i = 0; i < 480; i += 2) {
        OK(cuMemFree(blocks[i]));
    }
    OK(cuMemAlloc(&whole, 480 * MIB)); /* no hole is larger than 2 MiB */
}

Test(memory, blocks_do_not_overlap_and_keep_their_contents)
{
    enum { COUNT = 300 };
    begin();
    CUdeviceptr blocks[COUNT] = {0};
    size_t sizes[COUNT] = {0};
    srand(7);
    for (int step = 0; step < 4000; step++) {
        int at = rand() % COUNT;
        if (blocks[at]) {
            cr_assert_eq(mismatches(NULL, blocks[at], sizes[at], (uint32_t)at), 0);
            OK(cuMemFree(blocks[at]));
            blocks[at] = 0;
        } else {
            sizes[at] = 1 + (size_t)rand() % (rand() % 8 ? 5000 : 3 * MIB);
            OK(cuMemAlloc(&blocks[at], sizes[at]));
            fill(NULL, blocks[at], sizes[at], (uint32_t)at);
        }
    }
}

Test(memory, a_freed_block_costs_the_host_nothing)
{
    begin();
    CUdeviceptr block;
    OK(cuMemAlloc(&block, 64 * MIB));
    fill(NULL, block, 64 * MIB, 1);
    OK(cuCtxSynchronize());
    cr_assert_geq(simgpu_host_bytes(0), 64 * MIB);
    OK(cuMemFree(block));
    cr_assert_lt(simgpu_host_bytes(0), MIB);
}

Test(memory, bad_frees_are_refused)
{
    begin();
    CUdeviceptr block;
    int local;
    OK(cuMemAlloc(&block, 4096));
    REFUSED(cuMemFree(block + 512), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemFree((CUdeviceptr)&local), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(block));
    REFUSED(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(0));
}

Test(memory, a_free_waits_for_the_device)
{
    begin();
    CUstream stream;
    CUdeviceptr block, other;
    OK(cuMemAlloc(&block, 4 * MIB));
    OK(cuMemAlloc(&other, 4 * MIB));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    simgpu_set_delay(20000, 20000);
    fill(stream, block, 4 * MIB, 1);
    OK(cuMemFree(other));
    OK(cuStreamQuery(stream));
}

Test(memory, address_ranges_are_those_asked_for)
{
    begin();
    CUdeviceptr block, base;
    size_t bytes;
    OK(cuMemAlloc(&block, 5000));
    OK(cuMemGetAddressRange(&base, &bytes, block + 4999));
    cr_assert_eq(base, block);
    cr_assert_eq(bytes, 5000);
    REFUSED(cuMemGetAddressRange(&base, &bytes, block + 5000), CUDA_ERROR_NOT_FOUND);
    OK(cuMemGetAddressRange(NULL, NULL, block));
}

Test(memory, pitch_and_rows)
{
    begin();
    CUdeviceptr image;
    size_t pitch;
    OK(cuMemAllocPitch(&image, &pitch, 100, 10, 4));
    cr_assert_geq(pitch, 100);
    OK(cuMemsetD2D8(image, pitch, 5, 100, 10));
    char rows[10][100] = {{0}};
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = image,
                          .srcPitch = pitch,
                          .srcXInBytes = 90,
                          .srcY = 8,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = rows,
                          .dstPitch = 100,
                          .WidthInBytes = 10,
                          .Height = 2};
    OK(cuMemcpy2D(&copy));
    cr_assert_eq(rows[0][9], 5);
    cr_assert_eq(rows[1][9], 5);
    cr_assert_eq(rows[0][10], 0);
    cr_assert_eq(rows[2][0], 0);
}

Test(memory, sets_have_their_width)
{
    begin();
    CUdeviceptr block;
    uint32_t words[4];
    OK(cuMemAlloc(&block, 16));
    OK(cuMemsetD32(block, 0x01020304, 4));
    OK(cuMemsetD16(block + 4, 0xAABB, 2));
    OK(cuMemsetD8(block + 8, 0x7F, 4));
    OK(cuMemcpyDtoH(words, block, 16));
    cr_assert_eq(words[0], 0x01020304);
    cr_assert_eq(words[1], 0xAABBAABB);
    cr_assert_eq(words[2], 0x7F7F7F7F);
    cr_assert_eq(words[3], 0x01020304);
    REFUSED(cuMemsetD32(block + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemsetD8(block, 0, 17), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, copies_stay_inside_blocks)
{
    begin();
    CUdeviceptr block;
    char host[64];
    OK(cuMemAlloc(&block, 64));
    REFUSED(cuMemcpyHtoD(block + 32, host, 33), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(block));
    REFUSED(cuMemcpyHtoD(block, host, 1), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, host_memory_is_known_and_not_charged)
{
    begin();
    void *pinned, *registered = malloc(10000);
    CUdeviceptr seen;
    unsigned type, flags;
    OK(cuMemHostAlloc(&pinned, 4 * MIB, CU_MEMHOSTALLOC_PORTABLE));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    OK(cuMemHostGetDevicePointer(&seen, pinned, 0));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pinned));
    cr_assert_eq(type, CU_MEMORYTYPE_HOST);
    OK(cuMemHostGetFlags(&flags, pinned));
    cr_assert(flags & CU_MEMHOSTALLOC_PORTABLE);
    OK(cuMemHostRegister(registered, 10000, 0));
    REFUSED(cuMemHostRegister((char *)registered + 5000, 10, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostUnregister(registered));
    REFUSED(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemFreeHost(pinned));
    REFUSED(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
    free(registered);
}

Test(memory, managed_memory_is_charged_where_it_was_prefetched)
{
    begin();
    CUdeviceptr managed;
    unsigned is_managed;
    OK(cuMemAllocManaged(&managed, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    memset((void *)managed, 3, 8 * MIB);
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    OK(prefetch(managed, 8 * MIB, 0));
    cr_assert_eq(simgpu_used_bytes(0), 72 * MIB);
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    cr_assert_eq(is_managed, 1);
    cr_assert_eq(mismatches(NULL, managed, 8 * MIB, 3), 0);
    OK(cuMemFree(managed));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(memory, pointer_attributes)
{
    CUcontext context = begin(), seen;
    CUdeviceptr block, start;
    int device, host;
    unsigned type, ipc;
    size_t bytes;
    OK(cuMemAlloc(&block, 1000));
    OK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, block + 10));
    cr_assert_eq(seen, context);
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *values[] = {&device, &type, &start, &bytes, &ipc};
    OK(cuPointerGetAttributes(5, names, values, block + 10));
    cr_assert_eq(device, 0);
    cr_assert_eq(type, CU_MEMORYTYPE_DEVICE);
    cr_assert_eq(start, block);
    cr_assert_eq(bytes, 1000);
    cr_assert_eq(ipc, 1);
    /* For an address that CUDA does not know, one call fails and the other returns nothing. */
    REFUSED(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&host),
            CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerGetAttributes(5, names, values, (CUdeviceptr)&host));
    cr_assert_eq(type, 0);
    cr_assert_eq(device, CU_DEVICE_INVALID);
}

Test(memory, peers)
{
    CUcontext first = begin(), second;
    CUdeviceptr here, there;
    int can;
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    cr_assert_eq(can, 1);
    OK(cuDeviceCanAccessPeer(&can, 0, 0));
    cr_assert_eq(can, 0);
    OK(cuCtxEnablePeerAccess(second, 0));
    REFUSED(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuCtxDisablePeerAccess(second));
    REFUSED(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    /* Without access the driver stages memory of cuMemAlloc. */
    OK(cuMemAlloc(&here, 4096));
    OK(cuCtxPushCurrent(second));
    OK(cuMemAlloc(&there, 4096));
    cr_assert_eq(simgpu_used_bytes(1), 66 * MIB);
    OK(cuCtxPopCurrent(NULL));
    fill(NULL, here, 4096, 9);
    OK(cuMemcpyDtoD(there, here, 4096));
    cr_assert_eq(mismatches(NULL, there, 4096, 9), 0);
    OK(cuMemsetD8(here, 0, 4096));
    OK(cuMemcpyPeer(here, first, there, second, 4096));
    cr_assert_eq(mismatches(NULL, here, 4096, 9), 0);
}

Test(memory, arrays_are_charged)
{
    begin();
    CUarray array;
    CUmipmappedArray mipmap;
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    OK(cuArray3DCreate(&array, &shape));
    cr_assert_eq(simgpu_used_bytes(0), 68 * MIB);
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 4));
    cr_assert_gt(simgpu_used_bytes(0), 72 * MIB);
    uint32_t row[1024], back[1024] = {0};
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = row,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .dstY = 5,
                          .WidthInBytes = sizeof row,
                          .Height = 1};
    for (int i = 0; i < 1024; i++) {
        row[i] = (uint32_t)i;
    }
    OK(cuMemcpy2D(&copy));
    OK(cuMemcpyAtoH(back, array, 5 * sizeof row, sizeof row));
    cr_assert_eq(memcmp(row, back, sizeof row), 0);
    OK(cuArrayDestroy(array));
    OK(cuMipmappedArrayDestroy(mipmap));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

Test(memory, injected_failures_happen_once_and_change_nothing)
{
    begin();
    CUdeviceptr block;
    uint64_t calls = simgpu_calls("cuMemAlloc");
    cr_assert_eq(simgpu_fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY), 0);
    OK(cuMemAlloc(&block, MIB));
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&block, MIB));
    cr_assert_eq(simgpu_calls("cuMemAlloc_v2"), calls + 3);
    cr_assert_eq(simgpu_live("block"), 2);
    cr_assert_eq(simgpu_fail("cuMemGetInfo", 0, CUDA_ERROR_UNKNOWN), 0);
    size_t free, total;
    REFUSED(cuMemGetInfo(&free, &total), CUDA_ERROR_UNKNOWN);
    REFUSED(cuMemGetInfo(&free, &total), CUDA_ERROR_UNKNOWN);
    simgpu_fail_clear();
    OK(cuMemGetInfo(&free, &total));
    cr_assert_neq(simgpu_fail("cuNoSuchCall", 1, 1), 0);
    cr_assert_eq(simgpu_calls("cuNoSuchCall"), UINT64_MAX);
}

Test(memory, injected_failures_come_in_runs_and_in_pairs)
{
    begin();
    CUdeviceptr block;
    size_t free, total;
    cr_assert_eq(simgpu_fail_calls("cuMemAlloc", 2, 2, CUDA_ERROR_UNKNOWN), 0);
    cr_assert_eq(simgpu_fail_then("any", 3, 2, CUDA_ERROR_TIMEOUT), 0);
    cr_assert_eq(simgpu_fail_then("cuMemGetInfo", 1, 1, CUDA_ERROR_NOT_READY), 0);
    OK(cuMemAlloc(&block, MIB));
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_UNKNOWN); /* the second rule counts from here */
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_UNKNOWN);
    OK(cuMemAlloc(&block, MIB));
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_TIMEOUT); /* the third rule counts from here */
    REFUSED(cuMemGetInfo(&free, &total), CUDA_ERROR_TIMEOUT);
    OK(cuMemGetInfo(&free, &total));
    simgpu_fail_clear();
    cr_assert_neq(simgpu_fail_then("any", 1, 1, 1), 0, "there is no rule before it");
    cr_assert_eq(simgpu_fail("cuMemAlloc", 1, CUDA_ERROR_UNKNOWN), 0);
    cr_assert_eq(simgpu_fail_then("cuMemGetInfo", 2, 1, CUDA_ERROR_TIMEOUT), 0);
    OK(cuMemGetInfo(&free, &total));
    OK(cuMemGetInfo(&free, &total));
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_UNKNOWN);
    OK(cuMemGetInfo(&free, &total));
    REFUSED(cuMemGetInfo(&free, &total), CUDA_ERROR_TIMEOUT);
    OK(cuMemGetInfo(&free, &total));
}

Test(memory, what_the_linker_makes_is_an_image)
{
    CUlinkState link;
    CUmodule module;
    CUfunction kernel;
    void *image = NULL;
    size_t bytes = 0;
    char ptx[] = ".version 8.0";
    begin();
    OK(cuLinkCreate(0, NULL, NULL, &link));
    OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, ptx, sizeof ptx, "ptx", 0, NULL, NULL));
    REFUSED(cuLinkAddData(link, CU_JIT_INPUT_PTX, NULL, 0, "ptx", 0, NULL, NULL),
            CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuLinkAddFile(link, CU_JIT_INPUT_CUBIN, "/nowhere", 0, NULL, NULL),
            CUDA_ERROR_FILE_NOT_FOUND);
    OK(cuLinkComplete(link, &image, &bytes));
    cr_assert_gt(bytes, 0);
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel, module, "any"));
    OK(cuLinkDestroy(link));
}

Test(memory, modules_declare_kernels_and_globals)
{
    begin();
    CUmodule module, other;
    CUfunction function;
    CUdeviceptr table;
    size_t offset, bytes;
    OK(cuModuleLoadData(&module, "simgpu-module\nkernel two 0:8 8:4\nglobal table 4096\n"));
    OK(cuModuleGetFunction(&function, module, "two"));
    OK(cuFuncGetParamInfo(function, 1, &offset, &bytes));
    cr_assert_eq(offset, 8);
    cr_assert_eq(bytes, 4);
    REFUSED(cuFuncGetParamInfo(function, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuModuleGetFunction(&function, module, "three"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleGetGlobal(&table, &bytes, module, "table"));
    cr_assert_eq(bytes, 4096);
    REFUSED(cuMemFree(table), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuModuleLoadData(&other, "simgpu-module\nnonsense\n"), CUDA_ERROR_INVALID_IMAGE);
    OK(cuModuleLoadData(&other, "\177ELF anything"));
    OK(cuModuleGetFunction(&function, other, "any_name"));
    OK(cuModuleUnload(module));
}

Test(memory, libraries_have_kernels_in_every_context)
{
    begin();
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUdeviceptr at;
    OK(cuLibraryLoadData(&library, "simgpu-module\nkernel one 0:8\n", NULL, NULL, 0, NULL, NULL,
                         0));
    OK(cuLibraryGetKernel(&kernel, library, "simgpu_fill"));
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuMemAlloc(&at, 64));
    uint64_t bytes = 64;
    uint32_t byte = 8;
    void *parameters[] = {&at, &bytes, &byte};
    OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    cr_assert_eq(mismatches(NULL, at, 64, 8), 0);
    REFUSED(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, parameters, NULL),
            CUDA_ERROR_INVALID_VALUE);
    OK(cuLibraryUnload(library));
}

static struct {
    uint64_t at, bytes;
    unsigned char before; /* the content when the store was announced */
} writes[16];
static atomic_int write_count;

static void note_write(uint64_t at, uint64_t bytes)
{
    int index = atomic_fetch_add(&write_count, 1);
    cr_assert_lt(index, 16);
    writes[index].at = at;
    writes[index].bytes = bytes;
    writes[index].before = *(unsigned char *)at;
}

Test(memory, every_store_is_announced_before_it_is_made)
{
    begin();
    CUdeviceptr at;
    CUstream stream;
    unsigned char host[4096];
    memset(host, 9, sizeof host);
    OK(cuMemAlloc(&at, MIB));
    OK(cuMemsetD8(at, 1, MIB));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    simgpu_watch_writes(note_write);
    OK(cuMemsetD8Async(at, 2, 100, stream));
    OK(cuMemsetD32Async(at + 512, 3, 5, stream));
    OK(cuMemcpyHtoDAsync(at, host, 60, stream));
    OK(cuMemcpyDtoHAsync(host, at, 7, stream));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 64,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = at,
                          .dstPitch = 1024,
                          .WidthInBytes = 16,
                          .Height = 2};
    OK(cuMemcpy2DAsync(&rows, stream));
    OK(cuStreamWriteValue32(stream, at + 4, 77, 0));
    fill(stream, at + 4096, 33, 5);
    OK(cuStreamSynchronize(stream));
    simgpu_watch_writes(NULL);
    OK(cuMemsetD8(at, 0, MIB));
    const struct {
        uint64_t offset, bytes;
        unsigned char before;
    } expected[] = {{0, 100, 1}, {512, 20, 1},  {0, 60, 2}, {0, 7, 9},
                    {0, 16, 9},  {1024, 16, 1}, {4, 4, 9},  {4096, 33, 1}};
    cr_assert_eq(atomic_load(&write_count), 8);
    for (size_t i = 0; i < 8; i++) {
        cr_assert_eq(writes[i].at, i == 3 ? (uint64_t)host : at + expected[i].offset, "%zu", i);
        cr_assert_eq(writes[i].bytes, expected[i].bytes, "%zu", i);
        cr_assert_eq(writes[i].before, expected[i].before, "%zu", i);
    }
}
