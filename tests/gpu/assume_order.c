/* SPDX-License-Identifier: Apache-2.0 */
/* What runs when: streams, events, captures, graphs. */
#include <stdatomic.h>
#include <unistd.h>

#include "tests/gpu/assume.h"

enum { LONG_NS = 20000000 };

static enum verdict events_are_not_ready(const struct gpu *gpu)
{
    CUstream stream;
    CUevent event;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    WORKS(cuEventQuery(event));
    WORKS(gpu_spin(gpu, LONG_NS, stream));
    WORKS(cuEventRecord(event, stream));
    GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    WORKS(cuEventSynchronize(event));
    WORKS(cuEventQuery(event));
    WORKS(cuEventDestroy(event));
    WORKS(cuStreamDestroy(stream));
    return HOLDS;
}

static atomic_int order;

static void first(void *unused)
{
    (void)unused;
    (void)usleep(LONG_NS / 1000);
    atomic_store(&order, 1);
}

static void second(void *seen)
{
    *(int *)seen = atomic_load(&order);
}

static enum verdict waits_are_kept(const struct gpu *gpu)
{
    CUstream streams[2];
    CUevent event;
    int seen = -1;
    (void)gpu;
    atomic_store(&order, 0);
    WORKS(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    WORKS(cuLaunchHostFunc(streams[0], first, NULL));
    WORKS(cuEventRecord(event, streams[0]));
    WORKS(cuStreamWaitEvent(streams[1], event, 0));
    WORKS(cuEventDestroy(event)); /* a destroyed event's record still counts */
    WORKS(cuLaunchHostFunc(streams[1], second, &seen));
    WORKS(cuStreamSynchronize(streams[1]));
    GIVES(seen, 1);
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamDestroy(streams[i]));
    }
    return HOLDS;
}

static enum verdict default_stream(const struct gpu *gpu)
{
    CUstream blocking;
    WORKS(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    WORKS(gpu_spin(gpu, LONG_NS, blocking));
    WORKS(gpu_spin(gpu, 1000, NULL));
    WORKS(cuStreamSynchronize(NULL));
    GIVES(cuStreamQuery(blocking), CUDA_SUCCESS);
    WORKS(cuStreamDestroy(blocking));
    return HOLDS;
}

/* Kernels, not host functions: those wait for each other. */
static enum verdict non_blocking_streams(const struct gpu *gpu)
{
    CUstream free;
    WORKS(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    WORKS(gpu_spin(gpu, LONG_NS, free));
    WORKS(gpu_spin(gpu, 1000, NULL));
    WORKS(cuStreamSynchronize(NULL));
    CUresult then = cuStreamQuery(free);
    WORKS(cuStreamSynchronize(free));
    WORKS(cuStreamDestroy(free));
    GIVES(then, CUDA_ERROR_NOT_READY);
    return HOLDS;
}

static atomic_int under_way;

static void be_alone(void *met)
{
    if (atomic_fetch_add(&under_way, 1) != 0) {
        *(int *)met = 1;
    }
    (void)usleep(2000);
    atomic_fetch_sub(&under_way, 1);
}

static enum verdict host_functions(const struct gpu *gpu)
{
    CUstream streams[2];
    int met = 0;
    (void)gpu;
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < 6; i++) {
        WORKS(cuLaunchHostFunc(streams[i % 2], be_alone, &met));
    }
    WORKS(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamDestroy(streams[i]));
    }
    GIVES(met, 0);
    return HOLDS;
}

static enum verdict destroyed_streams_finish(const struct gpu *gpu)
{
    CUstream stream;
    CUdeviceptr block;
    WORKS(cuMemAlloc(&block, 4 * MIB));
    WORKS(cuMemsetD8(block, 0, 4 * MIB));
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(gpu_spin(gpu, LONG_NS, stream));
    WORKS(gpu_fill(gpu, block, 4 * MIB, 6, stream));
    WORKS(cuStreamDestroy(stream));
    WORKS(cuCtxSynchronize());
    GIVES(gpu_mismatches(gpu, block, 4 * MIB, 6), 0);
    WORKS(cuMemFree(block));
    return HOLDS;
}

static enum verdict stream_numbers(const struct gpu *gpu)
{
    unsigned long long before = 0;
    (void)gpu;
    for (int i = 0; i < 50; i++) {
        CUstream stream;
        unsigned long long number = 0;
        WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        WORKS(cuStreamGetId(stream, &number));
        SO(number > before);
        before = number;
        WORKS(cuStreamDestroy(stream));
    }
    return HOLDS;
}

