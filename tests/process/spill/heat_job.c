/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the device with blocks, asks the device to touch all of them but a few, and allocates one
 * more: what goes to the host must lie in the few.
 *
 * Arguments: the way in which they are touched, or "list" for the names of all; then "graph" to
 * have a graph do it, or the way in which a graph that touched the few is changed to. Says which
 * blocks have bytes on the host, by number, in the order of their births. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#include "gate_entry.h"
#include "say.h"
#include "simgpu.h"

enum { BLOCKS = 28, ROUNDS = 32, BIRTHS = 80, COLD = 11, COLD_TOO = 17 };
#define BLOCK_BYTES ((size_t)8 << 20)

static const char *const image = "simgpu-module\n"
                                 "kernel plain 0:8 8:4 16:8 24:4\n"
                                 "kernel structure 0:4 8:24 32:8\n"
                                 "kernel undeclared\n";

static CUdeviceptr block[BLOCKS];
static CUstream stream;
static CUmodule module;
static CUlibrary library;
static unsigned turn;
static bool astray;   /* what is cold is touched, in place of the others */
static bool cold_too; /* it is touched as well */

static bool is_cold(int i)
{
    return i == COLD || i == COLD_TOO;
}

static CUdeviceptr aim(int i)
{
    return astray ? block[i % 2 ? COLD : COLD_TOO] : block[i];
}

static CUfunction function(const char *name)
{
    CUfunction found;
    MUST(cuModuleGetFunction(&found, module, name));
    return found;
}

static void launch(CUfunction what, void **parameters, void **extra)
{
    MUST(cuLaunchKernel(what, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra));
}

static void launch_with(CUfunction what, CUdeviceptr at)
{
    uint32_t number = 7;
    uint64_t bytes = BLOCK_BYTES;
    void *parameters[] = {&bytes, &number, &at, &number};
    launch(what, parameters, NULL);
}

/* ---- ways */

static void parameter(CUdeviceptr at)
{
    launch_with(function("plain"), at + BLOCK_BYTES / 2);
}

static void structure(CUdeviceptr at)
{
    uint32_t number = 7;
    uint64_t bytes = BLOCK_BYTES;
    struct {
        uint32_t size;
        uint64_t stride;
        CUdeviceptr data;
    } tensor = {3, 4, at};
    void *parameters[] = {&number, &tensor, &bytes};
    launch(function("structure"), parameters, NULL);
}

static void buffer(CUdeviceptr at)
{
    struct {
        uint64_t bytes;
        uint32_t number;
        CUdeviceptr data;
        uint32_t last;
    } all = {BLOCK_BYTES, 7, at, 9};
    size_t size = 28;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &all, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    launch(function("plain"), NULL, extra);
}

static void kernel(CUdeviceptr at)
{
    CUkernel found;
    MUST(cuLibraryGetKernel(&found, library, "plain"));
    launch_with((CUfunction)found, at);
}

static void copy_from(CUdeviceptr at)
{
    uint64_t word;
    MUST(cuMemcpyDtoHAsync(&word, at + 4096, sizeof word, stream));
}

static void copy_within(CUdeviceptr at)
{
    MUST(cuMemcpyDtoDAsync(at, at + 4096, 512, stream));
}

static void set(CUdeviceptr at)
{
    MUST(cuMemsetD8Async(at, 1, 512, stream));
}

static void undeclared(CUdeviceptr at)
{
    launch_with(function("undeclared"), at);
}

static void untouched(CUdeviceptr at)
{
    (void)at;
}

static void all_but_cold(void (*way)(CUdeviceptr at))
{
    for (int i = 0; i < BLOCKS; i++) {
        if (cold_too || !is_cold(i)) {
            way(aim(i));
        }
    }
}

