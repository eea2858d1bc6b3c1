/* SPDX-License-Identifier: Apache-2.0 */
/* What an application does with the driver interface, and what it is answered: contents, sizes,
 * error codes. The account on standard output is compared between a run with memshim and one
 * without. */
#include <string.h>

#include "driver.h"
#include "say.h"

static struct driver cu;

static uint64_t device_hash(CUdeviceptr at, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    EXPECT(host != NULL);
    MUST(cu.cuMemcpyDtoH(host, at, bytes));
    uint64_t hash = hash_bytes(host, bytes);
    free(host);
    return hash;
}

static void fill_with_noise(CUdeviceptr at, size_t bytes, uint64_t seed)
{
    uint64_t *host = malloc(bytes);
    EXPECT(host != NULL);
    for (size_t i = 0; i < bytes / sizeof *host; i++) {
        host[i] = next_random(&seed);
    }
    MUST(cu.cuMemcpyHtoD(at, host, bytes));
    free(host);
}

/* Blocks of many sizes keep their contents while others come and go. */
static void linear_memory(void)
{
    enum { BLOCKS = 64 };
    CUdeviceptr blocks[BLOCKS];
    size_t sizes[BLOCKS];
    uint64_t seed = 1;
    for (int i = 0; i < BLOCKS; i++) {
        sizes[i] = (next_random(&seed) % (i % 8 == 0 ? 9 * MIB : 200 * KIB) | 7) + 1;
        MUST(cu.cuMemAlloc(&blocks[i], sizes[i]));
        EXPECT(blocks[i] % 256 == 0);
        fill_with_noise(blocks[i], sizes[i], (uint64_t)i);
    }
    for (int i = 0; i < BLOCKS; i += 3) {
        MUST(cu.cuMemFree(blocks[i]));
        sizes[i] = (next_random(&seed) % (3 * MIB) | 7) + 1;
        MUST(cu.cuMemAlloc(&blocks[i], sizes[i]));
        MUST(cu.cuMemsetD8(blocks[i], (unsigned char)i, sizes[i]));
    }
    for (int i = 0; i < BLOCKS; i++) {
        (void)printf("block %d: %zu bytes, %016llx\n", i, sizes[i],
                     (unsigned long long)device_hash(blocks[i], sizes[i]));
    }
    MUST(cu.cuMemcpyDtoD(blocks[1], blocks[2], sizes[1] < sizes[2] ? sizes[1] : sizes[2]));
    (void)printf("copied: %016llx\n", (unsigned long long)device_hash(blocks[1], sizes[1]));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cu.cuMemFree(blocks[i]));
    }
}

/* A pointer says what it is, from its beginning and from its middle. */
static void identity(void)
{
    CUdeviceptr block, base;
    size_t size;
    unsigned kind;
    int managed, ordinal;
    MUST(cu.cuMemAlloc(&block, 5 * MIB));
    MUST(cu.cuMemGetAddressRange(&base, &size, block + MIB));
    (void)printf("range: base %s, %zu bytes\n", base == block ? "right" : "wrong", size);
    SAY_RESULT(cu.cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 1));
    SAY_RESULT(cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
    SAY_RESULT(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    SAY_RESULT(cu.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + MIB));
    SAY_RESULT(cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + MIB));
    (void)printf("kind %u managed %d device %d, %zu bytes from %s\n", kind, managed, ordinal, size,
                 base == block ? "its begin" : "elsewhere");
    MUST(cu.cuMemFree(block));
}

