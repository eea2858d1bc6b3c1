/* SPDX-License-Identifier: Apache-2.0 */
/* Presses against the cap. What the device itself counts is asked of the simulated GPU, not of
 * memshim.
 *
 *   cap_job race SEED     eight threads allocate in every way until refused, free, and go on, while
 *                         a ninth notes the most bytes in use
 *   cap_job pools         one thread makes and destroys memory pools of the driver's, two others
 *                         want the same bytes for blocks
 *   cap_job piece         one of the driver's pools has no room for what it takes at once
 *   cap_job apart         the same, where the request itself has room beside the pool
 *   cap_job second-context served|refused   another context, where blocks have all there is
 *   cap_job slab          small blocks, where the rest of the device is full and only the driver's
 *                         slab of the first of them has room
 *   cap_job held          a pool of the driver's has all of the device, and room for more blocks
 *   cap_job kept HOW      asks for what is there once a pool of the driver's gives back what it
 *                         keeps for nobody; HOW: block, ordered, managed or chunk
 *   cap_job graph MIB launch|upload   a graph that allocates, beside a block; then what is left
 *   cap_job graph-room    the same, where blocks have all there is
 *   cap_job graph-trimmed   a graph's memory is in the way until the program trims it
 *   cap_job graph-again   the same; the first launch is refused, a later one is not
 *   cap_job graph-later [trim]   launched before, and trimmed since; a later launch beside blocks
 *                                that have all there is
 *   cap_job graph-asked   launched; then blocks take what is said to be left, asked for once
 *   cap_job graph-uploaded   uploaded, and launched where there is no room for it twice
 *   cap_job refuse        allocates to the end, is refused, frees one block, gets it again
 *
 * Prints JSON: peak_bytes (the most in use), refusals, total_bytes (what the driver says it has).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"

enum { THREADS = 8, HELD = 24, ROUNDS = 300, POOLS = 1500, MOST_BLOCKS = 64 };

static struct driver cu;
static CUcontext context;
static CUdevice device;
static PFN_cuCtxCreate_v3020 create_context;
static uint64_t (*used_bytes)(int device);
static atomic_ullong peak_bytes, refusals;
static atomic_bool over;
static pthread_barrier_t start;
static uint64_t first_seed;

static void open_library(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, "simgpu_used_bytes") : NULL;
    EXPECT(address != NULL);
    memcpy(&used_bytes, &address, sizeof used_bytes);
    /* Under a sanitizer nobody stands before dlsym, and the library's own would pass memshim by. */
    address = dlsym(RTLD_DEFAULT, "cuCtxCreate_v2");
    address = address != NULL ? address : dlsym(library, "cuCtxCreate_v2");
    EXPECT(address != NULL);
    memcpy(&create_context, &address, sizeof create_context);
}

static void note_peak(void)
{
    uint64_t now = used_bytes(device);
    unsigned long long before = atomic_load(&peak_bytes);
    while (now > before && !atomic_compare_exchange_weak(&peak_bytes, &before, now)) {
    }
}

static void *watch(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        note_peak();
    }
    return NULL;
}

/* A block of any kind that counts. */
struct held {
    enum { NOTHING, LINEAR, ORDERED, ARRAY, CHUNK } kind;
    union {
        CUdeviceptr at;
        CUarray array;
        CUmemGenericAllocationHandle chunk;
    } what;
};

static CUresult take(struct held *held, uint64_t draw, CUstream stream)
{
    size_t bytes = (draw >> 8) % (24 * MIB) + 1;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    /* Of a granule at least: how the driver packs smaller ones cannot be known. */
    CUDA_ARRAY_DESCRIPTOR shape = {512, 1024 + (draw >> 8) % 3072, CU_AD_FORMAT_FLOAT, 1};
    CUresult result;
    switch (draw % 8) {
    case 0:
        held->kind = ARRAY;
        result = cu.cuArrayCreate(&held->what.array, &shape);
        break;
    case 1:
        held->kind = CHUNK;
        result = cu.cuMemCreate(&held->what.chunk, (bytes / (2 * MIB) + 1) * 2 * MIB, &prop, 0);
        break;
    case 2:
    case 3:
    case 4:
        held->kind = ORDERED;
        result = cu.cuMemAllocAsync(&held->what.at, bytes, stream);
        break;
    default:
        held->kind = LINEAR;
        result = cu.cuMemAlloc(&held->what.at, bytes);
    }
    if (result != CUDA_SUCCESS) {
        held->kind = NOTHING;
    }
    return result;
}