static CUgraph capture(void (*way)(CUdeviceptr at))
{
    CUgraph captured;
    turn = 0;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    all_but_cold(way);
    MUST(cuStreamEndCapture(stream, &captured));
    return captured;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    MUST(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void mixed(CUdeviceptr at)
{
    void (*const ways[])(CUdeviceptr) = {parameter, structure, set, copy_within};
    ways[turn++ % 4](at);
}

#define WAYS(X)    \
    X(parameter)   \
    X(structure)   \
    X(buffer)      \
    X(kernel)      \
    X(copy_from)   \
    X(copy_within) \
    X(set)         \
    X(mixed)       \
    X(undeclared)  \
    X(untouched)

static const struct {
    const char *name;
    void (*way)(CUdeviceptr at);
} ways[] = {
#define WAY(name) {#name, name},
    WAYS(WAY)};

/* ---- graphs that are changed */

static void change_kernel(CUgraphExec exec, CUgraphNode node, CUdeviceptr at)
{
    uint32_t number = 7;
    uint64_t bytes = BLOCK_BYTES;
    void *parameters[] = {&bytes, &number, &at, &number};
    CUDA_KERNEL_NODE_PARAMS params;
    MUST(cuGraphKernelNodeGetParams(node, &params));
    params.kernelParams = parameters;
    MUST(cuGraphExecKernelNodeSetParams(exec, node, &params));
}

/* By the first form of the call, which knows no kernels. */
static void change_kernel_v1(CUgraphExec exec, CUgraphNode node, CUdeviceptr at)
{
    uint32_t number = 7;
    uint64_t bytes = BLOCK_BYTES;
    void *parameters[] = {&bytes, &number, &at, &number};
    CUDA_KERNEL_NODE_PARAMS_v1 params = {function("plain"), 1, 1, 1, 1, 1, 1, 0, parameters, NULL};
    CUresult (*set_v1)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1 *) = NULL;
    MUST(cuGetProcAddress("cuGraphExecKernelNodeSetParams", (void **)&set_v1, 11000, 0, NULL));
    MUST(set_v1(exec, node, &params));
}

static void change_kernel_as_any(CUgraphExec exec, CUgraphNode node, CUdeviceptr at)
{
    uint32_t number = 7;
    uint64_t bytes = BLOCK_BYTES;
    void *parameters[] = {&bytes, &number, &at, &number};
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    MUST(cuGraphKernelNodeGetParams(node, &kernel));
    memcpy(&params.kernel, &kernel, sizeof params.kernel);
    params.kernel.kernelParams = parameters;
    MUST(cuGraphExecNodeSetParams(exec, node, &params));
}

static void change_copy(CUgraphExec exec, CUgraphNode node, CUdeviceptr at)
{
    CUcontext context;
    CUDA_MEMCPY3D params;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuGraphMemcpyNodeGetParams(node, &params));
    params.dstDevice = at;
    params.srcDevice = at + 4096;
    MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &params, context));
}

static void change_set(CUgraphExec exec, CUgraphNode node, CUdeviceptr at)
{
    CUcontext context;
    CUDA_MEMSET_NODE_PARAMS params;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuGraphMemsetNodeGetParams(node, &params));
    params.dst = at;
    MUST(cuGraphExecMemsetNodeSetParams(exec, node, &params, context));
}

static void change_nodes(CUgraphExec exec, CUgraph graph,
                         void (*change)(CUgraphExec exec, CUgraphNode node, CUdeviceptr at))
{
    CUgraphNode nodes[BLOCKS];
    size_t count = BLOCKS;
    MUST(cuGraphGetNodes(graph, nodes, &count));
    for (int i = 0, node = 0; i < BLOCKS; i++) {
        if (!is_cold(i)) {
            EXPECT((size_t)node < count);
            change(exec, nodes[node++], aim(i));
        }
    }
}

static CUgraphExec in_a_child(void (*way)(CUdeviceptr at))
{
    CUgraph outer;
    CUgraphNode node;
    MUST(cuGraphCreate(&outer, 0));
    MUST(cuGraphAddChildGraphNode(&node, outer, NULL, 0, capture(way)));
    CUgraphExec exec = instantiate(outer);
    astray = false;
    MUST(cuGraphExecChildGraphNodeSetParams(exec, node, capture(way)));
    return exec;
}

