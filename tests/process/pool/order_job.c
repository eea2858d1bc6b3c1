/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim must wait for before it moves or hands out memory, one case a run: work of another
 * device, of streams that were destroyed, and work that takes long. And handles that are destroyed
 * while other threads make memshim use them.
 *
 * Arguments: the case, or "list" for the names of all; "old" for a driver that cannot record an
 * event for a whole context. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <cuda.h>

#include "cases.h"
#include "gate_entry.h"
#include "held_work.h"
#include "say.h"
#include "simgpu.h"

#define BLOCK_BYTES ((size_t)4 << 20)
#define LONG_NS     (60ull * 1000000000)

enum { LONG_WORK_MS = 11500, FILLING = 12 }; /* 52 MiB with the first block, in 48 */
enum { QUERIES_MOST = 16000, REQUESTS = 300 };
#define REQUEST_BYTES ((size_t)40 << 20)

static CUcontext context, other;
static CUstream stream;
static CUdeviceptr block;
static bool old;

static void begin(void)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    if (old) {
        gate_hide_context_events();
    }
    MUST(cuMemAlloc(&block, BLOCK_BYTES));
    MUST(cuMemsetD8(block, 1, BLOCK_BYTES));
}

/* ---- work that is held for a while */

/* A standstill of device 0 is had only once the work is over. */
static void halt_waits(void)
{
    MUST(gate_halt(0, LONG_NS));
    EXPECT(atomic_load(&released));
    gate_resume(0);
}

/* The block, freed while work that was queued before may still use it. */
static void reuse_waits(void)
{
    CUdeviceptr next;
    MUST(cuMemFree(block));
    MUST(cuMemAlloc(&next, BLOCK_BYTES));
    EXPECT(next != block || atomic_load(&released));
}

/* ---- work of another device, which has no peer access to this one */

static CUdeviceptr source;

static void begin_other(void)
{
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxSetCurrent(other));
    MUST(cuMemAlloc(&source, BLOCK_BYTES));
    MUST(cuMemsetD8(source, 2, BLOCK_BYTES));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static pthread_t copy_from_other(void)
{
    pthread_t thread;
    begin_other();
    thread = hold(stream);
    MUST(cuMemcpyPeerAsync(block, context, source, other, BLOCK_BYTES, stream));
    MUST(cuCtxSetCurrent(context));
    return thread;
}

static void peer_copy_halts(void)
{
    pthread_t thread = copy_from_other();
    halt_waits();
    MUST(pthread_join(thread, NULL));
}

static void peer_copy_reuse(void)
{
    pthread_t thread = copy_from_other();
    reuse_waits();
    MUST(pthread_join(thread, NULL));
}

/* The stream is of that device, the memory of this one; what follows on the stream finds it set. */
static pthread_t set_on_other(unsigned char **later)
{
    pthread_t thread;
    begin_other();
    MUST(cuMemAllocHost((void **)later, 1));
    thread = hold(stream);
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemsetD8Async(block, 2, BLOCK_BYTES, stream));
    MUST(cuMemcpyDtoHAsync(*later, block + BLOCK_BYTES - 1, 1, stream));
    EXPECT(!atomic_load(&released));
    return thread;
}

static void stream_set_halts(void)
{
    unsigned char *later;
    pthread_t thread = set_on_other(&later);
    halt_waits();
    MUST(cuStreamSynchronize(stream));
    EXPECT(*later == 2);
    MUST(pthread_join(thread, NULL));
}

static void stream_set_reuse(void)
{
    unsigned char *later;
    pthread_t thread = set_on_other(&later);
    reuse_waits();
    MUST(pthread_join(thread, NULL));
}

/* ---- work of a stream that was destroyed */

static pthread_t leave_work(void)
{
    pthread_t thread;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    thread = hold(stream);
    MUST(cuMemsetD8Async(block, 3, BLOCK_BYTES, stream));
    MUST(cuStreamDestroy(stream));
    return thread;
}

static void destroyed_halts(void)
{
    pthread_t thread = leave_work();
    halt_waits();
    MUST(pthread_join(thread, NULL));
}

static void destroyed_reuse(void)
{
    pthread_t thread = leave_work();
    reuse_waits();
    MUST(pthread_join(thread, NULL));
}

/* The stream begins to capture while its work is queued, and goes without an end of that. */
static pthread_t leave_capture(void)
{
    pthread_t thread;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    thread = hold(stream);
    MUST(cuMemsetD8Async(block, 3, BLOCK_BYTES, stream));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamDestroy(stream));
    return thread;
}

