/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the driver double's test suites. */
#ifndef SIMGPU_DRIVER_TEST_CHECK_H
#define SIMGPU_DRIVER_TEST_CHECK_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <stdint.h>
#include <string.h>

#include "simgpu.h"

#define MIB (1ull << 20)

static inline const char *error_name(CUresult error)
{
    const char *name = NULL;
    cuGetErrorName(error, &name);
    return name ? name : "an unknown error";
}

#define REFUSED(call, wanted)                                                      \
    do {                                                                           \
        CUresult got_ = (call);                                                    \
        cr_assert_eq(got_, wanted, "%s gives %s, not %s", #call, error_name(got_), \
                     error_name(wanted));                                          \
    } while (0)

#define OK(call) REFUSED(call, CUDA_SUCCESS)

/* Initialises, and makes the primary context of device 0 current. */
static inline CUcontext begin(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

static inline CUfunction kernel_named(const char *name)
{
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "simgpu-module\nkernel nothing 0:8 8:4\nglobal table 4096\n"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static inline void fill(CUstream stream, CUdeviceptr at, uint64_t bytes, uint32_t byte)
{
    void *parameters[] = {&at, &bytes, &byte};
    OK(cuLaunchKernel(kernel_named("simgpu_fill"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* How many of the bytes differ, as seen by a kernel in the stream; waits for the stream. */
static inline uint64_t mismatches(CUstream stream, CUdeviceptr at, uint64_t bytes, uint32_t byte)
{
    /* Never freed, because freeing page-locked memory waits for the device, which may be stopped at
     * a gate. */
    static _Thread_local uint64_t *count;
    if (!count) {
        OK(cuMemAllocHost((void **)&count, sizeof *count));
    }
    *count = 0;
    CUdeviceptr result = (CUdeviceptr)count;
    void *parameters[] = {&at, &bytes, &byte, &result};
    OK(cuLaunchKernel(kernel_named("simgpu_check"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    OK(cuStreamSynchronize(stream));
    return *count;
}

/* A gate: the stream stops behind it until it is opened. */
static inline volatile uint32_t *shut_gate(CUstream stream)
{
    uint32_t *gate;
    OK(cuMemAllocHost((void **)&gate, sizeof *gate));
    *gate = 0;
    OK(cuStreamWaitValue32(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    return gate;
}

static inline void open_gate(volatile uint32_t *gate)
{
    *gate = 1;
}

/* ---- calls whose default ABI depends on the headers ---------------------------------------------
 */

#if CUDA_VERSION >= 13000
#    define NO_EDGE_DATA NULL,
#else
#    define NO_EDGE_DATA
#endif

static inline CUresult create_context(CUcontext *context)
{
#if CUDA_VERSION >= 13000
    return cuCtxCreate(context, NULL, 0, 0);
#else
    return cuCtxCreate(context, 0, 0);
#endif
}

static inline CUresult prefetch(CUdeviceptr at, size_t bytes, CUdevice device)
{
#if CUDA_VERSION >= 13000
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    return cuMemPrefetchAsync(at, bytes, location, 0, NULL);
#else
    return cuMemPrefetchAsync(at, bytes, device, NULL);
#endif
}

static inline CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges(graph, from, to, NO_EDGE_DATA count);
}

static inline CUresult get_dependents(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependentNodes(node, nodes, NO_EDGE_DATA count);
}

static inline CUresult add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                 size_t count)
{
    return cuGraphAddDependencies(graph, from, to, NO_EDGE_DATA count);
}

static inline CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                CUgraphNodeParams *parameters)
{
    return cuGraphAddNode(node, graph, after, NO_EDGE_DATA 1, parameters);
}

static inline CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                    CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    return cuStreamGetCaptureInfo(stream, status, id, graph, nodes, NO_EDGE_DATA count);
}

static inline CUresult clear_frontier(CUstream stream)
{
    return cuStreamUpdateCaptureDependencies(stream, NULL, NO_EDGE_DATA 0,
                                             CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

static inline size_t free_bytes(void)
{
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    return free;
}

#endif
