/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: what is recorded, and what is refused. */
#include "check.h"

#include <pthread.h>

static CUstream new_stream(unsigned flags)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

static CUstream capturing(CUstreamCaptureMode mode)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(stream, mode));
    return stream;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

static void is_invalidated(CUstream stream)
{
    CUgraph graph = (CUgraph)1;
    cr_assert_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    REFUSED(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    cr_assert_null(graph);
    cr_assert_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

Test(capture, work_is_recorded_and_runs_when_launched)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    OK(cuMemAlloc(&block, 4096));
    OK(cuMemsetD8(block, 1, 4096));
    OK(cuCtxSynchronize());
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    cr_assert_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD8Async(block, 2, 2048, stream));
    OK(cuMemcpyDtoDAsync(block + 2048, block, 2048, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    cr_assert_eq(nodes, 2);
    cr_assert_eq(mismatches(stream, block, 4096, 1), 0);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    cr_assert_eq(mismatches(stream, block, 4096, 2), 0);
}

Test(capture, other_streams_join_through_events)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUgraphExec exec;
    CUevent fork_event, join_event;
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&block, 4096));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD8Async(block, 1, 4096, stream));
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(side, fork_event, 0));
    cr_assert_eq(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD8Async(block, 2, 2048, side));
    OK(cuMemsetD8Async(block + 2048, 2, 2048, stream));
    OK(cuEventRecord(join_event, side));
    OK(cuStreamWaitEvent(stream, join_event, 0));
    OK(cuMemsetD8Async(block, 3, 1, stream));
    OK(cuStreamEndCapture(stream, &graph));
    cr_assert_eq(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    size_t edges = 0;
    OK(get_edges(graph, NULL, NULL, &edges));
    cr_assert_eq(edges, 4);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block + 1, 4095, 2), 0);
    cr_assert_eq(mismatches(stream, block, 1, 3), 0);
}

