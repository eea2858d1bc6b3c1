/* SPDX-License-Identifier: Apache-2.0 */
/* Each copy and memset that names no stream, into a block with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS and
 * into one without: whether its work is done when it returns, a line for each. Its stream is busy
 * when it is called: for a while where the call is to wait, and else until after its return. */
#include <cuda.h>
#include <semaphore.h>
#include <stdbool.h>
#include <time.h>

#include "say.h"

#define BLOCK (6 * MIB)
#define WORDS (BLOCK / 4)

/* What programs are given that are compiled for each thread's own default stream. */
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy);
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes);
CUresult cuMemsetD32_v2_ptds(CUdeviceptr to, unsigned value, size_t count);

static CUcontext context;
static CUdeviceptr other; /* never marked */

static CUDA_MEMCPY2D rows(CUdeviceptr to)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = other,
                           .srcPitch = KIB,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = KIB,
                           .WidthInBytes = KIB,
                           .Height = KIB};
}

static CUDA_MEMCPY3D box(CUdeviceptr to)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = other,
                           .srcPitch = KIB,
                           .srcHeight = KIB,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = to,
                           .dstPitch = KIB,
                           .dstHeight = KIB,
                           .WidthInBytes = KIB,
                           .Height = KIB,
                           .Depth = 2};
}

static CUresult copy(CUdeviceptr at)
{
    return cuMemcpy(at, other, BLOCK);
}

static CUresult copy_from(CUdeviceptr at)
{
    return cuMemcpy(other, at, BLOCK);
}

static CUresult copy_of_device(CUdeviceptr at)
{
    return cuMemcpyDtoD(at, other, BLOCK);
}

static CUresult copy_of_rows(CUdeviceptr at)
{
    const CUDA_MEMCPY2D copy = rows(at);
    return cuMemcpy2D(&copy);
}

static CUresult copy_of_unaligned_rows(CUdeviceptr at)
{
    const CUDA_MEMCPY2D copy = rows(at);
    return cuMemcpy2DUnaligned(&copy);
}

static CUresult copy_of_box(CUdeviceptr at)
{
    const CUDA_MEMCPY3D copy = box(at);
    return cuMemcpy3D(&copy);
}

static CUresult peer_copy(CUdeviceptr at)
{
    return cuMemcpyPeer(at, context, other, context, BLOCK);
}

static CUresult peer_copy_of_box(CUdeviceptr at)
{
    const CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .srcDevice = other,
                                     .srcContext = context,
                                     .srcPitch = KIB,
                                     .srcHeight = KIB,
                                     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                     .dstDevice = at,
                                     .dstContext = context,
                                     .dstPitch = KIB,
                                     .dstHeight = KIB,
                                     .WidthInBytes = KIB,
                                     .Height = KIB,
                                     .Depth = 2};
    return cuMemcpy3DPeer(&copy);
}

static CUresult set_bytes(CUdeviceptr at)
{
    return cuMemsetD8(at, 1, BLOCK);
}

static CUresult set_halves(CUdeviceptr at)
{
    return cuMemsetD16(at, 1, BLOCK / 2);
}

static CUresult set_words(CUdeviceptr at)
{
    return cuMemsetD32(at, 1, WORDS);
}

static CUresult set_rows(CUdeviceptr at)
{
    return cuMemsetD2D8(at, 2 * KIB, 1, KIB, KIB);
}

static CUresult set_rows_of_words(CUdeviceptr at)
{
    return cuMemsetD2D32(at, 2 * KIB, 1, KIB / 4, KIB);
}

static CUresult thread_copy(CUdeviceptr at)
{
    return cuMemcpy_ptds(at, other, BLOCK);
}

static CUresult thread_copy_of_device(CUdeviceptr at)
{
    return cuMemcpyDtoD_v2_ptds(at, other, BLOCK);
}

static CUresult thread_copy_of_rows(CUdeviceptr at)
{
    const CUDA_MEMCPY2D copy = rows(at);
    return cuMemcpy2D_v2_ptds(&copy);
}

static CUresult thread_copy_of_box(CUdeviceptr at)
{
    const CUDA_MEMCPY3D copy = box(at);
    return cuMemcpy3D_v2_ptds(&copy);
}

static CUresult thread_peer_copy(CUdeviceptr at)
{
    return cuMemcpyPeer_ptds(at, context, other, context, BLOCK);
}

static CUresult thread_set(CUdeviceptr at)
{
    return cuMemsetD32_v2_ptds(at, 1, WORDS);
}

static CUresult queued_set(CUdeviceptr at)
{
    return cuMemsetD32Async(at, 1, WORDS, CU_STREAM_LEGACY);
}

