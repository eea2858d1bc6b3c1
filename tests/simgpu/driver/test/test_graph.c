/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs made node by node, and executable graphs. */
#include "check.h"

static CUstream new_stream(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUgraph new_graph(void)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

static CUgraphNode set_node(CUgraph graph, CUgraphNode *after, CUdeviceptr at, size_t bytes,
                            unsigned value)
{
    CUcontext context;
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS parameters = {
        .dst = at, .value = value, .elementSize = 1, .width = bytes, .height = 1};
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphAddMemsetNode(&node, graph, after, after ? 1 : 0, &parameters, context));
    return node;
}

static CUgraphExec instantiated(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

Test(graph, nodes_run_in_the_order_of_their_dependencies)
{
    begin();
    CUdeviceptr block;
    CUstream stream = new_stream();
    CUgraph graph = new_graph();
    OK(cuMemAlloc(&block, 100));
    /* Created last to first. */
    CUgraphNode last = set_node(graph, NULL, block, 100, 3);
    CUgraphNode middle = set_node(graph, NULL, block, 100, 2);
    CUgraphNode first = set_node(graph, NULL, block, 100, 1);
    CUgraphNode from[] = {first, middle}, to[] = {middle, last};
    OK(add_edges(graph, from, to, 2));
    OK(cuGraphLaunch(instantiated(graph), stream));
    cr_assert_eq(mismatches(stream, block, 100, 3), 0);
    CUgraphExec exec;
    OK(add_edges(graph, &last, &first, 1));
    REFUSED(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
}

Test(graph, it_can_be_listed_and_pruned)
{
    begin();
    CUdeviceptr block;
    CUgraph graph = new_graph();
    OK(cuMemAlloc(&block, 100));
    CUgraphNode first = set_node(graph, NULL, block, 100, 1), nodes[4], edges_from[4], edges_to[4];
    CUgraphNode second = set_node(graph, &first, block, 100, 2);
    CUgraphNode third = set_node(graph, &second, block, 100, 2);
    size_t count = 4;
    OK(cuGraphGetNodes(graph, nodes, &count));
    cr_assert_eq(count, 3);
    cr_assert_eq(nodes[1], second);
    cr_assert_null(nodes[3]);
    count = 4;
    OK(get_edges(graph, edges_from, edges_to, &count));
    cr_assert_eq(count, 2);
    cr_assert_eq(edges_from[1], second);
    cr_assert_eq(edges_to[1], third);
    count = 4;
    OK(get_dependents(first, nodes, &count));
    cr_assert_eq(count, 1);
    cr_assert_eq(nodes[0], second);
    OK(cuGraphDestroyNode(second));
    count = 0;
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    cr_assert_eq(count, 2);
}

Test(graph, changes_do_not_reach_launches_that_were_made)
{
    begin();
    CUdeviceptr block;
    CUcontext context;
    CUstream stream = new_stream();
    CUgraph graph = new_graph();
    OK(cuCtxGetCurrent(&context));
    OK(cuMemAlloc(&block, 100));
    CUgraphNode node = set_node(graph, NULL, block, 100, 1);
    CUgraphExec exec = instantiated(graph);
    volatile uint32_t *gate = shut_gate(stream);
    OK(cuGraphLaunch(exec, stream));
    CUDA_MEMSET_NODE_PARAMS other = {
        .dst = block, .value = 2, .elementSize = 1, .width = 50, .height = 1};
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &other, context));
    open_gate(gate);
    cr_assert_eq(mismatches(stream, block, 100, 1), 0);
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block, 50, 2), 0);
    cr_assert_eq(mismatches(stream, block + 50, 50, 1), 0);
    /* Again, now that the program has its own copy. */
    other.value = 3;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &other, context));
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block, 50, 3), 0);
}

