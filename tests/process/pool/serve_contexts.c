/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of serve_job about contexts and streams: those that go, that come for every request,
 * that capture. */
#include <malloc.h>
#include <pthread.h>

#include "serve_job.h"

enum { CONTEXT_STEPS = 10000, CONTEXT_ROUNDS = 100 };

void reset(void)
{
    CUdeviceptr block;
    CUdeviceptr ordered;
    size_t before = free_bytes();
    MUST(cuMemAlloc(&block, 100 * MIB));
    MUST(cuMemAllocAsync(&ordered, 50 * MIB, NULL));
    MUST(cuMemsetD8Async(ordered, 1, 50 * MIB, NULL));
    MUST(cuDevicePrimaryCtxReset(device));
    EXPECT(simgpu_live("chunk") == 0);
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    EXPECT(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(free_bytes() == before);
    MUST(cuMemAlloc(&block, 100 * MIB));
    MUST(cuMemsetD8(block, 7, 100 * MIB));
    MUST(cuMemFree(block));
    settle();
    EXPECT(free_bytes() == before);
}

static CUcontext new_context(void)
{
    CUcontext made;
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&made, NULL, 0, device));
#else
    MUST(cuCtxCreate(&made, 0, device));
#endif
    return made;
}

/* cuda.h, cuCtxDestroy: what cuMemAlloc gave goes with the context, what was stream-ordered stays.
 */
void destroyed_context(void)
{
    CUdeviceptr kept;
    CUdeviceptr gone;
    CUdeviceptr ordered;
    CUstream stream;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&kept, 8 * MIB));
    MUST(cuMemsetD8(kept, 3, 8 * MIB));
    size_t before = free_bytes();
    CUcontext second = new_context();
    EXPECT(free_bytes() < before); /* a context costs something */
    MUST(cuMemAlloc(&gone, 64 * MIB));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocAsync(&ordered, 4 * MIB, stream));
    MUST(cuMemsetD8Async(ordered, 5, 4 * MIB, stream));
    MUST(cuCtxDestroy(second));
    MUST(cuCtxSetCurrent(context));
    EXPECT(cuMemFree(gone) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemcpyDtoH(&byte, ordered + 4 * MIB - 1, 1));
    EXPECT(byte == 5);
    MUST(cuMemcpyDtoH(&byte, kept, 1));
    EXPECT(byte == 3);
    MUST(cuMemFreeAsync(ordered, NULL));
    settle();
    EXPECT(free_bytes() == before);
    MUST(cuMemFree(kept));
}

/* What outlives a context and was freed behind its work is as safe as ever. */
static void use_and_destroy(CUcontext made, unsigned char value)
{
    CUstream stream = value % 2 ? CU_STREAM_PER_THREAD : NULL;
    CUdeviceptr at;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&at, MIB));
    MUST(cuMemAllocAsync(&at, MIB, stream));
    MUST(cuMemsetD8Async(at, value, MIB, stream));
    MUST(cuMemFreeAsync(at, stream));
    MUST(cuCtxPopCurrent(&made));
    MUST(cuMemAlloc(&at, MIB));
    MUST(cuMemsetD8(at, 1, MIB));
    MUST(cuCtxDestroy(made));
    MUST(cuMemcpyDtoH(&byte, at, 1));
    EXPECT(byte == 1);
    MUST(cuMemFree(at));
}

/* A context for every request: nothing is kept of those that are destroyed. */
void many_contexts(void)
{
    size_t before = 0;
    size_t used = free_bytes();
    for (int i = 0; i < CONTEXT_STEPS; i++) {
        CUcontext made = new_context();
        if (i % 16 < 2) {
            use_and_destroy(made, (unsigned char)i);
        } else {
            MUST(cuCtxDestroy(made));
        }
        before = i == CONTEXT_STEPS / 2 ? mallinfo2().uordblks : before;
    }
    EXPECT(mallinfo2().uordblks < before + (size_t)CONTEXT_STEPS * 16);
    settle();
    EXPECT(free_bytes() == used);
}