static enum verdict captured_allocations(const struct gpu *gpu)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr outside;
    CUdeviceptr inside;
    size_t nodes = 0;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuMemAlloc(&outside, MIB));
    WORKS(cuMemsetD8(outside, 0, MIB));
    WORKS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    WORKS(cuMemAllocAsync(&inside, MIB, stream));
    WORKS(gpu_fill(gpu, inside, MIB, 7, stream));
    WORKS(cuMemcpyDtoDAsync(outside, inside, MIB, stream));
    WORKS(cuMemFreeAsync(inside, stream));
    WORKS(cuStreamEndCapture(stream, &graph));
    WORKS(cuGraphGetNodes(graph, NULL, &nodes));
    GIVES(nodes, 4);
    WORKS(cuGraphInstantiateWithFlags(&exec, graph, 0));
    WORKS(cuGraphLaunch(exec, stream));
    WORKS(cuStreamSynchronize(stream));
    GIVES(gpu_mismatches(gpu, outside, MIB, 7), 0);
    WORKS(cuGraphExecDestroy(exec));
    WORKS(cuGraphDestroy(graph));
    WORKS(cuMemFree(outside));
    WORKS(cuStreamDestroy(stream));
    return HOLDS;
}

static enum verdict global_captures_bar(const struct gpu *gpu)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr block;
    (void)gpu;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult result = cuMemAlloc(&block, MIB);
    CUresult end = cuStreamEndCapture(stream, &graph);
    GIVES(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REFUSED(end);
    return HOLDS;
}

static enum verdict relaxed_captures_do_not(const struct gpu *gpu)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr block;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)gpu;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    WORKS(cuThreadExchangeStreamCaptureMode(&mode));
    WORKS(cuMemAlloc(&block, MIB));
    WORKS(cuMemFree(block));
    WORKS(cuThreadExchangeStreamCaptureMode(&mode));
    WORKS(cuStreamEndCapture(stream, &graph));
    WORKS(cuGraphDestroy(graph));
    WORKS(cuStreamDestroy(stream));
    return HOLDS;
}

static enum verdict synchronizing_ends_captures(const struct gpu *gpu)
{
    CUstream stream;
    CUgraph graph = NULL;
    (void)gpu;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    REFUSED(cuStreamSynchronize(stream));
    REFUSED(cuStreamEndCapture(stream, &graph));
    return HOLDS;
}

/* What another stream may take over is seen by its contents: each fill must be over when the next
 * begins. */
static enum verdict handed_on_in_order(const struct gpu *gpu)
{
    enum { STREAMS = 4, ROUNDS = 64 };
    CUstream streams[STREAMS];
    CUevent event;
    CUdeviceptr block;
    CUdeviceptr wrong;
    uint64_t count = 0;
    WORKS(cuMemAlloc(&block, 4 * MIB));
    WORKS(cuMemAlloc(&wrong, sizeof count));
    WORKS(cuMemsetD8(wrong, 0, sizeof count));
    WORKS(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < STREAMS; i++) {
        WORKS(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    WORKS(cuCtxSynchronize());
    for (unsigned round = 0; round < ROUNDS; round++) {
        CUstream stream = streams[round % STREAMS];
        WORKS(cuStreamWaitEvent(stream, event, 0));
        WORKS(gpu_fill(gpu, block, 4 * MIB, round, stream));
        WORKS(gpu_check(gpu, block, 4 * MIB, round, wrong, stream));
        WORKS(cuEventRecord(event, stream));
    }
    WORKS(cuCtxSynchronize());
    WORKS(cuMemcpyDtoH(&count, wrong, sizeof count));
    GIVES(count, 0);
    for (int i = 0; i < STREAMS; i++) {
        WORKS(cuStreamDestroy(streams[i]));
    }
    WORKS(cuEventDestroy(event));
    WORKS(cuMemFree(block));
    WORKS(cuMemFree(wrong));
    return HOLDS;
}

const struct assumption assume_order[] = {
    {"an event is not ready before its work is done", events_are_not_ready, false},
    {"a wait for an event holds, also when the event is destroyed", waits_are_kept, false},
    {"the default stream waits for blocking streams", default_stream, false},
    {"the default stream does not wait for non-blocking streams", non_blocking_streams, false},
    {"host functions of independent streams run one after the other", host_functions, false},
    {"a destroyed stream's work is done", destroyed_streams_finish, false},
    {"a stream's number is larger than those before", stream_numbers, false},
    {"an allocation on a capturing stream is a node of the graph", captured_allocations, false},
    {"relaxed threads allocate beside a global capture", relaxed_captures_do_not, false},
    {"memory goes from stream to stream behind an event", handed_on_in_order, false},
    {"a global capture bars cuMemAlloc and is ended by it", global_captures_bar, true},
    {"synchronizing a capturing stream ends the capture", synchronizing_ends_captures, true},
    {NULL, NULL, false},
};