static void give_back(struct held *held, CUstream stream)
{
    switch (held->kind) {
    case NOTHING:
        break;
    case LINEAR:
        MUST(cu.cuMemFree(held->what.at));
        break;
    case ORDERED:
        MUST(cu.cuMemFreeAsync(held->what.at, stream));
        break;
    case ARRAY:
        MUST(cu.cuArrayDestroy(held->what.array));
        break;
    case CHUNK:
        MUST(cu.cuMemRelease(held->what.chunk));
        break;
    }
    held->kind = NOTHING;
}

static void *press(void *argument)
{
    uint64_t seed = first_seed * 100 + (uintptr_t)argument;
    struct held held[HELD] = {0};
    CUstream stream;
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    (void)pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t draw = next_random(&seed);
        struct held *slot = &held[draw % HELD];
        give_back(slot, stream);
        CUresult result = take(slot, next_random(&seed), stream);
        note_peak();
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            atomic_fetch_add(&refusals, 1);
        } else {
            /* A device without virtual memory management has no chunks. */
            EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED);
        }
    }
    for (int i = 0; i < HELD; i++) {
        give_back(&held[i], stream);
    }
    MUST(cu.cuStreamDestroy(stream));
    return NULL;
}

static void race(void)
{
    pthread_t threads[THREADS], watcher;
    MUST(pthread_barrier_init(&start, NULL, THREADS));
    MUST(pthread_create(&watcher, NULL, watch, NULL));
    for (size_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, press, (void *)(uintptr_t)i));
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    atomic_store(&over, true);
    MUST(pthread_join(watcher, NULL));
}

/* A block whenever there is room, until the pools are through. */
static void *want(void *unused)
{
    (void)unused;
    MUST(cu.cuCtxSetCurrent(context));
    while (!atomic_load(&over)) {
        CUdeviceptr block;
        CUresult result = cu.cuMemAlloc(&block, 32 * MIB);
        if (result == CUDA_SUCCESS) {
            note_peak();
            MUST(cu.cuMemFree(block));
        } else {
            EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
            atomic_fetch_add(&refusals, 1);
        }
    }
    return NULL;
}

/* A pool that is destroyed while it still holds what was freed to it. */
static void make_and_destroy_pool(CUstream stream)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr block;
    MUST(cu.cuMemPoolCreate(&pool, &props));
    MUST(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUresult result = cu.cuMemAllocFromPoolAsync(&block, 32 * MIB, pool, stream);
    if (result == CUDA_SUCCESS) {
        note_peak();
        MUST(cu.cuMemFreeAsync(block, stream));
        MUST(cu.cuStreamSynchronize(stream));
    } else {
        EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    }
    MUST(cu.cuMemPoolDestroy(pool));
}

static void pools(void)
{
    pthread_t threads[2];
    CUstream stream;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        MUST(pthread_create(&threads[i], NULL, want, NULL));
    }
    /* On a busy machine it may take longer until two of them meet. */
    for (int i = 0; i < POOLS || atomic_load(&refusals) == 0; i++) {
        make_and_destroy_pool(stream);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    MUST(cu.cuStreamDestroy(stream));
}

/* A pool of the program's that the driver serves, since its memory is for decompression engines
 * (CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS, the member after maxSize since CUDA 12.8). */
static CUmemoryPool pool_for_decompression(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const unsigned short decompression = 2;
    CUmemoryPool pool;
    memcpy((char *)&props.maxSize + sizeof props.maxSize, &decompression, sizeof decompression);
    MUST(cu.cuMemPoolCreate(&pool, &props));
    return pool;
}

/* One of the driver's pools takes a piece for the first request; there is no room for another,
 * which it might take for the second. */