static void capturing_destroyed_halts(void)
{
    pthread_t thread = leave_capture();
    halt_waits();
    MUST(pthread_join(thread, NULL));
}

static void capturing_destroyed_reuse(void)
{
    pthread_t thread = leave_capture();
    reuse_waits();
    MUST(pthread_join(thread, NULL));
}

/* The same of a stream that came into the capture by an event of the other's. */
static pthread_t leave_fork_of_capture(void)
{
    pthread_t thread;
    CUstream origin;
    CUevent event;
    CUgraph graph;
    MUST(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    thread = hold(stream);
    MUST(cuMemsetD8Async(block, 3, BLOCK_BYTES, stream));
    MUST(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuEventRecord(event, origin));
    MUST(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT));
    MUST(cuStreamDestroy(stream));
    (void)cuStreamEndCapture(origin, &graph); /* invalidated or not */
    return thread;
}

static void capturing_fork_destroyed_halts(void)
{
    pthread_t thread = leave_fork_of_capture();
    halt_waits();
    MUST(pthread_join(thread, NULL));
}

static void capturing_fork_destroyed_reuse(void)
{
    pthread_t thread = leave_fork_of_capture();
    reuse_waits();
    MUST(pthread_join(thread, NULL));
}

/* ---- work of the default stream of a thread that has ended */

static void *queue_and_end(void *unused)
{
    MUST(cuCtxSetCurrent(context));
    stream = CU_STREAM_PER_THREAD;
    MUST(cuLaunchHostFunc(stream, until_released, NULL));
    MUST(cuMemsetD8Async(block, 3, BLOCK_BYTES, stream));
    return unused;
}

static void *queue_free_and_end(void *unused)
{
    (void)queue_and_end(unused);
    MUST(cuMemFreeAsync(block, CU_STREAM_PER_THREAD));
    return unused;
}

static pthread_t leave_thread(void *(*function)(void *))
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, function, NULL));
    MUST(pthread_join(thread, NULL));
    MUST(pthread_create(&thread, NULL, release, NULL));
    return thread;
}

static void ended_thread_halts(void)
{
    pthread_t thread = leave_thread(queue_and_end);
    halt_waits();
    MUST(pthread_join(thread, NULL));
}

static void ended_thread_reuse(void)
{
    pthread_t thread = leave_thread(queue_and_end);
    reuse_waits();
    MUST(pthread_join(thread, NULL));
}

/* Freed in the order of that stream. Nobody waits for it: the device may. */
static void ended_thread_freed(void)
{
    CUdeviceptr next;
    CUstream own;
    MUST(cuMemFree(block));
    MUST(cuMemAllocAsync(&block, BLOCK_BYTES, NULL));
    MUST(cuStreamSynchronize(NULL));
    pthread_t thread = leave_thread(queue_free_and_end);
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < FILLING; i++) {
        MUST(cuMemAllocAsync(&next, BLOCK_BYTES, own));
        EXPECT(next != block || atomic_load(&released));
    }
    MUST(pthread_join(thread, NULL));
}

/* ---- work that takes long */

/* There is room only once what is used by work has moved to the host (MEMSHIM_LIMIT). */
static void long_work(void)
{
    pthread_t thread;
    CUdeviceptr next;
    hold_ms = LONG_WORK_MS;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    thread = hold(stream);
    MUST(cuMemsetD8Async(block, 4, BLOCK_BYTES, stream));
    for (int i = 0; i < FILLING; i++) {
        MUST(cuMemAlloc(&next, BLOCK_BYTES));
    }
    EXPECT(atomic_load(&released));
    MUST(pthread_join(thread, NULL));
}

/* How long a standstill is tried counts in what it asks the driver meanwhile, at most every 50 us.
 * MEMSHIM_WAIT_MS=0. */
static void endless_work(void)
{
    CUdeviceptr next;
    CUresult result = CUDA_SUCCESS;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchHostFunc(stream, until_released, NULL));
    MUST(cuMemsetD8Async(block, 4, BLOCK_BYTES, stream));
    const uint64_t before = simgpu_calls("cuStreamQuery");
    for (int i = 0; i < FILLING && result == CUDA_SUCCESS; i++) {
        result = cuMemAlloc(&next, BLOCK_BYTES);
    }
    const uint64_t queries = simgpu_calls("cuStreamQuery") - before;
    atomic_store(&released, true);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(queries < QUERIES_MOST);
    MUST(cuStreamSynchronize(stream));
}