/* What touches the few is off: it was switched off, or everything was and all else is on again. */
static CUgraphExec with_nodes_off(void (*way)(CUdeviceptr at), bool everything)
{
    CUgraphNode nodes[BLOCKS];
    size_t count = BLOCKS;
    cold_too = true;
    CUgraph graph = capture(way);
    CUgraphExec exec = instantiate(graph);
    MUST(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        if (everything || is_cold(i)) {
            MUST(cuGraphNodeSetEnabled(exec, nodes[i], 0));
        }
        if (everything && !is_cold(i)) {
            MUST(cuGraphNodeSetEnabled(exec, nodes[i], 1));
        }
    }
    return exec;
}

/* It touched what is cold, and now touches all else. */
static CUgraphExec changed(void (*way)(CUdeviceptr at), const char *how)
{
    bool update = strcmp(how, "update") == 0;
    bool set_after_update = strcmp(how, "set_after_update") == 0;
    astray = true;
    if (strcmp(how, "child") == 0) {
        return in_a_child(way);
    }
    if (strcmp(how, "off") == 0 || strcmp(how, "on") == 0) {
        astray = false;
        return with_nodes_off(way, strcmp(how, "on") == 0);
    }
    CUgraph graph = capture(way);
    CUgraphExec exec = instantiate(graph);
    astray = set_after_update;
    if (update || set_after_update) {
        CUgraphExecUpdateResultInfo result;
        MUST(cuGraphExecUpdate(exec, capture(way), &result));
    }
    astray = false;
    if (set_after_update) {
        change_nodes(exec, graph, change_kernel);
    } else if (!update) {
        change_nodes(exec, graph,
                     strcmp(how, "copy") == 0        ? change_copy
                     : strcmp(how, "set") == 0       ? change_set
                     : strcmp(how, "kernel") == 0    ? change_kernel
                     : strcmp(how, "kernel_v1") == 0 ? change_kernel_v1
                                                     : change_kernel_as_any);
    }
    return exec;
}

/* ---- main */

static void begin(void)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuModuleLoadData(&module, image));
    MUST(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
}

/* While little is allocated nothing is asked, and nothing looked at. */
static void below_the_threshold(void)
{
    MUST(cuMemAlloc(&block[0], BLOCK_BYTES));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        ways[w].way(block[0]);
    }
    MUST(cuStreamSynchronize(stream));
    EXPECT(simgpu_calls("cuFuncGetParamInfo") == 0);
    EXPECT(simgpu_calls("cuKernelGetParamInfo") == 0);
    MUST(cuMemFree(block[0]));
}

/* What was touched before is touched no more: the pool counts time in births, and what looks at
 * calls in calls. */
static void let_time_pass(void)
{
    for (int i = 0; i < BIRTHS; i++) {
        CUdeviceptr at;
        MUST(cuMemAlloc(&at, 4096));
        set(at);
        MUST(cuMemFree(at));
    }
}

static void run(void (*way)(CUdeviceptr at), const char *graph)
{
    CUdeviceptr more;
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&block[i], BLOCK_BYTES));
    }
    if (graph != NULL) {
        CUgraphExec exec =
            strcmp(graph, "graph") == 0 ? instantiate(capture(way)) : changed(way, graph);
        let_time_pass(); /* a copy that is captured counts as asked for */
        MUST(cuGraphLaunch(exec, stream));
    }
    for (int round = 0; graph == NULL && round < ROUNDS; round++) {
        all_but_cold(way);
    }
    MUST(cuMemAlloc(&more, BLOCK_BYTES));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < BLOCKS; i++) {
        if (gate_host_bytes(0, block[i]) != 0) {
            (void)printf("%d\n", i);
        }
    }
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 2);
    bool list = strcmp(argv[1], "list") == 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        if (list) {
            (void)puts(ways[w].name);
        } else if (strcmp(argv[1], ways[w].name) == 0) {
            begin();
            below_the_threshold();
            run(ways[w].way, argc > 2 ? argv[2] : NULL);
            return 0;
        }
    }
    EXPECT(list);
    return 0;
}
