/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's expandable segments on memshim, seen from all sides: each scenario is a program of its
 * own, chosen by the first argument. They expect memshim in front of them, a cap of 8 GiB, so that
 * a few pages are made whole, and a context of 64 MiB. */
#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"
#include "scenario.h"
#include "simgpu.h"
#include "torch_double.h"

#define PAGE  (20 * MIB)
#define PAGES 6u
#define SMALL (2 * MIB)

/* What the first segment leaves of the cap. Four pages of it and this are a little more than
 * TAKING.
 */
#define LEFT   (840 * MIB)
#define TAKING (910 * MIB)

static CUdevice device;
static CUcontext context;

static size_t free_bytes(void)
{
    size_t free = 0;
    size_t total = 0;
    MUST(cuMemGetInfo(&free, &total));
    return free;
}

/* --- a segment, as PyTorch makes one ----------------------------------------------------------
 */

struct segment {
    CUdeviceptr at;
    size_t bytes;
    CUmemGenericAllocationHandle pages[PAGES];
};

static CUmemAllocationProp properties(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

/* The program's own memory, which nobody can take: memory is short once the first segment is made.
 */
static CUmemGenericAllocationHandle ballast;

static void take_ballast(void)
{
    CUmemAllocationProp prop = properties();
    size_t free = 0;
    size_t total = 0;
    MUST(cuMemGetInfo(&free, &total));
    size_t kept = simgpu_used_bytes(device) + LEFT;
    if (ballast == 0 && total > kept) {
        MUST(cuMemCreate(&ballast, total - kept, &prop, 0));
    }
}

static void drop_ballast(void)
{
    if (ballast != 0) {
        MUST(cuMemRelease(ballast));
        ballast = 0;
    }
}

static CUdeviceptr page_at(const struct segment *segment, unsigned i)
{
    return segment->at + i * PAGE;
}

static struct segment open_segment(void)
{
    struct segment segment = {.bytes = 64 * PAGE};
    CUmemAllocationProp prop = properties();
    MUST(cuMemAddressReserve(&segment.at, segment.bytes, 0, 0, 0));
    for (unsigned i = 0; i < PAGES; i++) {
        MUST(torch_create(&segment.pages[i], PAGE, &prop));
        MUST(torch_map(page_at(&segment, i), PAGE, 0, segment.pages[i]));
    }
    MUST(torch_access(segment.at, PAGES * PAGE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    take_ballast();
    return segment;
}

static void close_segment(const struct segment *segment)
{
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < PAGES; i++) {
        MUST(torch_unmap(page_at(segment, i), PAGE));
        MUST(torch_release(segment->pages[i]));
    }
    MUST(cuMemAddressFree(segment->at, segment->bytes));
    drop_ballast();
}

/* Whole pages that were used and are quiet now. */
static void use_pages(const struct segment *segment)
{
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(segment, i), PAGE);
        MUST(cuMemsetD8(page_at(segment, i), 0xee, PAGE));
        torch_died(device, page_at(segment, i), PAGE);
    }
    MUST(cuCtxSynchronize());
}

/* As much as fits only where four of the pages are taken. */
static CUdeviceptr take_pages(void)
{
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, TAKING));
    MUST(cuMemsetD8(block, 0x77, PAGE));
    MUST(cuCtxSynchronize());
    return block;
}

/* Four pages in parts, each with a small tensor at its beginning and nothing behind the rest; the
 * other two whole, with the same. */
static void open_holes(const struct segment *segment)
{
    use_pages(segment);
    CUdeviceptr block = take_pages();
    MUST(cuMemFree(block));
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(segment, i), SMALL);
        MUST(cuMemsetD8(page_at(segment, i), (unsigned char)(i + 1), SMALL));
    }
    MUST(cuCtxSynchronize());
}

/* What the device writes is nothing that the thread sanitizer could judge. */
__attribute__((no_sanitize("thread"))) static bool is_all(const unsigned char *bytes, size_t count,
                                                          unsigned char value)
{
    size_t i = 0;
    while (i < count && bytes[i] == value) {
        i++;
    }
    return i == count;
}

static bool holds(CUdeviceptr at, size_t bytes, unsigned char value)
{
    static unsigned char seen[20 << 20];
    EXPECT(bytes <= sizeof seen);
    MUST(cuMemcpyDtoH(seen, at, bytes));
    return is_all(seen, bytes, value);
}