Test(graph, an_update_takes_a_graph_of_the_same_shape)
{
    begin();
    CUdeviceptr block;
    CUstream stream = new_stream();
    CUgraph graph = new_graph(), same = new_graph(), longer = new_graph();
    OK(cuMemAlloc(&block, 100));
    set_node(graph, NULL, block, 100, 1);
    set_node(same, NULL, block, 100, 2);
    CUgraphNode first = set_node(longer, NULL, block, 100, 1);
    set_node(longer, &first, block, 100, 1);
    CUgraphExec exec = instantiated(graph);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, same, &info));
    cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block, 100, 2), 0);
    REFUSED(cuGraphExecUpdate(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

Test(graph, kernels_copy_their_parameters)
{
    begin();
    CUdeviceptr block;
    CUstream stream = new_stream();
    CUgraph graph = new_graph();
    CUgraphNode node;
    OK(cuMemAlloc(&block, 100));
    CUdeviceptr at = block;
    uint64_t bytes = 100;
    uint32_t byte = 5;
    void *list[] = {&at, &bytes, &byte};
    CUDA_KERNEL_NODE_PARAMS parameters = {.func = kernel_named("simgpu_fill"),
                                          .gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 1,
                                          .blockDimY = 1,
                                          .blockDimZ = 1,
                                          .kernelParams = list},
                            seen;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &parameters));
    CUgraphExec exec = instantiated(graph);
    byte = 9;
    bytes = 1;
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block, 100, 5), 0);
    OK(cuGraphKernelNodeGetParams(node, &seen));
    cr_assert_eq(*(uint32_t *)seen.kernelParams[2], 5);
    OK(cuGraphExecKernelNodeSetParams(exec, node, &parameters));
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block, 1, 9), 0);
    cr_assert_eq(mismatches(stream, block + 1, 99, 5), 0);
    OK(cuGraphNodeSetEnabled(exec, node, 0));
    OK(cuMemsetD8(block, 0, 100));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(exec, stream));
    cr_assert_eq(mismatches(stream, block, 100, 0), 0);
}

Test(graph, children_and_conditions)
{
    begin();
    CUdeviceptr block;
    CUstream stream = new_stream();
    CUgraph graph = new_graph(), child = new_graph(), embedded;
    CUgraphNode node, inner, condition_node;
    OK(cuMemAlloc(&block, 200));
    OK(cuMemsetD8(block, 0, 200));
    OK(cuCtxSynchronize());
    inner = set_node(child, NULL, block, 100, 7);
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
    cr_assert_neq(embedded, child);
    REFUSED(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphNodeFindInClone(&inner, inner, embedded));
    CUgraphConditionalHandle handle;
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    parameters.conditional.handle = handle;
    parameters.conditional.type = CU_GRAPH_COND_TYPE_IF;
    parameters.conditional.size = 1;
    OK(add_node(&condition_node, graph, &node, &parameters));
    set_node(parameters.conditional.phGraph_out[0], NULL, block + 100, 100, 8);
    OK(cuGraphDestroy(child));
    OK(cuGraphLaunch(instantiated(graph), stream));
    cr_assert_eq(mismatches(stream, block, 100, 7), 0);
    cr_assert_eq(mismatches(stream, block + 100, 100, 8), 0);
}

static void destroyed(void *flag)
{
    *(volatile int *)flag = 1;
}

Test(graph, user_objects_live_as_long_as_their_graphs)
{
    begin();
    volatile int gone = 0;
    CUuserObject object;
    CUgraph graph = new_graph();
    OK(cuUserObjectCreate(&object, (void *)&gone, destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec exec = instantiated(graph);
    OK(cuGraphDestroy(graph));
    cr_assert_eq(simgpu_live("user_object"), 1);
    OK(cuGraphExecDestroy(exec));
    cr_assert_eq(simgpu_live("user_object"), 0);
    while (!gone) {
        /* the destructor runs on a thread of its own */
    }
}

Test(graph, events_in_graphs)
{
    begin();
    CUevent event;
    CUgraph graph = new_graph();
    CUgraphNode node;
    CUstream stream = new_stream();
    OK(cuEventCreate(&event, 0));
    OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    CUgraphExec exec = instantiated(graph);
    volatile uint32_t *gate = shut_gate(stream);
    OK(cuGraphLaunch(exec, stream));
    REFUSED(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuEventSynchronize(event));
}

Test(graph, nothing_is_left_behind)
{
    begin();
    CUdeviceptr block;
    CUstream stream = new_stream();
    uint64_t before = simgpu_used_bytes(0);
    for (int i = 0; i < 50; i++) {
        CUgraph graph;
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuMemAllocAsync(&block, 10 * MIB, stream));
        OK(cuMemsetD8Async(block, 1, 10, stream));
        OK(cuMemFreeAsync(block, stream));
        OK(cuStreamEndCapture(stream, &graph));
        CUgraphExec exec = instantiated(graph);
        OK(cuGraphLaunch(exec, stream));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    cr_assert_eq(simgpu_live("graph"), 0);
    cr_assert_eq(simgpu_live("graph_node"), 0);
    cr_assert_eq(simgpu_live("graph_exec"), 0);
    cr_assert_eq(simgpu_used_bytes(0), before);
}