static void *use_contexts(void *value)
{
    for (int round = 0; round < CONTEXT_ROUNDS; round++) {
        CUcontext made;
        MUST(cuCtxSetCurrent(context));
        made = new_context();
        use_and_destroy(made, (unsigned char)(uintptr_t)value);
    }
    return NULL;
}

/* A free waits for the work of all contexts of the device, those that others destroy among them. */
void contexts_at_once(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    size_t before = free_bytes();
    for (uintptr_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, use_contexts, (void *)i));
    }
    for (size_t i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    settle();
    EXPECT(free_bytes() == before);
}

static pthread_barrier_t all_there;

static void *retain_primary(void *unused)
{
    CUcontext primary = NULL;
    CUdeviceptr at;
    (void)pthread_barrier_wait(&all_there);
    MUST(cuDevicePrimaryCtxRetain(&primary, device));
    EXPECT(primary == context); /* its handle is used again */
    MUST(cuCtxSetCurrent(primary));
    MUST(cuMemAlloc(&at, MIB));
    MUST(cuMemFree(at));
    (void)pthread_barrier_wait(&all_there);
    MUST(cuDevicePrimaryCtxRelease(device));
    return unused;
}

/* Whoever is first makes it, and room is needed for one. */
void primary_at_once(void)
{
    enum { THREADS = 8, ROUNDS = 5 };
    pthread_t threads[THREADS];
    MUST(cuDevicePrimaryCtxRelease(device));
    MUST(pthread_barrier_init(&all_there, NULL, THREADS));
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < THREADS; i++) {
            MUST(pthread_create(&threads[i], NULL, retain_primary, NULL));
        }
        for (size_t i = 0; i < THREADS; i++) {
            MUST(pthread_join(threads[i], NULL));
        }
    }
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    settle();
}

/* A stream's handle is used again by the driver; its order is not. */
void reused_handle(void)
{
    unsigned char *host = malloc(MIB);
    simgpu_set_delay(2000, 2000);
    for (unsigned round = 1; round < 40; round++) {
        CUstream stream;
        CUdeviceptr at;
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        MUST(cuMemAllocAsync(&at, MIB, stream));
        MUST(cuMemsetD8Async(at, (unsigned char)round, MIB, stream));
        MUST(cuMemcpyDtoHAsync(host, at, MIB, stream));
        if (round % 2) {
            MUST(cuMemFreeAsync(at, stream));
            MUST(cuStreamDestroy(stream));
        } else {
            MUST(cuMemFree(at));
            MUST(cuStreamSynchronize(stream));
            EXPECT(host[0] == round && host[MIB - 1] == round);
            MUST(cuStreamDestroy(stream));
        }
    }
    MUST(cuCtxSynchronize());
    free(host);
}

void capture(void)
{
    CUstream stream;
    CUstream other;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr node;
    CUdeviceptr block;
    CUdeviceptr freed;
    CUstreamCaptureStatus status;
    size_t nodes = 0;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocAsync(&freed, 8 * MIB, other));
    MUST(cuMemsetD8Async(freed, 1, 8 * MIB, other));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemAllocAsync(&node, MIB, stream)); /* a graph node */
    MUST(cuMemsetD8Async(node, 4, MIB, stream));
    MUST(cuMemAlloc(&block, 32 * MIB)); /* the pool grows beside the capture */
    MUST(cuMemFree(block));
    MUST(cuMemFreeAsync(freed, other)); /* not this capture's stream */
    MUST(cuMemAlloc(&block, 4 * MIB));
    MUST(cuMemFreeAsync(node, stream));
    MUST(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 3);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree(block));
    /* A global capture bars unsafe calls on every thread that is not in relaxed mode, as PyTorch's
     * is when it allocates: memshim's own must not harm it. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuMemAlloc(&block, 64 * MIB));
    MUST(cuMemFree(block));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemAlloc(&block, 64 * MIB));
    MUST(cuMemFree(block));
    settle();
    EXPECT(cuStreamQuery(stream) == CUDA_SUCCESS);
}