static void piece(void)
{
    CUdeviceptr blocks[2];
    CUmemoryPool pool = pool_for_decompression();
    MUST(cu.cuMemAllocFromPoolAsync(&blocks[0], 4 * MIB, pool, NULL));
    EXPECT(cu.cuMemAllocFromPoolAsync(&blocks[1], 4 * MIB, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    note_peak();
    atomic_fetch_add(&refusals, 1);
}

/* The same, where the second request gets memory that is no pool's; as often as it is freed, in
 * every order. */
static void apart(void)
{
    CUdeviceptr blocks[2], more;
    CUstream streams[2];
    unsigned char seen[4 * KIB];
    for (int i = 0; i < 2; i++) {
        MUST(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    MUST(cu.cuMemAllocAsync(&blocks[0], 4 * MIB, streams[0]));
    for (int i = 0; i < 8; i++) {
        MUST(cu.cuMemAllocAsync(&blocks[1], 7 * MIB, streams[0]));
        MUST(cu.cuMemsetD8Async(blocks[1], (unsigned char)i, 7 * MIB, streams[0]));
        note_peak();
        EXPECT(cu.cuMemAllocAsync(&more, 1 * MIB, streams[1]) == CUDA_ERROR_OUT_OF_MEMORY);
        atomic_fetch_add(&refusals, 1);
        MUST(cu.cuStreamSynchronize(streams[0]));
        MUST(cu.cuMemcpyDtoH(seen, blocks[1] + 6 * MIB, sizeof seen));
        EXPECT(seen[0] == i && seen[sizeof seen - 1] == i);
        MUST(i % 2 == 0 ? cu.cuMemFree(blocks[1]) : cu.cuMemFreeAsync(blocks[1], streams[i / 4]));
        MUST(cu.cuStreamSynchronize(streams[i / 4]));
    }
    MUST(cu.cuMemFreeAsync(blocks[0], streams[1]));
}

/* To the end, one step back, and on: what a program does that survives running out. */
static void refuse(void)
{
    enum { MOST = 4096 };
    static CUdeviceptr blocks[MOST];
    size_t bytes = 40 * MIB;
    int count = 0;
    CUresult result = CUDA_SUCCESS;
    while (count < MOST && result == CUDA_SUCCESS) {
        result = cu.cuMemAlloc(&blocks[count], bytes);
        count += result == CUDA_SUCCESS ? 1 : 0;
        note_peak();
    }
    (void)fprintf(stderr, "%d blocks\n", count);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&refusals, 1);
    EXPECT(count > 2);
    MUST(cu.cuMemFree(blocks[0]));
    MUST(cu.cuMemAlloc(&blocks[0], bytes));
    MUST(cu.cuMemsetD8(blocks[0], 1, bytes));
    EXPECT(cu.cuMemAlloc(&blocks[count], bytes) == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&refusals, 1);
    /* Two neighbours' room serves one request of their size together. */
    MUST(cu.cuMemFree(blocks[count - 1]));
    MUST(cu.cuMemFree(blocks[count - 2]));
    MUST(cu.cuMemAlloc(&blocks[count - 1], 2 * bytes));
    note_peak();
    MUST(cu.cuMemFree(blocks[count - 1]));
    for (int i = 0; i < count - 2; i++) {
        MUST(cu.cuMemFree(blocks[i]));
    }
}

/* Another context, which the driver takes without asking, where blocks have all there is. */
static void second_context(bool served)
{
    enum { MOST = 64 };
    static CUdeviceptr blocks[MOST];
    static unsigned char seen[4 * KIB];
    CUcontext second = NULL;
    int count = 0;
    while (count < MOST && cu.cuMemAlloc(&blocks[count], 8 * MIB) == CUDA_SUCCESS) {
        MUST(cu.cuMemsetD8(blocks[count], (unsigned char)(count + 1), 8 * MIB));
        count++;
    }
    note_peak();
    const CUresult result = create_context(&second, 0, device);
    EXPECT(result == (served ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
    atomic_fetch_add(&refusals, 1);
    note_peak();
    if (served) {
        MUST(cu.cuCtxDestroy(second));
        MUST(cu.cuCtxSetCurrent(context));
    }
    for (int i = 0; i < count; i++) {
        MUST(cu.cuMemcpyDtoH(seen, blocks[i] + 4 * MIB, sizeof seen));
        EXPECT(seen[0] == i + 1 && seen[sizeof seen - 1] == i + 1);
        MUST(cu.cuMemFree(blocks[i]));
    }
    MUST(create_context(&second, 0, device));
    note_peak();
}

/* Such a pool that keeps what it had. */
static void keep_in_a_pool(size_t bytes)
{
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool = pool_for_decompression();
    CUstream stream;
    CUdeviceptr block;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    MUST(cu.cuMemAllocFromPoolAsync(&block, bytes, pool, stream));
    MUST(cu.cuMemFreeAsync(block, stream));
    MUST(cu.cuStreamSynchronize(stream));
    MUST(cu.cuStreamDestroy(stream));
}

static void ask(const char *how, size_t bytes)
{
    const CUmemAllocationProp props = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr block;
    if (strcmp(how, "block") == 0) {
        MUST(cu.cuMemAlloc(&block, bytes));
    } else if (strcmp(how, "ordered") == 0) {
        MUST(cu.cuMemAllocAsync(&block, bytes, NULL));
    } else if (strcmp(how, "managed") == 0) {
        MUST(cu.cuMemAllocManaged(&block, bytes, CU_MEM_ATTACH_GLOBAL));
    } else {
        EXPECT(strcmp(how, "chunk") == 0);
        MUST(cu.cuMemCreate(&chunk, bytes, &props, 0));
    }
}

/* Below every threshold before the request: crossing one would make room, too. */
static void kept(const char *how)
{
    CUdeviceptr block;
    keep_in_a_pool(64 * MIB);
    MUST(cu.cuMemAlloc(&block, 32 * MIB));
    MUST(cu.cuMemsetD8(block, 1, 32 * MIB));
    note_peak();
    ask(how, 64 * MIB);
    note_peak();
}

static size_t free_now(void)
{
    size_t free_bytes, total;
    MUST(cu.cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* Blocks of contents that tell which they are. */
struct blocks {
    CUdeviceptr at[MOST_BLOCKS];
    int count;
};

/* All that the device has, and nothing that the host would have to take. */
static void take_all(struct blocks *blocks)
{
    for (; blocks->count < MOST_BLOCKS && free_now() >= 32 * MIB; blocks->count++) {
        MUST(cu.cuMemAlloc(&blocks->at[blocks->count], 32 * MIB));
        MUST(
            cu.cuMemsetD8(blocks->at[blocks->count], (unsigned char)(blocks->count + 1), 32 * MIB));
    }
    note_peak();
}

static void free_all(struct blocks *blocks)
{
    static unsigned char seen[4 * KIB];
    for (int i = 0; i < blocks->count; i++) {
        MUST(cu.cuMemcpyDtoH(seen, blocks->at[i] + 4 * MIB, sizeof seen));
        EXPECT(seen[0] == i + 1 && seen[sizeof seen - 1] == i + 1);
        MUST(cu.cuMemFree(blocks->at[i]));
    }
    blocks->count = 0;
}

/* A graph that allocates, in pieces of 20 MiB, and frees again. It has no memory yet. */
static CUgraphExec graph_of(CUstream stream, size_t bytes)
{
    enum { MOST = 64 };
    static CUdeviceptr pieces[MOST];
    const int count = (int)(bytes / (20 * MIB));
    CUgraph graph;
    CUgraphExec exec;
    const uint64_t before = used_bytes(device);
    MUST(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < count; i++) {
        MUST(cu.cuMemAllocAsync(&pieces[i], 20 * MIB, stream));
        MUST(cu.cuMemsetD8Async(pieces[i], 1, 20 * MIB, stream));
    }
    for (int i = 0; i < count; i++) {
        MUST(cu.cuMemFreeAsync(pieces[i], stream));
    }
    MUST(cu.cuStreamEndCapture(stream, &graph));
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cu.cuGraphDestroy(graph));
    EXPECT(used_bytes(device) == before);
    return exec;
}

/* What the first launch or upload takes is no longer free, and nobody else gets it. */
static void graph(size_t bytes, bool upload)
{
    CUstream stream;
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, 32 * MIB));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = graph_of(stream, bytes);
    const uint64_t used = used_bytes(device);
    const size_t free_before = free_now();
    MUST(upload ? cu.cuGraphUpload(exec, stream) : cu.cuGraphLaunch(exec, stream));
    const size_t taken = used_bytes(device) - used;
    EXPECT(taken >= bytes);
    EXPECT(free_now() == (free_before > taken ? free_before - taken : 0));
    MUST(cu.cuGraphLaunch(exec, stream));
    MUST(cu.cuStreamSynchronize(stream));
    EXPECT(used_bytes(device) - used == taken);
    EXPECT(cu.cuMemAlloc(&block, free_now() + 1) == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&refusals, 1);
    if (free_now() != 0) {
        MUST(cu.cuMemAlloc(&block, free_now()));
    }
    note_peak();
}

/* What the driver gave back is there for others. */
static void graph_trimmed(void)
{
    CUstream stream;
    CUdeviceptr block;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = graph_of(stream, 100 * MIB);
    MUST(cu.cuGraphLaunch(exec, stream));
    MUST(cu.cuStreamSynchronize(stream));
    note_peak();
    MUST(cu.cuGraphExecDestroy(exec));
    EXPECT(cu.cuMemAlloc(&block, 64 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&refusals, 1);
    MUST(cu.cuDeviceGraphMemTrim(device));
    MUST(cu.cuMemAlloc(&block, 64 * MIB));
    note_peak();
}

static void graph_room(void)
{
    CUstream stream;
    struct blocks blocks = {.count = 0};
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = graph_of(stream, 60 * MIB);
    take_all(&blocks);
    MUST(cu.cuGraphLaunch(exec, stream));
    note_peak();
    MUST(cu.cuStreamSynchronize(stream));
    free_all(&blocks);
}

/* A graph that had its memory; on a stream of its own. */
static CUgraphExec graph_that_ran(CUstream *stream)
{
    MUST(cu.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = graph_of(*stream, 60 * MIB);
    MUST(cu.cuGraphLaunch(exec, *stream));
    MUST(cu.cuStreamSynchronize(*stream));
    return exec;
}

/* The program takes the memory away, or the driver wants more. */
static void graph_later(bool trim)
{
    CUstream stream;
    struct blocks blocks = {.count = 0};
    CUgraphExec exec = graph_that_ran(&stream);
    if (trim) {
        MUST(cu.cuDeviceGraphMemTrim(device));
    }
    take_all(&blocks);
    for (int i = 0; i < 3; i++) {
        MUST(cu.cuGraphLaunch(exec, stream));
        note_peak();
    }
    MUST(cu.cuStreamSynchronize(stream));
    free_all(&blocks);
}

/* What is said to be left may be wrong by what the driver could not say of graphs at that moment.
 * The cap holds all the same. */
static void graph_asked(void)
{
    CUstream stream;
    struct blocks blocks = {.count = 0};
    (void)graph_that_ran(&stream);
    (void)free_now();
    take_all(&blocks);
    note_peak();
    free_all(&blocks);
}

static void graph_uploaded(void)
{
    CUstream stream;
    CUdeviceptr block;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = graph_of(stream, 60 * MIB);
    MUST(cu.cuGraphUpload(exec, stream));
    MUST(cu.cuMemAlloc(&block, 32 * MIB));
    MUST(cu.cuMemsetD8(block, 1, 32 * MIB));
    MUST(cu.cuGraphLaunch(exec, stream));
    MUST(cu.cuStreamSynchronize(stream));
    note_peak();
}

/* The device itself is full at the first launch. */
static void graph_again(void)
{
    CUstream stream;
    struct blocks blocks = {.count = 0};
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = graph_of(stream, 60 * MIB);
    take_all(&blocks);
    EXPECT(cu.cuGraphLaunch(exec, stream) == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&refusals, 1);
    free_all(&blocks);
    const size_t free_before = free_now();
    MUST(cu.cuGraphLaunch(exec, stream));
    MUST(cu.cuStreamSynchronize(stream));
    EXPECT(free_now() <= free_before - 60 * MIB);
    note_peak();
}

static void slab(void)
{
    enum { SLAB = 2 << 20, SMALL = 4096, IN_SLAB = SLAB / SMALL, MOST = 4096 };
    static CUdeviceptr small[IN_SLAB + 1], large[MOST];
    int count = 0, served = 1;
    MUST(cu.cuMemAlloc(&small[0], SMALL));
    while (count < MOST && cu.cuMemAlloc(&large[count], SLAB) == CUDA_SUCCESS) {
        count++;
    }
    while (served <= IN_SLAB && cu.cuMemAlloc(&small[served], SMALL) == CUDA_SUCCESS) {
        served++;
    }
    note_peak();
    EXPECT(served == IN_SLAB);
    atomic_store(&refusals, 2);
    /* A freed slab is there for a large block again, and for small ones. */
    for (int i = 0; i < served; i++) {
        MUST(cu.cuMemFree(small[i]));
    }
    MUST(cu.cuMemAlloc(&large[count], SLAB));
    EXPECT(cu.cuMemAlloc(&small[0], SMALL) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cu.cuMemFree(large[count]));
    MUST(cu.cuMemAlloc(&small[0], SMALL));
    note_peak();
}

static void held(void)
{
    enum { MOST = 4096 };
    static CUdeviceptr blocks[MOST];
    size_t count = 0, total = 0, free_bytes = 0;
    MUST(cu.cuMemGetInfo(&free_bytes, &total));
    while (count < MOST && cu.cuMemAllocAsync(&blocks[count], MIB, NULL) == CUDA_SUCCESS) {
        count++;
    }
    note_peak();
    atomic_store(&refusals, 1);
    EXPECT(count == free_bytes / MIB);
    while (count > 0) {
        MUST(cu.cuMemFreeAsync(blocks[--count], NULL));
    }
}

int main(int argc, char **argv)
{
    size_t total = 0, free_bytes;
    EXPECT(argc >= 2);
    cu = driver_open();
    open_library();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuMemGetInfo(&free_bytes, &total));
    if (strcmp(argv[1], "race") == 0 && argc == 3) {
        first_seed = strtoull(argv[2], NULL, 10);
        race();
    } else if (strcmp(argv[1], "pools") == 0) {
        pools();
    } else if (strcmp(argv[1], "piece") == 0) {
        piece();
    } else if (strcmp(argv[1], "apart") == 0) {
        apart();
    } else if (strcmp(argv[1], "slab") == 0) {
        slab();
    } else if (strcmp(argv[1], "held") == 0) {
        held();
    } else if (strcmp(argv[1], "kept") == 0 && argc == 3) {
        kept(argv[2]);
    } else if (strcmp(argv[1], "graph") == 0 && argc == 4) {
        graph(strtoull(argv[2], NULL, 10) * MIB, strcmp(argv[3], "upload") == 0);
    } else if (strcmp(argv[1], "graph-room") == 0) {
        graph_room();
    } else if (strcmp(argv[1], "graph-trimmed") == 0) {
        graph_trimmed();
    } else if (strcmp(argv[1], "graph-again") == 0) {
        graph_again();
    } else if (strcmp(argv[1], "graph-later") == 0) {
        graph_later(argc == 3);
    } else if (strcmp(argv[1], "graph-asked") == 0) {
        graph_asked();
    } else if (strcmp(argv[1], "graph-uploaded") == 0) {
        graph_uploaded();
    } else if (strcmp(argv[1], "second-context") == 0 && argc == 3) {
        second_context(strcmp(argv[2], "served") == 0);
    } else {
        refuse();
    }
    (void)printf("{\"peak_bytes\": %llu, \"refusals\": %llu, \"total_bytes\": %zu}\n",
                 (unsigned long long)atomic_load(&peak_bytes),
                 (unsigned long long)atomic_load(&refusals), total);
    return 0;
}
