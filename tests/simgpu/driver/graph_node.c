/* SPDX-License-Identifier: Apache-2.0 */
/* Makes nodes from the application's parameters. See graph_node.h. */
#include "graph_node.h"

#include "capture.h"
#include "context.h"
#include "copy.h"
#include "device.h"
#include "entry.h"
#include "event.h"
#include "memory.h"
#include "module.h"
#include "pool.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- work from parameters ----------------------------------------------------------------------
 */

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2 *p, bool has_kernel,
                            struct sim_work *work)
{
    CUcontext context = has_kernel ? p->ctx : NULL;
    CUresult status = sim_context_or_current(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUfunction handle = p->func || !has_kernel ? p->func : (CUfunction)p->kern;
    CUfunction function = sim_function_of(handle, context);
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *work = (struct sim_work){.kind = SIM_WORK_KERNEL};
    status = sim_launch_prepare(&work->launch, function,
                                (const unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
                                (const unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ},
                                p->sharedMemBytes, p->kernelParams, p->extra);
    work->launch.context = context;
    return status;
}

static CUresult copy_work(const CUDA_MEMCPY3D *parameters, CUcontext context, struct sim_work *work)
{
    CUresult status = sim_context_or_current(&context);
    return status == CUDA_SUCCESS ? sim_copy_prepare_3d(parameters, context, work) : status;
}

static CUresult set_work(const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context,
                         struct sim_work *work)
{
    CUresult status = sim_context_or_current(&context);
    return status == CUDA_SUCCESS ? sim_set_prepare(parameters, context, work) : status;
}

static CUresult host_work(CUhostFn function, void *argument, struct sim_work *work)
{
    if (!function) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *work = (struct sim_work){.kind = SIM_WORK_HOST,
                              .host = {.function = function, .argument = argument}};
    return CUDA_SUCCESS;
}

static CUresult event_work(enum sim_work_kind kind, CUevent event, struct sim_work *work)
{
    CUresult status = sim_event_check(event);
    if (status == CUDA_SUCCESS) {
        *work = (struct sim_work){.kind = kind, .event = {.event = sim_event_retain(event)}};
    }
    return status;
}

static CUresult child_work(CUgraph child, struct sim_work *work)
{
    if (!sim_is_graph(child)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *work = (struct sim_work){.kind = SIM_WORK_CHILD, .graph = sim_graph_clone(child)};
    return work->graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS *parameters, struct sim_work *work)
{
    struct sim_device *device = sim_device_of(parameters->poolProps.location.id);
    if (parameters->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device ||
        parameters->bytesize == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_range *range;
    CUresult status = sim_graph_memory_new(device, parameters->bytesize, &range);
    if (status == CUDA_SUCCESS) {
        parameters->dptr = (CUdeviceptr)range->address;
        *work = (struct sim_work){.kind = SIM_WORK_ALLOC,
                                  .memory = {.address = parameters->dptr, .range = range}};
    }
    return status;
}

static CUresult free_work(CUdeviceptr address, struct sim_work *work)
{
    const struct sim_range *range = sim_range_at(address);
    if (!range || !range->graph_references) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *work = (struct sim_work){.kind = SIM_WORK_FREE, .memory = {.address = address}};
    return CUDA_SUCCESS;
}

/* ---- adding -----------------------------------------------------------------------------------
 */

static CUresult check_place(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count)
{
    if (!result || !sim_is_graph(graph) || (count && !dependencies)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!sim_is_node(dependencies[i]) || dependencies[i]->graph != graph) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                    size_t count, CUgraphNodeType type, CUresult prepared, struct sim_work *work)
{
    if (prepared != CUDA_SUCCESS) {
        return prepared;
    }
    CUresult status = check_place(result, graph, dependencies, count);
    if (status != CUDA_SUCCESS) {
        sim_work_release(work);
        return status;
    }
    *result = sim_graph_add(graph, type, work, dependencies, count);
    if (*result && work->kind == SIM_WORK_CHILD) {
        work->graph->owner = *result;
    }
    return *result ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

#define SIM_ADD_NODE(type, preparation) \
    struct sim_work work;               \
    return add(phGraphNode, hGraph, dependencies, numDependencies, type, preparation, &work)

/* The first ABI's struct is the beginning of the second's. */
static CUresult kernel_work_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *parameters, struct sim_work *work)
{
    CUDA_KERNEL_NODE_PARAMS_v2 wide = {0};
    memcpy(&wide, parameters, sizeof *parameters);
    return kernel_work(&wide, false, work);
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphAddKernelNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_KERNEL,
                 nodeParams ? kernel_work_v1(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    SIM_ENTER(cuGraphAddKernelNode_v2);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_KERNEL,
                 nodeParams ? kernel_work(nodeParams, true, &work) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    SIM_ENTER(cuGraphAddMemcpyNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_MEMCPY,
                 copyParams ? copy_work(copyParams, ctx, &work) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    SIM_ENTER(cuGraphAddMemsetNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_MEMSET,
                 memsetParams ? set_work(memsetParams, ctx, &work) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphAddHostNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_HOST,
                 nodeParams ? host_work(nodeParams->fn, nodeParams->userData, &work)
                            : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph)
{
    SIM_ENTER(cuGraphAddChildGraphNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_GRAPH, child_work(childGraph, &work));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies)
{
    SIM_ENTER(cuGraphAddEmptyNode);
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
               CUDA_SUCCESS, &work);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUevent event)
{
    SIM_ENTER(cuGraphAddEventRecordNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_work(SIM_WORK_RECORD, event, &work));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 CUevent event)
{
    SIM_ENTER(cuGraphAddEventWaitNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_work(SIM_WORK_WAIT, event, &work));
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphAddMemAllocNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                 nodeParams ? alloc_work(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               CUdeviceptr dptr)
{
    SIM_ENTER(cuGraphAddMemFreeNode);
    SIM_ADD_NODE(CU_GRAPH_NODE_TYPE_MEM_FREE, free_work(dptr, &work));
}

/* The wide structures of cuGraphAddNode contain the arguments of the older calls, and a context. */
static CUresult work_of(CUgraphNodeParams *p, struct sim_work *work)
{
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 kernel;
        _Static_assert(sizeof kernel == sizeof p->kernel, "v3 only names its fields anew");
        memcpy(&kernel, &p->kernel, sizeof kernel);
        return kernel_work(&kernel, true, work);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_work(&p->memcpy.copyParams, p->memcpy.copyCtx, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = {p->memset.dst,         p->memset.pitch, p->memset.value,
                                       p->memset.elementSize, p->memset.width, p->memset.height};
        return set_work(&set, p->memset.ctx, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_work(p->host.fn, p->host.userData, work);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_work(p->graph.graph, work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *work = (struct sim_work){.kind = SIM_WORK_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_work(SIM_WORK_WAIT, p->eventWait.event, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_work(SIM_WORK_RECORD, p->eventRecord.event, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = p->alloc.poolProps,
                                            .bytesize = p->alloc.bytesize};
        CUresult status = alloc_work(&alloc, work);
        p->alloc.dptr = alloc.dptr;
        return status;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return free_work(p->free.dptr, work);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult add_any(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count, CUgraphNodeParams *parameters)
{
    CUresult status = check_place(result, graph, dependencies, count);
    if (status != CUDA_SUCCESS || !parameters) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (parameters->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        return sim_add_conditional(result, graph, dependencies, count, &parameters->conditional);
    }
    struct sim_work work;
    return add(result, graph, dependencies, count, parameters->type, work_of(parameters, &work),
               &work);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphAddNode);
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphAddNode_v2);
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

/* CUDA_SUCCESS if the node has work of that kind, and the result pointer is valid. */
static CUresult check_kind(CUgraphNode node, enum sim_work_kind kind, const void *result)
{
    return sim_is_node(node) && result && node->work.kind == kind ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

static void kernel_parameters(const struct sim_launch *launch, CUDA_KERNEL_NODE_PARAMS_v2 *result)
{
    *result = (CUDA_KERNEL_NODE_PARAMS_v2){.func = launch->function,
                                           .gridDimX = launch->grid[0],
                                           .gridDimY = launch->grid[1],
                                           .gridDimZ = launch->grid[2],
                                           .blockDimX = launch->block[0],
                                           .blockDimY = launch->block[1],
                                           .blockDimZ = launch->block[2],
                                           .sharedMemBytes = launch->shared_bytes,
                                           .kernelParams = launch->parameter_pointers,
                                           .ctx = launch->context};
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeGetParams);
    CUresult status = check_kind(hNode, SIM_WORK_KERNEL, nodeParams);
    if (status == CUDA_SUCCESS) {
        CUDA_KERNEL_NODE_PARAMS_v2 wide;
        kernel_parameters(&hNode->work.launch, &wide);
        memcpy(nodeParams, &wide, sizeof *nodeParams);
    }
    return status;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeGetParams_v2);
    CUresult status = check_kind(hNode, SIM_WORK_KERNEL, nodeParams);
    if (status == CUDA_SUCCESS) {
        kernel_parameters(&hNode->work.launch, nodeParams);
    }
    return status;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    SIM_ENTER(cuGraphMemcpyNodeGetParams);
    CUresult status = check_kind(hNode, SIM_WORK_COPY, nodeParams);
    if (status == CUDA_SUCCESS) {
        *nodeParams = hNode->work.copy_parameters;
    }
    return status;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphMemsetNodeGetParams);
    CUresult status = check_kind(hNode, SIM_WORK_SET, nodeParams);
    if (status == CUDA_SUCCESS) {
        *nodeParams = hNode->work.set_parameters;
    }
    return status;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphHostNodeGetParams);
    CUresult status = check_kind(hNode, SIM_WORK_HOST, nodeParams);
    if (status == CUDA_SUCCESS) {
        nodeParams->fn = hNode->work.host.function;
        nodeParams->userData = hNode->work.host.argument;
    }
    return status;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    SIM_ENTER(cuGraphChildGraphNodeGetGraph);
    CUresult status = check_kind(hNode, SIM_WORK_CHILD, phGraph);
    if (status == CUDA_SUCCESS) {
        *phGraph = hNode->work.graph;
    }
    return status;
}

static CUresult get_event(CUgraphNode node, enum sim_work_kind kind, CUevent *event)
{
    CUresult status = check_kind(node, kind, event);
    if (status == CUDA_SUCCESS) {
        *event = node->work.event.event;
    }
    return status;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    SIM_ENTER(cuGraphEventRecordNodeGetEvent);
    return get_event(hNode, SIM_WORK_RECORD, event_out);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    SIM_ENTER(cuGraphEventWaitNodeGetEvent);
    return get_event(hNode, SIM_WORK_WAIT, event_out);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    SIM_ENTER(cuGraphMemAllocNodeGetParams);
    CUresult status = check_kind(hNode, SIM_WORK_ALLOC, params_out);
    if (status == CUDA_SUCCESS) {
        const struct sim_range *range = hNode->work.memory.range;
        *params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = range->pool->properties,
                                                   .bytesize = range->bytes,
                                                   .dptr = hNode->work.memory.address};
    }
    return status;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    SIM_ENTER(cuGraphMemFreeNodeGetParams);
    CUresult status = check_kind(hNode, SIM_WORK_FREE, dptr_out);
    if (status == CUDA_SUCCESS) {
        *dptr_out = hNode->work.memory.address;
    }
    return status;
}

/* ---- changing ---------------------------------------------------------------------------------
 */

static CUresult set_node(CUgraphNode node, CUresult prepared, struct sim_work *work)
{
    if (prepared != CUDA_SUCCESS) {
        return prepared;
    }
    if (!sim_is_node(node) || node->work.kind != work->kind) {
        sim_work_release(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_work_release(&node->work);
    node->work = *work;
    if (work->kind == SIM_WORK_CHILD) {
        work->graph->owner = node;
    }
    return CUDA_SUCCESS;
}

static CUresult set_exec(CUgraphExec exec, CUgraphNode node, CUresult prepared,
                         struct sim_work *work)
{
    return prepared == CUDA_SUCCESS ? sim_exec_set_work(exec, node, work) : prepared;
}

#define SIM_SET_NODE(preparation) \
    struct sim_work work;         \
    return set_node(hNode, preparation, &work)

#define SIM_SET_EXEC(preparation) \
    struct sim_work work;         \
    return set_exec(hGraphExec, hNode, preparation, &work)

#define SIM_GIVEN(parameters, preparation) ((parameters) ? (preparation) : CUDA_ERROR_INVALID_VALUE)

/* The driver checks the node before the parameters (seen: an H200, driver 580). */
#define SIM_OF_KERNEL(parameters, preparation)                                      \
    (check_kind(hNode, SIM_WORK_KERNEL, parameters) == CUDA_SUCCESS ? (preparation) \
                                                                    : CUDA_ERROR_INVALID_VALUE)

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeSetParams);
    SIM_SET_NODE(SIM_GIVEN(nodeParams, kernel_work_v1(nodeParams, &work)));
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeSetParams_v2);
    SIM_SET_NODE(SIM_GIVEN(nodeParams, kernel_work(nodeParams, true, &work)));
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    SIM_ENTER(cuGraphMemcpyNodeSetParams);
    SIM_SET_NODE(SIM_GIVEN(nodeParams, copy_work(nodeParams, NULL, &work)));
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphMemsetNodeSetParams);
    SIM_SET_NODE(SIM_GIVEN(nodeParams, set_work(nodeParams, NULL, &work)));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphHostNodeSetParams);
    SIM_SET_NODE(SIM_GIVEN(nodeParams, host_work(nodeParams->fn, nodeParams->userData, &work)));
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    SIM_ENTER(cuGraphEventRecordNodeSetEvent);
    SIM_SET_NODE(event_work(SIM_WORK_RECORD, event, &work));
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    SIM_ENTER(cuGraphEventWaitNodeSetEvent);
    SIM_SET_NODE(event_work(SIM_WORK_WAIT, event, &work));
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphNodeSetParams);
    SIM_SET_NODE(SIM_GIVEN(nodeParams, work_of(nodeParams, &work)));
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphExecKernelNodeSetParams);
    SIM_SET_EXEC(SIM_OF_KERNEL(nodeParams, kernel_work_v1(nodeParams, &work)));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphExecKernelNodeSetParams_v2);
    SIM_SET_EXEC(SIM_OF_KERNEL(nodeParams, kernel_work(nodeParams, true, &work)));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphExecMemcpyNodeSetParams);
    SIM_SET_EXEC(SIM_GIVEN(copyParams, copy_work(copyParams, ctx, &work)));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphExecMemsetNodeSetParams);
    SIM_SET_EXEC(SIM_GIVEN(memsetParams, set_work(memsetParams, ctx, &work)));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphExecHostNodeSetParams);
    SIM_SET_EXEC(SIM_GIVEN(nodeParams, host_work(nodeParams->fn, nodeParams->userData, &work)));
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphExecChildGraphNodeSetParams);
    SIM_SET_EXEC(child_work(childGraph, &work));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event)
{
    SIM_ENTER(cuGraphExecEventRecordNodeSetEvent);
    SIM_SET_EXEC(event_work(SIM_WORK_RECORD, event, &work));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    SIM_ENTER(cuGraphExecEventWaitNodeSetEvent);
    SIM_SET_EXEC(event_work(SIM_WORK_WAIT, event, &work));
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphExecNodeSetParams);
    SIM_SET_EXEC(SIM_GIVEN(nodeParams, work_of(nodeParams, &work)));
}