static void check_small(const struct segment *segment)
{
    for (unsigned i = 0; i < PAGES; i++) {
        EXPECT(holds(page_at(segment, i), SMALL, (unsigned char)(i + 1)));
    }
}

static void check_nothing_left(size_t before)
{
    CUmemoryPool pool;
    MUST(cuCtxSynchronize());
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolTrimTo(pool, 0));
    EXPECT(free_bytes() == before);
    EXPECT(simgpu_used_bytes(device) == 64 * MIB);
}

/* --- one consistent story ---------------------------------------------------------------------
 */

static void check_story(const struct segment *segment, unsigned i)
{
    CUdeviceptr inside = page_at(segment, i) + PAGE - SMALL;
    CUdeviceptr base = 0;
    CUdeviceptr start = 0;
    CUdeviceptr mapping = 0;
    size_t bytes = 0;
    size_t range = 0;
    size_t mapping_bytes = 0;
    unsigned legacy = 7;
    unsigned synchronous = 7;
    CUcontext owner = context;
    unsigned type = 7;
    cuuint64_t handle_types = 7;
    CUmemoryPool pool = (CUmemoryPool)&base;
    CUmemAllocationProp prop;
    CUmemAllocationProp asked = properties();
    unsigned long long flags = 7;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    MUST(cuMemGetAddressRange(&base, &bytes, inside));
    EXPECT(base == page_at(segment, i) && bytes == PAGE);
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
                                   CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
                                   CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                   CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *values[] = {&start,       &range,  &mapping,      &mapping_bytes, &owner,
                      &synchronous, &legacy, &handle_types, &pool,          &type};
    MUST(cuPointerGetAttributes(10, names, values, inside));
    EXPECT(start == segment->at && range == segment->bytes);
    EXPECT(mapping == base && mapping_bytes == PAGE && !owner && synchronous == 0);
    EXPECT(legacy == 0 && !pool && type == CU_MEMORYTYPE_DEVICE);
    EXPECT(handle_types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    MUST(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
    EXPECT(range == PAGE);
    MUST(cuMemGetAllocationPropertiesFromHandle(&prop, segment->pages[i]));
    EXPECT(memcmp(&prop, &asked, sizeof prop) == 0);
    MUST(cuMemGetAccess(&flags, &here, inside));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUipcMemHandle ipc;
    EXPECT(cuIpcGetMemHandle(&ipc, inside) == CUDA_ERROR_INVALID_VALUE);
}

static void story(void)
{
    struct segment segment = open_segment();
    CUmemGenericAllocationHandle handle = 0;
    int descriptor = -1;
    for (unsigned i = 0; i < PAGES; i++) {
        check_story(&segment, i);
    }
    MUST(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(segment.at + PAGE + 4096)));
    EXPECT(handle == segment.pages[1]);
    MUST(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    EXPECT(descriptor >= 0 && close(descriptor) == 0);
    EXPECT(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
           CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemRelease(handle));
    close_segment(&segment);
}

/* What a descriptor names is the memory that stands there now. */
static void check_shared(int descriptor, unsigned char value)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    MUST(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    MUST(cuMemMap(at, PAGE, 0, handle, 0));
    MUST(cuMemRelease(handle));
    MUST(cuMemSetAccess(at, PAGE, &access, 1));
    EXPECT(holds(at, SMALL, value));
    MUST(cuMemUnmap(at, PAGE));
    MUST(cuMemAddressFree(at, PAGE));
}

/* The same story while pages are in parts. One that is exported becomes whole where there is room
 * for it; where there is none the export is refused, and it stays as it is. */
static void split(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    CUmemGenericAllocationHandle handle = 0;
    int descriptor = -1;
    open_holes(&segment);
    EXPECT(free_bytes() >= TAKING);
    CUdeviceptr block = take_pages();
    check_small(&segment);
    for (unsigned i = 0; i < PAGES; i++) {
        check_story(&segment, i);
    }
    unsigned refused = 0;
    for (unsigned i = 0; i < PAGES; i++) {
        MUST(torch_retain(&handle, page_at(&segment, i)));
        EXPECT(handle == segment.pages[i]);
        MUST(torch_release(handle));
        CUresult result = cuMemExportToShareableHandle(&descriptor, handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT(result != CUDA_SUCCESS || close(descriptor) == 0);
        refused += result == CUDA_ERROR_OUT_OF_MEMORY;
    }
    EXPECT(refused == 4);
    EXPECT(holds(block, PAGE, 0x77));
    check_small(&segment);
    MUST(cuMemFree(block));
    for (unsigned i = 0; i < PAGES; i++) {
        MUST(cuMemExportToShareableHandle(&descriptor, segment.pages[i],
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        check_shared(descriptor, (unsigned char)(i + 1));
        EXPECT(close(descriptor) == 0);
    }
    check_small(&segment);
    close_segment(&segment);
    check_nothing_left(before);
}

/* A tensor in a hole that was taken: backed again, and writable, before the report returns. */
static void reborn(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    open_holes(&segment);
    CUdeviceptr block = take_pages();
    MUST(cuMemFree(block));
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(&segment, i) + SMALL, PAGE - SMALL);
        MUST(cuMemsetD8(page_at(&segment, i) + SMALL, 0x55, PAGE - SMALL));
    }
    for (unsigned i = 0; i < PAGES; i++) {
        EXPECT(holds(page_at(&segment, i) + SMALL, PAGE - SMALL, 0x55));
    }
    check_small(&segment);
    close_segment(&segment);
    check_nothing_left(before);
}

/* The same while the block keeps what was taken: host memory stands in. */
static void slow(void)
{
    struct segment segment = open_segment();
    open_holes(&segment);
    CUdeviceptr block = take_pages();
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(&segment, i) + SMALL, PAGE - SMALL);
        MUST(cuMemsetD8(page_at(&segment, i) + SMALL, 0x55, PAGE - SMALL));
    }
    for (unsigned i = 0; i < PAGES; i++) {
        EXPECT(holds(page_at(&segment, i) + SMALL, PAGE - SMALL, 0x55));
    }
    check_small(&segment);
    EXPECT(holds(block, PAGE, 0x77));
    EXPECT(simgpu_used_bytes(device) <= 8 * GIB);
    MUST(cuMemFree(block));
    close_segment(&segment);
}

/* What a stranger was shown stays whole; what PyTorch itself looked at does not. */
static void pinned(void)
{
    struct segment segment = open_segment();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr block = 0;
    int on = 1;
    int descriptor = -1;
    use_pages(&segment);
    MUST(torch_retain(&handle, page_at(&segment, 0)));
    MUST(torch_release(handle));
    MUST(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)page_at(&segment, 1)));
    MUST(cuMemExportToShareableHandle(&descriptor, segment.pages[2],
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    /* Refused for mapped memory, as by the driver; who asks may register the page all the same. */
    EXPECT(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, page_at(&segment, 3)) ==
           CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuMemAlloc(&block, TAKING) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemAlloc(&block, 890 * MIB)); /* 840 MiB are free, and three pages can be taken */
    for (unsigned i = 1; i <= 3; i++) {
        MUST(cuMemExportToShareableHandle(&descriptor, segment.pages[i],
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        EXPECT(holds(page_at(&segment, i), PAGE, 0xee));
    }
    MUST(cuMemFree(block));
    MUST(cuMemRelease(handle));
    close_segment(&segment);
}

/* What is called free can be had: not the rest of a page that a stranger was shown, nor of one with
 * something alive in it, nor of those that a graph replays into. */
static void promised(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    struct segment captured = open_segment();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr block = 0;
    CUdeviceptr more = 0;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    use_pages(&captured);
    use_pages(&segment);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    torch_born(device, page_at(&captured, 0), SMALL);
    MUST(cuStreamEndCapture(stream, &graph));
    torch_died(device, page_at(&captured, 0), SMALL);
    torch_born(device, page_at(&segment, 0), SMALL);
    MUST(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)page_at(&segment, 1)));
    size_t free = free_bytes();
    MUST(cuMemAlloc(&block, free / MIB * MIB));
    EXPECT(cuMemAlloc(&more, 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(free_bytes() == 0);
    MUST(cuMemFree(block));
    MUST(cuMemRelease(handle));
    torch_died(device, page_at(&segment, 0), SMALL);
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy(stream));
    close_segment(&captured);
    close_segment(&segment);
    check_nothing_left(before);
}

/* --- order and errors -------------------------------------------------------------------------
 */

static void orders(void)
{
    size_t before = free_bytes();
    CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle page;
    CUmemGenericAllocationHandle again;
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, 8 * PAGE, 0, 0, 0));
    /* Released while mapped: it lives until it is unmapped, and can be retained meanwhile. */
    MUST(torch_create(&page, PAGE, &prop));
    MUST(torch_map(at, PAGE, 0, page));
    MUST(torch_access(at, PAGE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    MUST(torch_release(page));
    EXPECT(cuMemRelease(page) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemsetD8(at, 0x11, PAGE));
    MUST(torch_retain(&again, at));
    EXPECT(again == page);
    /* Unmapped while referred to: it keeps what it holds, at another address too. */
    MUST(cuCtxSynchronize());
    MUST(torch_unmap(at, PAGE));
    MUST(torch_map(at + 3 * PAGE, PAGE, 0, again));
    MUST(torch_access(at + 3 * PAGE, PAGE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT(holds(at + 3 * PAGE, PAGE, 0x11));
    /* A second mapping, by somebody who retained it. */
    MUST(cuMemMap(at + 5 * PAGE, PAGE, 0, again, 0));
    MUST(torch_access(at + 5 * PAGE, PAGE, device, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT(holds(at + 5 * PAGE, PAGE, 0x11));
    MUST(torch_unmap(at + 3 * PAGE, PAGE));
    MUST(torch_release(again));
    EXPECT(holds(at + 5 * PAGE, PAGE, 0x11));
    EXPECT(free_bytes() < before);
    MUST(cuMemUnmap(at + 5 * PAGE, PAGE));
    MUST(cuMemAddressFree(at, 8 * PAGE));
    check_nothing_left(before);
}

static void errors(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle page;
    CUdeviceptr behind = page_at(&segment, PAGES);
    MUST(torch_create(&page, PAGE, &prop));
    EXPECT(torch_map(segment.at, PAGE, 0, page) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_map(behind, PAGE / 2, 0, page) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(torch_map(behind, SMALL, SMALL, page) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(torch_map(behind, PAGE, SMALL, page) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_map(behind + 4096, PAGE, 0, page) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_map(segment.at + segment.bytes, PAGE, 0, page) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_map(behind, PAGE, 0, page + 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_unmap(segment.at, SMALL) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_unmap(segment.at, PAGE + SMALL) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_unmap(behind, PAGE) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_access(segment.at, (PAGES + 1) * PAGE, device,
                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(torch_access(segment.at, PAGE, 63, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ==
           CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuMemAddressFree(segment.at, segment.bytes) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemRelease(page + 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemGetAllocationPropertiesFromHandle(&prop, page + 1) == CUDA_ERROR_INVALID_VALUE);
    check_story(&segment, PAGES - 1);
    MUST(torch_release(page));
    close_segment(&segment);
    check_nothing_left(before);
}

/* Refused at the cap, and served once something has been given back. */
static void refused(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle page;
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(&segment, i), PAGE);
    }
    EXPECT(torch_create(&page, 860 * MIB, &prop) == CUDA_ERROR_OUT_OF_MEMORY);
    torch_died(device, page_at(&segment, 0), PAGE);
    torch_died(device, page_at(&segment, 1), PAGE);
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < 2; i++) {
        MUST(torch_unmap(page_at(&segment, i), PAGE));
        MUST(torch_release(segment.pages[i]));
    }
    MUST(torch_create(&page, 860 * MIB, &prop));
    MUST(torch_release(page));
    for (unsigned i = 0; i < 2; i++) {
        MUST(torch_create(&segment.pages[i], PAGE, &prop));
        MUST(torch_map(page_at(&segment, i), PAGE, 0, segment.pages[i]));
    }
    MUST(torch_access(segment.at, 2 * PAGE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (unsigned i = 2; i < PAGES; i++) {
        torch_died(device, page_at(&segment, i), PAGE);
    }
    close_segment(&segment);
    check_nothing_left(before);
}

/* A sum that is not ours: from then on everything stays where it is. */
static void mismatch(void)
{
    struct segment segment = open_segment();
    CUdeviceptr block = 0;
    use_pages(&segment);
    torch_born_wrongly(device, page_at(&segment, 0), SMALL);
    EXPECT(cuMemAlloc(&block, TAKING) == CUDA_ERROR_OUT_OF_MEMORY);
    for (unsigned i = 1; i < PAGES; i++) {
        EXPECT(holds(page_at(&segment, i), PAGE, 0xee));
    }
    close_segment(&segment);
}

/* --- peers (SIMGPU_DEVICES=2) -----------------------------------------------------------------
 */

static void peers(void)
{
    struct segment segment = open_segment();
    CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUcontext other;
    CUdeviceptr copy;
    unsigned long long flags = 7;
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    open_holes(&segment);
    CUdeviceptr block = take_pages();
    CUdeviceptr hole = page_at(&segment, PAGES - 1) + SMALL;
    MUST(cuMemGetAccess(&flags, &there, hole));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    MUST(torch_access(segment.at, PAGES * PAGE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    MUST(cuMemGetAccess(&flags, &there, hole));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemFree(block));
    torch_born(device, hole, PAGE - SMALL);
    MUST(cuMemsetD8(hole, 0x33, PAGE - SMALL));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(other));
    MUST(cuMemAlloc(&copy, PAGE));
    MUST(cuMemcpyDtoD(copy, hole, PAGE - SMALL));
    EXPECT(holds(copy, PAGE - SMALL, 0x33));
    EXPECT(holds(page_at(&segment, 0), SMALL, 1));
    CUmemAccess_flags seen = 0;
    MUST(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, hole));
    EXPECT(seen == CU_MEM_ACCESS_FLAGS_PROT_READWRITE); /* the driver's own word, on device 1 */
    MUST(cuMemFree(copy));
    MUST(cuCtxSetCurrent(context));
    close_segment(&segment);
}

/* A copy to a device without access, of a tensor that only host memory could back. */
static void slow_across(void)
{
    struct segment segment = open_segment();
    CUcontext other;
    CUdeviceptr copy;
    open_holes(&segment);
    CUdeviceptr block = take_pages();
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(&segment, i) + SMALL, PAGE - SMALL);
        MUST(cuMemsetD8(page_at(&segment, i) + SMALL, 0x33, PAGE - SMALL));
    }
    MUST(cuCtxSynchronize());
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxSetCurrent(other));
    MUST(cuMemAlloc(&copy, PAGE));
    for (unsigned i = 0; i < PAGES; i++) {
        MUST(cuMemcpyDtoD(copy, page_at(&segment, i) + SMALL, PAGE - SMALL));
        EXPECT(holds(copy, PAGE - SMALL, 0x33));
    }
    MUST(cuMemFree(copy));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFree(block));
    close_segment(&segment);
}

/* What a peer still works on is not taken, though its contexts never asked for access. */
static void working_peers(void)
{
    struct segment segment = open_segment();
    CUcontext other;
    CUstream stream;
    CUdeviceptr at;
    CUdeviceptr block;
    unsigned *word = NULL;
    use_pages(&segment);
    MUST(torch_access(segment.at, PAGES * PAGE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemHostAlloc((void **)&word, sizeof *word, CU_MEMHOSTALLOC_DEVICEMAP));
    *word = 0;
    MUST(cuMemHostGetDevicePointer(&at, word, 0));
    MUST(cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(&segment, i), PAGE);
        MUST(cuMemsetD8Async(page_at(&segment, i), 0x44, PAGE, stream));
        torch_died(device, page_at(&segment, i), PAGE);
    }
    MUST(cuCtxSetCurrent(context));
    EXPECT(cuMemAlloc(&block, TAKING) == CUDA_ERROR_OUT_OF_MEMORY);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    MUST(cuStreamSynchronize(stream));
    block = take_pages();
    MUST(cuMemFree(block));
    close_segment(&segment);
}

/* A kind of chunk that the driver refuses (there is no fabric here) is refused as a page, too,
 * whatever would stand behind it: one chunk, several, none yet. */
static void kinds(void)
{
    CUmemAllocationProp fabric = properties();
    CUmemGenericAllocationHandle page;
    fabric.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CUresult driver = cuMemCreate(&page, PAGE, &fabric, 0);
    EXPECT(driver != CUDA_SUCCESS && driver != CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(torch_create(&page, SMALL, &fabric) == driver);
    EXPECT(torch_create(&page, PAGE, &fabric) == driver);
    struct segment segment = open_segment();
    EXPECT(torch_create(&page, PAGE, &fabric) == driver);
    EXPECT(torch_create(&page, SMALL, &fabric) == driver);
    open_holes(&segment);
    CUdeviceptr block = take_pages();
    EXPECT(torch_create(&page, PAGE, &fabric) == driver);
    MUST(cuMemFree(block));
    close_segment(&segment);
}

/* The first page asks the driver for a chunk of its kind, which the driver does not take back. */
static void kept_kind(void)
{
    CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle page;
    size_t free = 0;
    size_t total = 0;
    MUST(torch_create(&page, PAGE, &prop));
    MUST(cuMemGetInfo(&free, &total));
    EXPECT(total - free >= simgpu_used_bytes(device));
    MUST(torch_release(page));
}

/* --- every driver call failing ----------------------------------------------------------------
 */

/* All of a segment's life, in which any call may fail; what was made is undone. */
static void live_through(void)
{
    struct segment segment = {.bytes = 64 * PAGE};
    CUmemAllocationProp prop = properties();
    bool created[PAGES] = {false};
    bool mapped[PAGES] = {false};
    bool usable = true;
    CUdeviceptr block = 0;
    if (cuMemAddressReserve(&segment.at, segment.bytes, 0, 0, 0) != CUDA_SUCCESS) {
        return;
    }
    for (unsigned i = 0; i < PAGES; i++) {
        created[i] = torch_create(&segment.pages[i], PAGE, &prop) == CUDA_SUCCESS;
        mapped[i] = created[i] &&
                    torch_map(page_at(&segment, i), PAGE, 0, segment.pages[i]) == CUDA_SUCCESS;
        usable = mapped[i] &&
                 torch_access(page_at(&segment, i), PAGE, device,
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS &&
                 usable;
    }
    for (unsigned i = 0; usable && i < PAGES; i++) {
        torch_born(device, page_at(&segment, i), PAGE);
        torch_died(device, page_at(&segment, i), PAGE);
    }
    (void)cuCtxSynchronize();
    for (int round = 0; round < 2; round++) {
        if (cuMemAlloc(&block, TAKING) == CUDA_SUCCESS) {
            EXPECT(cuMemFree(block) == CUDA_SUCCESS || cuMemFree(block) == CUDA_SUCCESS);
        }
        for (unsigned i = 0; usable && i < PAGES; i++) {
            torch_born(device, page_at(&segment, i), SMALL);
        }
        for (unsigned i = 0; usable && i < PAGES; i++) {
            torch_died(device, page_at(&segment, i), SMALL);
        }
        (void)cuCtxSynchronize();
    }
    (void)cuCtxSynchronize();
    for (unsigned i = 0; i < PAGES; i++) {
        for (int attempt = 0; mapped[i] && attempt < 2; attempt++) {
            mapped[i] = torch_unmap(page_at(&segment, i), PAGE) != CUDA_SUCCESS;
        }
        EXPECT(!mapped[i]); /* one call fails at most */
        if (created[i]) {
            (void)torch_release(segment.pages[i]);
        }
    }
    if (cuMemAddressFree(segment.at, segment.bytes) != CUDA_SUCCESS) {
        MUST(cuMemAddressFree(segment.at, segment.bytes));
    }
}

static void injected(void)
{
    static const char *const functions[] = {
        "cuMemCreate",   "cuMemAddressReserve", "cuMemMap",        "cuMemSetAccess",
        "cuMemUnmap",    "cuMemRelease",        "cuEventCreate",   "cuCtxRecordEvent",
        "cuEventRecord", "cuEventQuery",        "cuMemAddressFree"};
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    size_t before = free_bytes();
    live_through();
    check_nothing_left(before);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        for (uint64_t n = 1;; n++) {
            uint64_t calls = simgpu_calls(functions[f]);
            MUST(simgpu_fail(functions[f], n, results[n % 2]));
            live_through();
            simgpu_fail_clear();
            if (simgpu_calls(functions[f]) - calls < n) {
                break; /* there is no n-th call */
            }
            CUmemoryPool pool;
            MUST(cuDeviceGetDefaultMemPool(&pool, device));
            MUST(cuMemPoolTrimTo(pool, 0));
            if (free_bytes() != before || simgpu_used_bytes(device) != 64 * MIB) {
                (void)fprintf(stderr, "%s, call %d: free %zu, before %zu, used %llu\n",
                              functions[f], (int)n, free_bytes(), before,
                              (unsigned long long)simgpu_used_bytes(device));
                exit(1);
            }
        }
    }
    live_through();
    check_nothing_left(before);
}

/* --- processes and contexts -------------------------------------------------------------------
 */

/* The driver is of no use to a child, whose calls must do no harm; the parent goes on, with pages
 * in parts. */
static void forked(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    open_holes(&segment);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        CUmemAllocationProp prop = properties();
        CUmemGenericAllocationHandle handle = 0;
        torch_died(device, page_at(&segment, 0), SMALL);
        torch_born(device, page_at(&segment, 1) + SMALL, SMALL);
        EXPECT(torch_create(&handle, PAGE, &prop) != CUDA_SUCCESS);
        EXPECT(torch_map(page_at(&segment, PAGES), PAGE, 0, segment.pages[0]) != CUDA_SUCCESS);
        EXPECT(torch_unmap(page_at(&segment, 2), PAGE) != CUDA_SUCCESS);
        EXPECT(torch_release(segment.pages[3]) != CUDA_SUCCESS);
        exit(7);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    check_small(&segment);
    torch_born(device, page_at(&segment, 1) + SMALL, PAGE - SMALL);
    MUST(cuMemsetD8(page_at(&segment, 1) + SMALL, 0x11, PAGE - SMALL));
    EXPECT(holds(page_at(&segment, 1) + SMALL, PAGE - SMALL, 0x11));
    close_segment(&segment);
    check_nothing_left(before);
}

static atomic_bool go_on;

static void hold_up(void *unused)
{
    (void)unused;
    while (!go_on) {
        usleep(100);
    }
}

/* cuda.h, cuCtxDestroy: what cuMemCreate gave outlives the context. What waited for the context's
 * work has nothing to wait for any more. MEMSHIM_WAIT_MS=0. */
static void reset(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    CUstream busy;
    open_holes(&segment);
    CUdeviceptr block = take_pages();
    MUST(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchHostFunc(busy, hold_up, NULL));
    MUST(cuMemFreeAsync(block, busy));
    EXPECT(cuMemAlloc(&block, TAKING) == CUDA_ERROR_OUT_OF_MEMORY);
    go_on = true;
    MUST(cuDevicePrimaryCtxReset(device));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    check_small(&segment);
    block = take_pages();
    check_small(&segment);
    MUST(cuMemFree(block));
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < PAGES; i++) {
        torch_born(device, page_at(&segment, i) + SMALL, PAGE - SMALL);
        MUST(cuMemsetD8(page_at(&segment, i) + SMALL, 0x22, PAGE - SMALL));
        EXPECT(holds(page_at(&segment, i) + SMALL, PAGE - SMALL, 0x22));
    }
    check_small(&segment);
    close_segment(&segment);
    check_nothing_left(before);
}

/* --- nothing of it (MEMSHIM_POOL=off, MEMSHIM_TORCH=off) ---------------------------------------
 */

static void forwarded(void)
{
    size_t before = free_bytes();
    struct segment segment = open_segment();
    EXPECT(simgpu_live("chunk") == PAGES);
    EXPECT(free_bytes() == before - PAGES * PAGE);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    MUST(cuMemGetAddressRange(&base, &bytes, page_at(&segment, 2)));
    EXPECT(base == page_at(&segment, 2) && bytes == PAGE);
    close_segment(&segment);
    EXPECT(free_bytes() == before);
    EXPECT(simgpu_live("chunk") == 0);
}

static const struct scenario scenarios[] = {{"story", story},
                                            {"split", split},
                                            {"reborn", reborn},
                                            {"slow", slow},
                                            {"pinned", pinned},
                                            {"promised", promised},
                                            {"orders", orders},
                                            {"errors", errors},
                                            {"kinds", kinds},
                                            {"kept_kind", kept_kind},
                                            {"refused", refused},
                                            {"mismatch", mismatch},
                                            {"peers", peers},
                                            {"slow_across", slow_across},
                                            {"working_peers", working_peers},
                                            {"injected", injected},
                                            {"forwarded", forwarded},
                                            {"forked", forked},
                                            {"reset", reset}};

int main(int argc, char **argv)
{
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