/* ---- handles that go while memshim uses them: the simulated GPU ends the program where a
 * destroyed one is used */

enum { GOERS = 3, HALTS = 30 };
static atomic_bool enough;

static void *streams_go(void *unused)
{
    CUdeviceptr own;
    CUstream mine;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&own, BLOCK_BYTES));
    while (!atomic_load(&enough)) {
        MUST(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
        MUST(cuMemsetD8Async(own, 1, BLOCK_BYTES, mine));
        MUST(cuStreamDestroy(mine));
    }
    return unused;
}

static void *contexts_go(void *unused)
{
    CUcontext mine;
    CUdeviceptr own;
    while (!atomic_load(&enough)) {
        MUST(cuCtxCreate(&mine, NULL, 0, 0));
        MUST(cuMemAlloc(&own, BLOCK_BYTES));
        MUST(cuMemsetD8Async(own, 1, BLOCK_BYTES, NULL));
        MUST(cuCtxDestroy(mine));
    }
    return unused;
}

/* Primary contexts are released over and over by libraries that retained them. */
static void *retains_go(void *unused)
{
    CUcontext same;
    while (!atomic_load(&enough)) {
        MUST(cuDevicePrimaryCtxRetain(&same, 0));
        EXPECT(same == context);
        MUST(cuDevicePrimaryCtxRelease(0));
    }
    return unused;
}