Test(capture, unjoined_work_is_an_error)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUevent event;
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&block, 64));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(side, event, 0));
    OK(cuMemsetD8Async(block, 2, 64, side));
    REFUSED(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    REFUSED(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(side, event, 0));
    OK(cuMemsetD8Async(block, 2, 64, side));
    REFUSED(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

Test(capture, waiting_for_a_capturing_stream_is_refused)
{
    begin();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    REFUSED(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    is_invalidated(stream);
    stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    REFUSED(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    is_invalidated(stream);
    stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    REFUSED(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    is_invalidated(stream);
}

Test(capture, captured_events_cannot_be_asked)
{
    begin();
    CUevent event;
    OK(cuEventCreate(&event, 0));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(event, stream));
    REFUSED(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    is_invalidated(stream);
    stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(event, stream));
    REFUSED(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    is_invalidated(stream);
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
}

static void *try_to_allocate(void *result)
{
    CUcontext context;
    CUdeviceptr block;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    *(CUresult *)result = cuMemAlloc(&block, MIB);
    return NULL;
}

static CUresult allocate_elsewhere(void)
{
    pthread_t thread;
    CUresult result;
    pthread_create(&thread, NULL, try_to_allocate, &result);
    pthread_join(thread, NULL);
    return result;
}

Test(capture, global_mode_bars_unsafe_calls_everywhere)
{
    begin();
    CUdeviceptr block;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    is_invalidated(stream);
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    cr_assert_eq(allocate_elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    is_invalidated(stream);
}

Test(capture, thread_local_mode_bars_them_in_its_thread)
{
    begin();
    CUdeviceptr block;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    cr_assert_eq(allocate_elsewhere(), CUDA_SUCCESS);
    cr_assert_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    is_invalidated(stream);
}

Test(capture, relaxed_captures_and_relaxed_threads_bar_nothing)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAlloc(&block, MIB));
    OK(cuStreamEndCapture(stream, &graph));
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAlloc(&block, MIB));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamEndCapture(stream, &graph));
}

Test(capture, the_legacy_stream_may_not_be_used_beside_a_blocking_capture)
{
    begin();
    CUdeviceptr block;
    CUstreamCaptureStatus status;
    OK(cuMemAlloc(&block, 64));
    CUstream stream = new_stream(CU_STREAM_DEFAULT);
    REFUSED(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    /* A query is harmless. */
    REFUSED(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    cr_assert_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REFUSED(cuMemsetD8(block, 0, 64), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    is_invalidated(stream);
    /* A non-blocking capture is not affected. */
    CUgraph graph;
    stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD8(block, 0, 64));
    OK(cuStreamEndCapture(stream, &graph));
}

Test(capture, dependencies_do_not_cross_its_border)
{
    begin();
    CUevent event;
    CUstream outside = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, outside));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    REFUSED(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    is_invalidated(stream);
    CUstream first = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstream second = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(event, first));
    REFUSED(cuStreamWaitEvent(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    is_invalidated(first);
    is_invalidated(second);
}

static void *end_elsewhere(void *stream)
{
    CUcontext context;
    CUgraph graph;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return (void *)(intptr_t)cuStreamEndCapture(stream, &graph);
}

Test(capture, it_ends_in_its_thread)
{
    begin();
    pthread_t thread;
    void *result;
    CUgraph graph;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    REFUSED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    pthread_create(&thread, NULL, end_elsewhere, stream);
    pthread_join(thread, &result);
    cr_assert_eq((CUresult)(intptr_t)result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    OK(cuStreamEndCapture(stream, &graph));
    REFUSED(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_create(&thread, NULL, end_elsewhere, stream);
    pthread_join(thread, &result);
    cr_assert_eq((CUresult)(intptr_t)result, CUDA_SUCCESS);
}

Test(capture, allocations_become_nodes)
{
    begin();
    CUdeviceptr block, plain;
    CUgraph graph;
    CUgraphExec exec;
    size_t count = 8;
    CUgraphNode nodes[8];
    OK(cuMemAlloc(&plain, MIB));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAllocAsync(&block, MIB, stream));
    OK(cuMemsetD8Async(block, 3, MIB, stream));
    OK(cuMemcpyDtoDAsync(plain, block, MIB, stream));
    OK(cuMemFreeAsync(block, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, nodes, &count));
    cr_assert_eq(count, 4);
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(nodes[0], &type));
    cr_assert_eq(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    OK(cuGraphNodeGetType(nodes[3], &type));
    cr_assert_eq(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, plain, MIB, 3), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    cr_assert_eq(simgpu_used_bytes(0), 66 * MIB);
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    REFUSED(cuMemFreeAsync(plain, stream), CUDA_ERROR_INVALID_VALUE);
    is_invalidated(stream);
}

Test(capture, memory_that_a_graph_did_not_free_outlives_it)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAllocAsync(&block, MIB, stream));
    OK(cuMemsetD8Async(block, 3, MIB, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    cr_assert_eq(mismatches(stream, block, MIB, 3), 0);
    OK(cuMemFreeAsync(block, stream));
    REFUSED(cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}

static CUgraphExec that_allocates(CUstream stream, size_t bytes, CUdeviceptr *block, CUgraph *graph)
{
    CUgraphExec exec;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(block, bytes, stream));
    OK(cuMemsetD8Async(*block, 3, bytes, stream));
    OK(cuMemFreeAsync(*block, stream));
    OK(cuStreamEndCapture(stream, graph));
    OK(cuGraphInstantiate(&exec, *graph, 0));
    return exec;
}

static uint64_t graph_memory(CUgraphMem_attribute attribute)
{
    cuuint64_t bytes;
    OK(cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
    return bytes;
}

Test(capture, memory_comes_with_the_first_launch)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    uint64_t before = simgpu_used_bytes(0);
    CUgraphExec exec = that_allocates(stream, 40 * MIB, &block, &graph);
    cr_assert_eq(simgpu_used_bytes(0), before);
    cr_assert_eq(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    for (int i = 0; i < 2; i++) {
        OK(cuGraphLaunch(exec, stream));
        cr_assert_eq(simgpu_used_bytes(0), before + 40 * MIB);
        cr_assert_eq(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 40 * MIB);
        cr_assert_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 40 * MIB);
    }
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    cr_assert_eq(simgpu_used_bytes(0), before);
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(simgpu_used_bytes(0), before + 40 * MIB);
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    cr_assert_eq(simgpu_used_bytes(0), before + 40 * MIB);
    cr_assert_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    OK(cuDeviceGraphMemTrim(0));
    cr_assert_eq(simgpu_used_bytes(0), before);
}

Test(capture, memory_comes_with_an_upload)
{
    begin();
    CUdeviceptr block;
    CUgraph graph;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    uint64_t before = simgpu_used_bytes(0);
    CUgraphExec exec = that_allocates(stream, 40 * MIB, &block, &graph);
    OK(cuGraphUpload(exec, stream));
    cr_assert_eq(simgpu_used_bytes(0), before + 40 * MIB);
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(simgpu_used_bytes(0), before + 40 * MIB);
    CUDA_GRAPH_INSTANTIATE_PARAMS with = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                          .hUploadStream = stream};
    OK(cuGraphExecDestroy(that_allocates(stream, 20 * MIB, &block, &graph)));
    cr_assert_eq(simgpu_used_bytes(0), before + 40 * MIB);
    OK(cuGraphInstantiateWithParams(&exec, graph, &with));
    cr_assert_eq(with.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    cr_assert_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 60 * MIB);
}

Test(capture, a_launch_takes_all_its_memory_or_none)
{
    begin();
    CUdeviceptr block, graph_block;
    CUgraph graph;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec = that_allocates(stream, 600 * MIB, &graph_block, &graph);
    OK(cuMemAlloc(&block, 600 * MIB));
    uint64_t before = simgpu_used_bytes(0);
    REFUSED(cuGraphUpload(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    REFUSED(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(simgpu_used_bytes(0), before);
    OK(cuMemFree(block));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}

Test(capture, its_state_can_be_read_and_changed)
{
    begin();
    CUdeviceptr block;
    CUgraph graph, seen;
    CUstreamCaptureStatus status;
    cuuint64_t id, other_id;
    const CUgraphNode *frontier;
    size_t count;
    OK(cuMemAlloc(&block, 64));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstream other = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD8Async(block, 3, 64, stream));
    OK(capture_info(stream, &status, &id, &seen, &frontier, &count));
    OK(capture_info(other, &status, &other_id, NULL, NULL, NULL));
    cr_assert_neq(id, other_id);
    cr_assert_eq(count, 1);
    OK(clear_frontier(stream));
    OK(cuMemsetD8Async(block, 3, 64, stream));
    size_t roots = 0;
    OK(cuGraphGetRootNodes(seen, NULL, &roots));
    cr_assert_eq(roots, 2);
    OK(cuStreamEndCapture(stream, &graph));
    cr_assert_eq(graph, seen);
}
