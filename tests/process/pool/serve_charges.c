/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of serve_job about what is charged: the program's own chunks, what is loaded late,
 * memory of graphs; the cap before threads that compete for it, and before driver calls that fail.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "serve_job.h"

static void give_access(CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(at, bytes, &access, 1));
}

/* Charged from creation until released and unmapped everywhere. */
void vmm(void)
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
void vmm_cap(void)
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
void told_free(void)
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
void loaded_late(void)
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
void graph_memory(void)
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

/* --- every driver call fails once --- */

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

void injected(void)
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

/* --- threads against the cap (MEMSHIM_LIMIT=256MiB) --- */

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

void race(void)
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