/* ---- kernel node attributes --------------------------------------------------------------------
 */

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out)
{
    SIM_ENTER(cuGraphKernelNodeGetAttribute);
    CUresult status = check_kind(hNode, SIM_WORK_KERNEL, value_out);
    if (status == CUDA_SUCCESS && (unsigned)attr >= SIM_NODE_ATTRIBUTES) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        *value_out = hNode->attributes ? hNode->attributes[attr] : (CUlaunchAttributeValue){0};
    }
    return status;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value)
{
    SIM_ENTER(cuGraphKernelNodeSetAttribute);
    CUresult status = check_kind(hNode, SIM_WORK_KERNEL, value);
    if (status != CUDA_SUCCESS || (unsigned)attr >= SIM_NODE_ATTRIBUTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!hNode->attributes) {
        hNode->attributes = calloc(SIM_NODE_ATTRIBUTES, sizeof *hNode->attributes);
    }
    if (!hNode->attributes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    hNode->attributes[attr] = *value;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    SIM_ENTER(cuGraphKernelNodeCopyAttributes);
    if (check_kind(dst, SIM_WORK_KERNEL, dst) != CUDA_SUCCESS ||
        check_kind(src, SIM_WORK_KERNEL, src) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    free(dst->attributes);
    dst->attributes = NULL;
    if (src->attributes) {
        dst->attributes = calloc(SIM_NODE_ATTRIBUTES, sizeof *dst->attributes);
        if (!dst->attributes) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(dst->attributes, src->attributes, SIM_NODE_ATTRIBUTES * sizeof *dst->attributes);
    }
    return CUDA_SUCCESS;
}
