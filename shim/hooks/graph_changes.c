/* SPDX-License-Identifier: Apache-2.0 */
/* Instantiated graphs whose nodes get new parameters, or are switched on and off: notes what they
 * touch from then on. */
#include "shim/hooks/serve.h"
#include "shim/policy/graph_heat.h"

#include <stddef.h>
#include <string.h>

/* --- whole graphs ----------------------------------------------------------------------------- */

static CUresult updated(CUresult result, CUgraphExec exec, CUgraph graph)
{
    if (result == CUDA_SUCCESS) {
        ms_graph_heat_updated(exec, graph);
    }
    return result;
}

CUresult ms_serve_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                    CUgraphNode *hErrorNode_out,
                                    CUgraphExecUpdateResult *updateResult_out)
{
    return updated(MS_REAL(cuGraphExecUpdate)(hGraphExec, hGraph, hErrorNode_out, updateResult_out),
                   hGraphExec, hGraph);
}

CUresult ms_serve_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                       CUgraphExecUpdateResultInfo *resultInfo)
{
    return updated(MS_REAL(cuGraphExecUpdate_v2)(hGraphExec, hGraph, resultInfo), hGraphExec,
                   hGraph);
}

/* --- single nodes ----------------------------------------------------------------------------- */

static CUresult set(CUresult result, CUgraphExec exec, CUgraphNode node,
                    const CUgraphNodeParams *params)
{
    if (result == CUDA_SUCCESS) {
        ms_graph_heat_set(exec, node, params);
    }
    return result;
}

/* Each version of a kernel node's parameters begins with the one before. */
_Static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS_v3, kern) == sizeof(CUDA_KERNEL_NODE_PARAMS_v1) &&
                   offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern) ==
                       sizeof(CUDA_KERNEL_NODE_PARAMS_v1) &&
                   sizeof(CUDA_KERNEL_NODE_PARAMS_v2) <= sizeof(CUDA_KERNEL_NODE_PARAMS_v3),
               "they are copied");

static CUresult set_kernel(CUresult result, CUgraphExec exec, CUgraphNode node, const void *kernel,
                           size_t bytes)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (result == CUDA_SUCCESS) {
        memcpy(&params.kernel, kernel, bytes);
    }
    return set(result, exec, node, &params);
}

CUresult ms_serve_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    return set_kernel(MS_REAL(cuGraphExecKernelNodeSetParams)(hGraphExec, hNode, nodeParams),
                      hGraphExec, hNode, nodeParams, sizeof *nodeParams);
}

CUresult ms_serve_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
    return set_kernel(MS_REAL(cuGraphExecKernelNodeSetParams_v2)(hGraphExec, hNode, nodeParams),
                      hGraphExec, hNode, nodeParams, sizeof *nodeParams);
}

CUresult ms_serve_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const CUDA_MEMCPY3D_v2 *copyParams, CUcontext ctx)
{
    CUresult result = MS_REAL(cuGraphExecMemcpyNodeSetParams)(hGraphExec, hNode, copyParams, ctx);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (result == CUDA_SUCCESS) {
        params.memcpy.copyParams = *copyParams;
    }
    return set(result, hGraphExec, hNode, &params);
}

CUresult ms_serve_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const CUDA_MEMSET_NODE_PARAMS_v1 *memsetParams,
                                                 CUcontext ctx)
{
    CUresult result = MS_REAL(cuGraphExecMemsetNodeSetParams)(hGraphExec, hNode, memsetParams, ctx);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (result == CUDA_SUCCESS) {
        params.memset.dst = memsetParams->dst;
    }
    return set(result, hGraphExec, hNode, &params);
}

CUresult ms_serve_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                     CUgraph childGraph)
{
    CUresult result = MS_REAL(cuGraphExecChildGraphNodeSetParams)(hGraphExec, hNode, childGraph);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    params.graph.graph = childGraph;
    return set(result, hGraphExec, hNode, &params);
}

CUresult ms_serve_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           CUgraphNodeParams *nodeParams)
{
    return set(MS_REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams), hGraphExec, hNode,
               nodeParams);
}

CUresult ms_serve_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        unsigned int isEnabled)
{
    CUresult result = MS_REAL(cuGraphNodeSetEnabled)(hGraphExec, hNode, isEnabled);
    if (result == CUDA_SUCCESS) {
        ms_graph_heat_enabled(hGraphExec, hNode, isEnabled != 0);
    }
    return result;
}