static const struct {
    const char *name;
    CUresult (*queue)(CUdeviceptr at);
    CUstream stream;
} calls[] = {
    {"copy", copy, CU_STREAM_LEGACY},
    {"copy from it", copy_from, CU_STREAM_LEGACY},
    {"copy from device to device", copy_of_device, CU_STREAM_LEGACY},
    {"copy of rows", copy_of_rows, CU_STREAM_LEGACY},
    {"copy of unaligned rows", copy_of_unaligned_rows, CU_STREAM_LEGACY},
    {"copy of a box", copy_of_box, CU_STREAM_LEGACY},
    {"peer copy", peer_copy, CU_STREAM_LEGACY},
    {"peer copy of a box", peer_copy_of_box, CU_STREAM_LEGACY},
    {"set of bytes", set_bytes, CU_STREAM_LEGACY},
    {"set of halves", set_halves, CU_STREAM_LEGACY},
    {"set of words", set_words, CU_STREAM_LEGACY},
    {"set of rows", set_rows, CU_STREAM_LEGACY},
    {"set of rows of words", set_rows_of_words, CU_STREAM_LEGACY},
    {"the thread's copy", thread_copy, CU_STREAM_PER_THREAD},
    {"the thread's copy from device to device", thread_copy_of_device, CU_STREAM_PER_THREAD},
    {"the thread's copy of rows", thread_copy_of_rows, CU_STREAM_PER_THREAD},
    {"the thread's copy of a box", thread_copy_of_box, CU_STREAM_PER_THREAD},
    {"the thread's peer copy", thread_peer_copy, CU_STREAM_PER_THREAD},
    {"the thread's set", thread_set, CU_STREAM_PER_THREAD},
    {"set that names its stream", queued_set, CU_STREAM_LEGACY}};

static bool is_done(CUstream stream)
{
    CUresult result = cuStreamQuery(stream);
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    return result == CUDA_SUCCESS;
}

static void set_attribute(CUdeviceptr at, unsigned on)
{
    unsigned read = 2;
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    MUST(cuPointerGetAttribute(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at + BLOCK / 2));
    EXPECT(read == on);
}

static sem_t returned;

static void CUDA_CB wait_for_return(void *unused)
{
    (void)unused;
    EXPECT(sem_wait(&returned) == 0);
}

static void CUDA_CB take_a_while(void *unused)
{
    (void)unused;
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void say_call(const char *block, size_t i, CUdeviceptr at, bool waits)
{
    MUST(cuLaunchHostFunc(calls[i].stream, waits ? take_a_while : wait_for_return, NULL));
    MUST(calls[i].queue(at));
    (void)printf("%s,%s,%s\n", block, calls[i].name, is_done(calls[i].stream) ? "done" : "queued");
    if (!waits) {
        EXPECT(sem_post(&returned) == 0);
    }
    MUST(cuCtxSynchronize());
}

static void say_each(const char *block, CUdeviceptr at, bool waits)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        say_call(block, i, at, waits && calls[i].queue != queued_set);
    }
}

/* Beside a capture that it has nothing to do with, and that goes on. */
static void say_beside_capture(CUdeviceptr at, CUstream stream)
{
    CUgraph graph;
    size_t nodes = 0;
    MUST(cuLaunchHostFunc(CU_STREAM_LEGACY, take_a_while, NULL));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD32Async(other, 7, WORDS, stream));
    MUST(cuMemcpyDtoD(at, other, BLOCK));
    (void)printf("marked,beside a capture,%s\n", is_done(CU_STREAM_LEGACY) ? "done" : "queued");
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 1);
    MUST(cuGraphDestroy(graph));
}

/* The mark ends with the block, though its address serves again. */
static void say_next_block(CUdeviceptr at)
{
    CUdeviceptr next = 0;
    unsigned read = 2;
    MUST(cuMemFree(at));
    MUST(cuMemAlloc(&next, BLOCK + 512));
    MUST(cuPointerGetAttribute(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, next));
    EXPECT(read == 0);
    say_each("the next block", next, false);
}

int main(void)
{
    CUdeviceptr at = 0;
    CUdeviceptr ordered = 0;
    CUstream stream = NULL;
    EXPECT(sem_init(&returned, 0, 0) == 0);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&at, BLOCK + 512));
    MUST(cuMemAlloc(&other, BLOCK));
    MUST(cuMemAllocAsync(&ordered, BLOCK, stream));
    MUST(cuStreamSynchronize(stream));
    say_each("plain", at, false);
    MUST(cuLaunchHostFunc(CU_STREAM_LEGACY, take_a_while, NULL));
    MUST(cuMemsetD8(at, 3, BLOCK));
    set_attribute(at, 1);
    (void)printf("marked,what was set before,%s\n", is_done(CU_STREAM_LEGACY) ? "done" : "queued");
    say_each("marked", at + 512, true);
    say_beside_capture(at, stream);
    say_each("neighbour", other, false);
    set_attribute(ordered, 1);
    say_each("stream-ordered", ordered, true);
    set_attribute(at, 0);
    say_each("not any more", at, false);
    set_attribute(at, 1);
    say_next_block(at);
    return 0;
}