/* Standstills, copies and marks of the device, all the while. */
static void go(void *(*function)(void *))
{
    pthread_t threads[GOERS];
    CUdeviceptr copy;
    MUST(cuMemAlloc(&copy, BLOCK_BYTES));
    for (int i = 0; i < GOERS; i++) {
        MUST(pthread_create(&threads[i], NULL, function, NULL));
    }
    for (int i = 0; i < HALTS; i++) {
        CUdeviceptr next;
        MUST(gate_halt(0, LONG_NS));
        MUST(gate_copy(0, copy, block, BLOCK_BYTES));
        MUST(gate_copy_wait(0, 0));
        gate_resume(0);
        MUST(cuMemAlloc(&next, BLOCK_BYTES * 2));
        MUST(cuMemFree(next));
        nap_ms(1);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < GOERS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
}

static void going_streams(void)
{
    go(streams_go);
}

static void going_contexts(void)
{
    go(contexts_go);
}

static void *contexts_come_and_go(void *unused)
{
    CUcontext mine;
    while (!atomic_load(&enough)) {
        const CUresult result = cuCtxCreate(&mine, NULL, 0, 0);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        if (result == CUDA_SUCCESS) {
            MUST(cuCtxDestroy(mine));
        }
    }
    return unused;
}

/* Whether there is room changes all the time: what is refused is refused for want of it. */
static void refused_beside_contexts(void)
{
    pthread_t threads[GOERS];
    CUdeviceptr at;
    int refused = 0;
    for (int i = 0; i < GOERS; i++) {
        MUST(pthread_create(&threads[i], NULL, contexts_come_and_go, NULL));
    }
    for (int i = 0; i < REQUESTS; i++) {
        const CUresult result = cuMemAlloc(&at, REQUEST_BYTES);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        refused += result == CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            MUST(cuMemFree(at));
        }
    }
    atomic_store(&enough, true);
    for (int i = 0; i < GOERS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    (void)printf("%d refused\n", refused);
}

static void going_retains(void)
{
    go(retains_go);
}

enum { ROUTED_BYTES = 4096, ROUTED = 2000 };

static void *other_contexts_go(void *unused)
{
    CUcontext mine;
    while (!atomic_load(&enough)) {
        MUST(cuCtxCreate(&mine, NULL, 0, 1));
        MUST(cuCtxDestroy(mine));
    }
    return unused;
}

/* The first context of the device is the one that memshim names, while there is no primary one. */
static void going_routes(void)
{
    pthread_t thread;
    CUcontext going;
    MUST(cuCtxCreate(&going, NULL, 0, 1));
    MUST(cuCtxCreate(&other, NULL, 0, 1));
    MUST(cuMemAlloc(&source, BLOCK_BYTES));
    MUST(cuMemsetD8(source, 2, BLOCK_BYTES));
    MUST(cuCtxDestroy(going));
    MUST(cuCtxSetCurrent(context));
    MUST(pthread_create(&thread, NULL, other_contexts_go, NULL));
    for (int i = 0; i < ROUTED; i++) {
        MUST(cuMemcpy(block, source, ROUTED_BYTES));
    }
    atomic_store(&enough, true);
    MUST(pthread_join(thread, NULL));
}

/* ---- memory pools that are destroyed while memshim asks for the current one */

enum { POOL_LOOKS = 1000 };

static CUmemoryPool new_pool(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    MUST(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void *currents_go(void *unused)
{
    while (!atomic_load(&enough)) {
        CUmemoryPool mine = new_pool();
        MUST(cuDeviceSetMemPool(0, mine));
        MUST(cuMemPoolDestroy(mine));
    }
    return unused;
}

/* The device's default pool is its current one whenever none of the others is (cuda.h,
 * cuMemPoolDestroy), and in the end: memory comes from memshim's pool then. */
static void going_currents(void)
{
    pthread_t thread;
    CUdeviceptr next;
    MUST(pthread_create(&thread, NULL, currents_go, NULL));
    uint64_t before = simgpu_calls("cuMemAllocAsync");
    while (simgpu_calls("cuDeviceGetMemPool") < POOL_LOOKS) {
        MUST(cuMemAllocAsync(&next, BLOCK_BYTES, NULL));
        MUST(cuMemFreeAsync(next, NULL));
    }
    atomic_store(&enough, true);
    MUST(pthread_join(thread, NULL));
    MUST(cuMemAllocAsync(&next, BLOCK_BYTES, NULL));
    EXPECT(simgpu_calls("cuMemAllocAsync") == before);
}

/* ---- two devices are given access to a third at the same time */

enum { PEERS = 2, TARGET = PEERS, PEER_ROUNDS = 6000 };

static CUcontext peer_contexts[PEERS + 1];
static pthread_barrier_t peers_meet;

static void *peer_comes_and_goes(void *own)
{
    MUST(cuCtxSetCurrent(*(CUcontext *)own));
    for (int round = 0; round < PEER_ROUNDS; round++) {
        pthread_barrier_wait(&peers_meet);
        MUST(cuCtxEnablePeerAccess(peer_contexts[TARGET], 0));
        pthread_barrier_wait(&peers_meet);
        EXPECT(gate_access_mask(TARGET) == (1 << PEERS) - 1);
        pthread_barrier_wait(&peers_meet);
        MUST(cuCtxDisablePeerAccess(peer_contexts[TARGET]));
        pthread_barrier_wait(&peers_meet);
        EXPECT(gate_access_mask(TARGET) == 0);
    }
    return NULL;
}

static void peers_at_once(void)
{
    pthread_t threads[PEERS];
    MUST(pthread_barrier_init(&peers_meet, NULL, PEERS));
    for (int i = 0; i <= PEERS; i++) {
        MUST(cuDevicePrimaryCtxRetain(&peer_contexts[i], i));
        MUST(cuCtxSetCurrent(peer_contexts[i]));
        MUST(cuMemAlloc(&source, BLOCK_BYTES));
    }
    for (int i = 0; i < PEERS; i++) {
        MUST(pthread_create(&threads[i], NULL, peer_comes_and_goes, &peer_contexts[i]));
    }
    for (int i = 0; i < PEERS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
}

/* ---- a copy between devices while a stream captures */

/* It asks the driver whether it is allowed. What is asked with belongs to the context that is
 * current, not to the one that the copy names: later fences of that one use it no more. */
static void routed_beside_capture(void)
{
    CUstream capturing;
    CUgraph graph;
    begin_other();
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemcpy(source, block, BLOCK_BYTES));
    MUST(cuStreamEndCapture(capturing, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuCtxSetCurrent(other));
    pthread_t thread = hold(stream);
    MUST(cuMemsetD8Async(source, 3, BLOCK_BYTES, stream));
    MUST(cuMemFree(source));
    EXPECT(atomic_load(&released));
    MUST(pthread_join(thread, NULL));
}

/* ---- copies on a stream of another device while memory moves (MEMSHIM_LIMIT) */

enum { MOVES = 30, KEPT = 14 };

static void *copies_by_detour(void *unused)
{
    unsigned char *host;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAllocHost((void **)&host, BLOCK_BYTES));
    while (!atomic_load(&enough)) {
        MUST(cuMemcpyAsync(block, (CUdeviceptr)(uintptr_t)host, BLOCK_BYTES, stream));
        MUST(cuStreamSynchronize(stream));
    }
    return unused;
}

/* What such a copy leaves behind waits for whoever changes backing, who waits for the gate. */
static void detours_beside_moves(void)
{
    CUdeviceptr kept[KEPT] = {0};
    pthread_t thread;
    begin_other();
    MUST(cuCtxSetCurrent(context));
    MUST(pthread_create(&thread, NULL, copies_by_detour, NULL));
    for (int i = 0; i < MOVES; i++) {
        if (kept[i % KEPT] != 0) {
            MUST(cuMemFree(kept[i % KEPT]));
        }
        MUST(cuMemAlloc(&kept[i % KEPT], BLOCK_BYTES));
        MUST(cuMemsetD8(kept[i % KEPT], 1, BLOCK_BYTES));
    }
    atomic_store(&enough, true);
    MUST(pthread_join(thread, NULL));
}

/* ---- two threads begin to capture, each its own stream, beside a third capture */

static _Thread_local bool gives_way;
static atomic_bool passed, begun;

static void give_way(void)
{
    if (gives_way) {
        gives_way = false;
        atomic_store(&passed, true);
        while (!atomic_load(&begun)) {
            nap_ms(1);
        }
    }
}

static void *capture_beside(void *mine)
{
    CUgraph graph;
    MUST(cuCtxSetCurrent(context));
    gives_way = true;
    MUST(cuStreamBeginCapture(mine, CU_STREAM_CAPTURE_MODE_RELAXED));
    atomic_store(&passed, true);
    MUST(cuStreamEndCapture(mine, &graph));
    MUST(cuGraphDestroy(graph));
    return NULL;
}

/* What a stream has queued is handed to an heir before captures. In the midst of a capture of the
 * stream that would draw the heir into it, and the next stream that hands over would end it. */
static void captures_at_once(void)
{
    CUstream third, second, going;
    CUgraph graph;
    pthread_t thread;
    MUST(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&going, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    hold_ms = 3000;
    pthread_t holding = hold(stream);
    MUST(cuMemsetD8Async(block, 2, BLOCK_BYTES, stream));
    MUST(cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_RELAXED));
    gate_before_events(give_way);
    MUST(pthread_create(&thread, NULL, capture_beside, second));
    while (!atomic_load(&passed)) {
        nap_ms(1);
    }
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(block, 3, BLOCK_BYTES, stream));
    atomic_store(&begun, true);
    MUST(pthread_join(thread, NULL));
    MUST(cuLaunchHostFunc(going, until_released, NULL));
    MUST(cuStreamDestroy(going));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamEndCapture(third, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(pthread_join(holding, NULL));
}

/* ---- several threads launch graphs that allocate, and give the driver's memory back */

enum { LAUNCHERS = 3, LAUNCHES = 400 };

static void *launches_and_trims(void *unused)
{
    CUstream mine;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr piece;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(mine, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST(cuMemAllocAsync(&piece, BLOCK_BYTES, mine));
    MUST(cuMemsetD8Async(piece, 1, BLOCK_BYTES, mine));
    MUST(cuMemFreeAsync(piece, mine));
    MUST(cuStreamEndCapture(mine, &graph));
    for (int i = 0; i < LAUNCHES; i++) {
        MUST(cuGraphInstantiate(&exec, graph, 0)); /* a first launch is measured */
        MUST(cuGraphLaunch(exec, mine));
        MUST(cuStreamSynchronize(mine));
        MUST(cuDeviceGraphMemTrim(0));
        MUST(cuGraphExecDestroy(exec));
    }
    MUST(cuGraphDestroy(graph));
    return unused;
}

/* What one thread's launch took never counts as the context's, though another thread measured
 * meanwhile: in the end all is free again. */
static void graphs_at_once(void)
{
    pthread_t threads[LAUNCHERS];
    size_t before, after, total;
    MUST(cuMemGetInfo(&before, &total));
    for (int i = 0; i < LAUNCHERS; i++) {
        MUST(pthread_create(&threads[i], NULL, launches_and_trims, NULL));
    }
    for (int i = 0; i < LAUNCHERS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    MUST(cuDeviceGraphMemTrim(0));
    MUST(cuMemGetInfo(&after, &total));
    EXPECT(after == before);
}

/* ---- many streams, and no host memory for a list of them */

enum { MANY_STREAMS = 100 };

extern void *__libc_calloc(size_t count, size_t bytes);

static _Thread_local bool no_lists; /* of this many, in this thread */

__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    return no_lists && count >= MANY_STREAMS ? NULL : __libc_calloc(count, bytes);
}

/* The call fails, and can be made again. */
static void many_streams(void)
{
    CUstream each;
    CUdeviceptr piece;
    for (int i = 0; i < MANY_STREAMS; i++) {
        MUST(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
        MUST(cuMemAllocAsync(&piece, BLOCK_BYTES, each));
        MUST(cuMemFreeAsync(piece, each));
    }
    no_lists = true;
    EXPECT(cuMemFree(block) == CUDA_ERROR_OUT_OF_MEMORY);
    no_lists = false;
    MUST(cuMemFree(block));
}

/* ---- streams of contexts that come and go */

enum { COMING = 200, STREAMS_EACH = 8 };
#define KEPT_PAGES ((size_t)4096) /* 16 MiB */

static size_t data_pages(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    EXPECT(file != NULL && fscanf(file, "%*u %*u %*u %*u %*u %zu", &pages) == 1);
    (void)fclose(file);
    return pages;
}

static void come_and_go(int times)
{
    for (int i = 0; i < times; i++) {
        CUcontext made;
        CUstream streams[STREAMS_EACH];
        CUdeviceptr piece;
        MUST(cuCtxCreate(&made, NULL, 0, 0));
        for (int k = 0; k < STREAMS_EACH; k++) {
            MUST(cuStreamCreate(&streams[k], CU_STREAM_NON_BLOCKING));
            MUST(cuMemAllocAsync(&piece, BLOCK_BYTES, streams[k]));
            MUST(cuMemFreeAsync(piece, streams[k]));
        }
        MUST(cuCtxDestroy(made));
    }
}

/* What is known of the streams goes with them. */
static void streams_of_gone_contexts(void)
{
    come_and_go(COMING / 10);
    const size_t before = data_pages();
    come_and_go(COMING);
    EXPECT(data_pages() < before + KEPT_PAGES);
}

/* ---- a context that cannot be made current for once */

enum { REFUSED_TRIES = 40, MOST_NAPS = 5000 };

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

/* An event that was made in the wrong context is of no use to any fence: it is not kept for the
 * next one, and so what is done is seen to be done. */
static void push_is_refused_once(void)
{
    CUdeviceptr next;
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    for (unsigned nth = 1; nth <= REFUSED_TRIES; nth++) {
        MUST(cuCtxSetCurrent(context));
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        MUST(cuMemAllocAsync(&next, BLOCK_BYTES, stream));
        MUST(cuCtxSetCurrent(other));
        MUST(simgpu_fail("cuCtxPushCurrent", nth, CUDA_ERROR_UNKNOWN));
        MUST(cuMemFreeAsync(next, stream));
        MUST(cuMemPoolTrimTo(default_pool(), 0));
        MUST(cuStreamDestroy(stream));
        simgpu_fail_clear();
        MUST(cuCtxSetCurrent(context));
        for (int naps = 0; naps < MOST_NAPS && gate_pending_bytes(0) != 0; naps++) {
            nap_ms(1);
            MUST(cuMemPoolTrimTo(default_pool(), 0));
        }
        EXPECT(gate_pending_bytes(0) == 0);
    }
}

/* ---- main */

#define CASES(X)                      \
    X(peer_copy_halts)                \
    X(peer_copy_reuse)                \
    X(stream_set_halts)               \
    X(stream_set_reuse)               \
    X(destroyed_halts)                \
    X(destroyed_reuse)                \
    X(capturing_destroyed_halts)      \
    X(capturing_destroyed_reuse)      \
    X(capturing_fork_destroyed_halts) \
    X(capturing_fork_destroyed_reuse) \
    X(ended_thread_halts)             \
    X(ended_thread_reuse)             \
    X(ended_thread_freed)             \
    X(long_work)                      \
    X(endless_work)                   \
    X(going_streams)                  \
    X(going_contexts)                 \
    X(going_retains)                  \
    X(refused_beside_contexts)        \
    X(going_currents)                 \
    X(going_routes)                   \
    X(peers_at_once)                  \
    X(routed_beside_capture)          \
    X(detours_beside_moves)           \
    X(captures_at_once)               \
    X(graphs_at_once)                 \
    X(many_streams)                   \
    X(streams_of_gone_contexts)       \
    X(push_is_refused_once)

static const struct test_case cases[] = {
#define CASE(name) {#name, name},
    CASES(CASE)};

int main(int argc, char **argv)
{
    old = argc > 2 && strcmp(argv[2], "old") == 0;
    return run_case(argc, argv, cases, sizeof cases / sizeof *cases, begin);
}
