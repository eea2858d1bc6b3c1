/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of graphs whose memory has moved since they were instantiated: the same addresses, chunks
 * of the device, of the host, or one of each. */
#include <string.h>

#include "tests/gpu/assume.h"
#include "tests/gpu/mixed.h"

/* Across the boundary of the two chunks. */
enum { BYTES = 1048592, BEFORE = 524300 };

struct replay {
    struct mixed mixed;
    CUdeviceptr at; /* of what the nodes use */
    CUdeviceptr plain;
    CUstream stream;
    unsigned char *in, *out; /* pinned */
};

static bool open_replay(const struct gpu *gpu, struct replay *replay)
{
    if (!mixed_open(gpu, &replay->mixed)) {
        return false;
    }
    replay->at = replay->mixed.at + replay->mixed.each - BEFORE;
    mixed_show(gpu, &replay->mixed, 0, ON_DEVICE);
    mixed_show(gpu, &replay->mixed, 1, ON_DEVICE);
    MUST(cuMemAlloc(&replay->plain, BYTES));
    MUST(cuStreamCreate(&replay->stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocHost((void **)&replay->in, BYTES));
    MUST(cuMemAllocHost((void **)&replay->out, BYTES));
    return true;
}

static void close_replay(struct replay *replay)
{
    mixed_close(&replay->mixed);
    MUST(cuMemFree(replay->plain));
    MUST(cuStreamDestroy(replay->stream));
    MUST(cuMemFreeHost(replay->in));
    MUST(cuMemFreeHost(replay->out));
}

/* Instantiated on chunks of the device, and replayed on all that may have taken their place; `look`
 * says whether the nodes did what they should. Takes the graph over. */
static enum verdict replay_everywhere(const struct gpu *gpu, struct replay *replay, CUgraph graph,
                                      enum verdict (*look)(const struct gpu *gpu,
                                                           struct replay *replay))
{
    static const struct {
        const char *name;
        enum location at[2];
    } layouts[] = {{"not even before anything moved", {ON_DEVICE, ON_DEVICE}},
                   {"not with all of it on the host", {ON_HOST, ON_HOST}},
                   {"not with its end on the host", {ON_DEVICE, ON_HOST}},
                   {"not with its beginning on the host", {ON_HOST, ON_DEVICE}},
                   {"not after it came back", {ON_DEVICE, ON_DEVICE}}};
    CUgraphExec exec;
    enum verdict verdict = HOLDS;
    WORKS(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && verdict == HOLDS; i++) {
        for (unsigned half = 0; half < 2; half++) {
            mixed_show(gpu, &replay->mixed, half, layouts[i].at[half]);
        }
        memset(replay->in, (int)(0x41 + i), BYTES);
        memset(replay->out, 0xee, BYTES);
        WORKS(cuMemsetD8(replay->plain, 0xee, BYTES));
        WORKS(gpu_fill(gpu, replay->mixed.at, 2 * replay->mixed.each, 0xee, NULL));
        WORKS(cuCtxSynchronize());
        WORKS(cuGraphLaunch(exec, replay->stream));
        WORKS(cuStreamSynchronize(replay->stream));
        verdict = look(gpu, replay);
        if (verdict == DIFFERS) {
            return assume_saw(DIFFERS, layouts[i].name, 0);
        }
    }
    WORKS(cuGraphExecDestroy(exec));
    WORKS(cuGraphDestroy(graph));
    close_replay(replay);
    return verdict;
}

#define REPLAY(replay)          \
    struct replay replay = {0}; \
    NEEDS(open_replay(gpu, &(replay)), "the device cannot map host memory")

/* In, along, out: what came in has to be everywhere. */
static enum verdict look_at_copies(const struct gpu *gpu, struct replay *replay)
{
    unsigned byte = replay->in[0];
    GIVES(gpu_mismatches(gpu, replay->at, BYTES, byte), 0);
    GIVES(gpu_mismatches(gpu, replay->plain, BYTES, byte), 0);
    SO(memcmp(replay->in, replay->out, BYTES) == 0);
    return HOLDS;
}

static enum verdict captured_copies(const struct gpu *gpu)
{
    CUgraph graph;
    REPLAY(replay);
    WORKS(cuStreamBeginCapture(replay.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    WORKS(cuMemcpyHtoDAsync(replay.at, replay.in, BYTES, replay.stream));
    WORKS(cuMemcpyDtoDAsync(replay.plain, replay.at, BYTES, replay.stream));
    WORKS(cuMemsetD8Async(replay.at, 0x11, BYTES, replay.stream));
    WORKS(cuMemcpyDtoDAsync(replay.at, replay.plain, BYTES, replay.stream));
    WORKS(cuMemcpyDtoHAsync(replay.out, replay.at, BYTES, replay.stream));
    WORKS(cuStreamEndCapture(replay.stream, &graph));
    return replay_everywhere(gpu, &replay, graph, look_at_copies);
}

static CUDA_MEMCPY3D line(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = BYTES,
                           .srcHeight = 1,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = BYTES,
                           .dstHeight = 1,
                           .WidthInBytes = BYTES,
                           .Height = 1,
                           .Depth = 1};
}

static enum verdict copy_nodes(const struct gpu *gpu)
{
    CUgraph graph;
    CUgraphNode nodes[3];
    REPLAY(replay);
    CUDA_MEMCPY3D in = line(replay.at, 0);
    in.srcMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = replay.in;
    CUDA_MEMCPY3D along = line(replay.plain, replay.at);
    CUDA_MEMCPY3D out = line(0, replay.at);
    out.dstMemoryType = CU_MEMORYTYPE_HOST;
    out.dstHost = replay.out;
    WORKS(cuGraphCreate(&graph, 0));
    WORKS(cuGraphAddMemcpyNode(&nodes[0], graph, NULL, 0, &in, gpu->context));
    WORKS(cuGraphAddMemcpyNode(&nodes[1], graph, &nodes[0], 1, &along, gpu->context));
    WORKS(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &out, gpu->context));
    return replay_everywhere(gpu, &replay, graph, look_at_copies);
}

static enum verdict look_at_set(const struct gpu *gpu, struct replay *replay)
{
    GIVES(gpu_mismatches(gpu, replay->at, BYTES, 0x37), 0);
    GIVES(gpu_mismatches(gpu, replay->at - 1, 1, 0xee), 0);
    GIVES(gpu_mismatches(gpu, replay->at + BYTES, 1, 0xee), 0);
    return HOLDS;
}

static enum verdict captured_memsets(const struct gpu *gpu)
{
    CUgraph graph;
    REPLAY(replay);
    WORKS(cuStreamBeginCapture(replay.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    WORKS(cuMemsetD32Async(replay.at, 0x37373737, BYTES / 4, replay.stream));
    WORKS(cuStreamEndCapture(replay.stream, &graph));
    return replay_everywhere(gpu, &replay, graph, look_at_set);
}

static enum verdict memset_nodes(const struct gpu *gpu)
{
    CUgraph graph;
    CUgraphNode node;
    REPLAY(replay);
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = replay.at, .value = 0x37, .elementSize = 1, .width = BYTES, .height = 1};
    WORKS(cuGraphCreate(&graph, 0));
    WORKS(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, gpu->context));
    return replay_everywhere(gpu, &replay, graph, look_at_set);
}

static enum verdict captured_kernels(const struct gpu *gpu)
{
    CUgraph graph;
    REPLAY(replay);
    WORKS(cuStreamBeginCapture(replay.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    WORKS(gpu_fill(gpu, replay.at, BYTES, 0x37, replay.stream));
    WORKS(cuStreamEndCapture(replay.stream, &graph));
    return replay_everywhere(gpu, &replay, graph, look_at_set);
}

const struct assumption assume_graphs[] = {
    {"a graph's captured copies follow their memory to the host and back", captured_copies, false},
    {"a graph's copy nodes follow their memory to the host and back", copy_nodes, false},
    {"a graph's captured memsets follow their memory to the host and back", captured_memsets,
     false},
    {"a graph's memset nodes follow their memory to the host and back", memset_nodes, false},
    {"a graph's kernels follow their memory to the host and back", captured_kernels, false},
    {NULL, NULL, false},
};