/* What is refused is refused with the same error, and leaves everything usable. */
static void refusals(void)
{
    CUdeviceptr block = 0, other;
    size_t free_bytes, total_bytes, pitch;
    CUarray array;
    SAY_RESULT(cu.cuMemAlloc(&block, 0));
    SAY_RESULT(cu.cuMemAlloc(NULL, 16));
    SAY_RESULT(cu.cuMemFree(0));
    SAY_RESULT(cu.cuMemFree((CUdeviceptr)0x1234000));
    SAY_RESULT(cu.cuMemAlloc(&block, 4096 * GIB));
    SAY_RESULT(cu.cuMemAllocPitch(&block, &pitch, 4096 * GIB, 4, 4));
    SAY_RESULT(cu.cuMemAlloc(&block, MIB));
    SAY_RESULT(cu.cuMemFree(block + 256));
    SAY_RESULT(cu.cuMemFree(block));
    SAY_RESULT(cu.cuMemFree(block));
    SAY_RESULT(cu.cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(free_bytes <= total_bytes);
    CUDA_ARRAY_DESCRIPTOR huge = {1 << 20, 1 << 20, CU_AD_FORMAT_FLOAT, 4};
    SAY_RESULT(cu.cuArrayCreate(&array, &huge));
    SAY_RESULT(cu.cuMemAlloc(&other, MIB));
    SAY_RESULT(cu.cuMemFree(other));
}

static void other_kinds(void)
{
    CUdeviceptr pitched, managed;
    size_t pitch;
    void *host;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {256, 128, CU_AD_FORMAT_FLOAT, 1};
    MUST(cu.cuMemAllocPitch(&pitched, &pitch, 1000, 77, 4));
    (void)printf("pitch %zu\n", pitch);
    MUST(cu.cuMemsetD8(pitched, 9, pitch * 77));
    (void)printf("pitched: %016llx\n", (unsigned long long)device_hash(pitched, pitch * 77));
    MUST(cu.cuMemFree(pitched));
    MUST(cu.cuMemAllocManaged(&managed, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    MUST(cu.cuMemsetD8(managed, 5, 3 * MIB));
    MUST(cu.cuCtxSynchronize());
    (void)printf("managed: %016llx\n", (unsigned long long)device_hash(managed, 3 * MIB));
    MUST(cu.cuMemFree(managed));
    MUST(cu.cuMemAllocHost(&host, MIB));
    memset(host, 3, MIB);
    MUST(cu.cuMemFreeHost(host));
    MUST(cu.cuArrayCreate(&array, &shape));
    MUST(cu.cuArrayDestroy(array));
}

/* The program's own virtual memory management is served as the driver serves it. */
static void own_mappings(CUdevice device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle chunks[2];
    CUdeviceptr range;
    size_t granule;
    CUresult result =
        cu.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        result = cu.cuMemAddressReserve(&range, 4 * granule, 0, 0, 0);
    }
    if (result != CUDA_SUCCESS) {
        (void)printf("no mappings here: %d\n", (int)result);
        return;
    }
    MUST(cu.cuMemCreate(&chunks[0], granule, &prop, 0));
    MUST(cu.cuMemCreate(&chunks[1], 2 * granule, &prop, 0));
    MUST(cu.cuMemMap(range, granule, 0, chunks[0], 0));
    MUST(cu.cuMemMap(range + granule, 2 * granule, 0, chunks[1], 0));
    MUST(cu.cuMemSetAccess(range, 3 * granule, &access, 1));
    fill_with_noise(range, 3 * granule, 42);
    (void)printf("mapped: %016llx\n", (unsigned long long)device_hash(range, 3 * granule));
    SAY_RESULT(cu.cuMemMap(range, granule, 0, chunks[0], 0));
    MUST(cu.cuMemUnmap(range, granule));
    MUST(cu.cuMemMap(range + 3 * granule, granule, 0, chunks[0], 0));
    MUST(cu.cuMemSetAccess(range + 3 * granule, granule, &access, 1));
    (void)printf("moved: %016llx\n", (unsigned long long)device_hash(range + granule, 3 * granule));
    MUST(cu.cuMemUnmap(range + granule, 3 * granule));
    MUST(cu.cuMemRelease(chunks[0]));
    MUST(cu.cuMemRelease(chunks[1]));
    MUST(cu.cuMemAddressFree(range, 4 * granule));
}

/* Stream-ordered memory, the default pool and one of the program's. */
static void stream_ordered(CUdevice device)
{
    CUstream streams[2];
    CUdeviceptr a, b;
    CUmemoryPool pool, own;
    CUevent event;
    cuuint64_t threshold = 64 * MIB, value = 0;
    MUST(cu.cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    MUST(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuDeviceGetDefaultMemPool(&pool, device));
    SAY_RESULT(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    SAY_RESULT(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    (void)printf("threshold %llu\n", (unsigned long long)value);
    for (int round = 0; round < 20; round++) {
        size_t bytes = (size_t)(round + 1) * 100 * KIB;
        MUST(cu.cuMemAllocAsync(&a, bytes, streams[0]));
        MUST(cu.cuMemsetD8Async(a, (unsigned char)round, bytes, streams[0]));
        MUST(cu.cuEventRecord(event, streams[0]));
        MUST(cu.cuMemAllocAsync(&b, bytes, streams[1]));
        MUST(cu.cuStreamWaitEvent(streams[1], event, 0));
        MUST(cu.cuMemcpyDtoDAsync(b, a, bytes, streams[1]));
        MUST(cu.cuMemFreeAsync(a, streams[1]));
        MUST(cu.cuStreamSynchronize(streams[1]));
        (void)printf("round %d: %016llx\n", round, (unsigned long long)device_hash(b, bytes));
        MUST(cu.cuMemFreeAsync(b, streams[0]));
    }
    SAY_RESULT(cu.cuMemAllocAsync(&a, 4096 * GIB, streams[0]));
    MUST(cu.cuStreamSynchronize(streams[0]));
    SAY_RESULT(cu.cuMemPoolTrimTo(pool, 0));
    SAY_RESULT(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    (void)printf("used %llu\n", (unsigned long long)value);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    MUST(cu.cuMemPoolCreate(&own, &props));
    MUST(cu.cuMemAllocFromPoolAsync(&a, 2 * MIB, own, streams[0]));
    MUST(cu.cuMemsetD8Async(a, 0x5a, 2 * MIB, streams[0]));
    MUST(cu.cuStreamSynchronize(streams[0]));
    (void)printf("own pool: %016llx\n", (unsigned long long)device_hash(a, 2 * MIB));
    MUST(cu.cuMemFreeAsync(a, streams[0]));
    MUST(cu.cuStreamSynchronize(streams[0]));
    MUST(cu.cuMemPoolDestroy(own));
    MUST(cu.cuEventDestroy(event));
    MUST(cu.cuStreamDestroy(streams[0]));
    MUST(cu.cuStreamDestroy(streams[1]));
}

/* A graph captured over memory of ours, and with allocations inside, replays the same. */
static void capture(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr outside, inside;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuMemAlloc(&outside, MIB));
    MUST(cu.cuMemsetD8(outside, 1, MIB));
    MUST(cu.cuCtxSynchronize()); /* a stream that does not block waits for none of it */
    MUST(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SAY_RESULT(cu.cuMemAllocAsync(&inside, MIB, stream));
    MUST(cu.cuMemsetD8Async(inside, 7, MIB, stream));
    MUST(cu.cuMemcpyDtoDAsync(outside, inside, MIB / 2, stream));
    SAY_RESULT(cu.cuMemFreeAsync(inside, stream));
    MUST(cu.cuStreamEndCapture(stream, &graph));
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        MUST(cu.cuGraphLaunch(exec, stream));
    }
    MUST(cu.cuStreamSynchronize(stream));
    (void)printf("replayed: %016llx\n", (unsigned long long)device_hash(outside, MIB));
    MUST(cu.cuGraphExecDestroy(exec));
    MUST(cu.cuGraphDestroy(graph));
    MUST(cu.cuMemFree(outside));
    MUST(cu.cuStreamDestroy(stream));
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    int count;
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGetCount(&count));
    (void)printf("%d devices\n", count);
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    linear_memory();
    identity();
    refusals();
    other_kinds();
    own_mappings(device);
    stream_ordered(device);
    capture();
    MUST(cu.cuDevicePrimaryCtxRelease(device));
    return 0;
}
