#include "driver_api.h"
#include "entry.h"
#pragma GCC diagnostic ignored "-Wunused-parameter"
CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    SIM_ENTER(cuArray3DCreate_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    SIM_ENTER(cuArray3DGetDescriptor_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    SIM_ENTER(cuArrayCreate_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuArrayDestroy(CUarray hArray)
{
    SIM_ENTER(cuArrayDestroy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    SIM_ENTER(cuArrayGetDescriptor_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                      CUarray array, CUdevice device)
{
    SIM_ENTER(cuArrayGetMemoryRequirements);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
    SIM_ENTER(cuArrayGetPlane);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphAddBatchMemOpNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph)
{
    SIM_ENTER(cuGraphAddChildGraphNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies)
{
    SIM_ENTER(cuGraphAddDependencies);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    SIM_ENTER(cuGraphAddDependencies_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies)
{
    SIM_ENTER(cuGraphAddEmptyNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUevent event)
{
    SIM_ENTER(cuGraphAddEventRecordNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 CUevent event)
{
    SIM_ENTER(cuGraphAddEventWaitNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphAddHostNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphAddKernelNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphAddKernelNode_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphAddMemAllocNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               CUdeviceptr dptr)
{
    SIM_ENTER(cuGraphAddMemFreeNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    SIM_ENTER(cuGraphAddMemcpyNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    SIM_ENTER(cuGraphAddMemsetNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphAddNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphAddNode_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
    SIM_ENTER(cuGraphBatchMemOpNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphBatchMemOpNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    SIM_ENTER(cuGraphChildGraphNodeGetGraph);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    SIM_ENTER(cuGraphClone);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    SIM_ENTER(cuGraphCreate);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    SIM_ENTER(cuGraphDebugDotPrint);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    SIM_ENTER(cuGraphDestroy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    SIM_ENTER(cuGraphDestroyNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    SIM_ENTER(cuGraphEventRecordNodeGetEvent);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    SIM_ENTER(cuGraphEventRecordNodeSetEvent);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    SIM_ENTER(cuGraphEventWaitNodeGetEvent);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    SIM_ENTER(cuGraphEventWaitNodeSetEvent);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphExecBatchMemOpNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph)
{
    SIM_ENTER(cuGraphExecChildGraphNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    SIM_ENTER(cuGraphExecDestroy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event)
{
    SIM_ENTER(cuGraphExecEventRecordNodeSetEvent);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    SIM_ENTER(cuGraphExecEventWaitNodeSetEvent);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    SIM_ENTER(cuGraphExecGetFlags);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphExecHostNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphExecKernelNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphExecKernelNodeSetParams_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    SIM_ENTER(cuGraphExecMemcpyNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    SIM_ENTER(cuGraphExecMemsetNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphExecNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    SIM_ENTER(cuGraphExecUpdate);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo)
{
    SIM_ENTER(cuGraphExecUpdate_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    SIM_ENTER(cuGraphGetEdges);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges)
{
    SIM_ENTER(cuGraphGetEdges_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    SIM_ENTER(cuGraphGetNodes);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    SIM_ENTER(cuGraphGetRootNodes);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphHostNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphHostNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize)
{
    SIM_ENTER(cuGraphInstantiate);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    SIM_ENTER(cuGraphInstantiate_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags)
{
    SIM_ENTER(cuGraphInstantiateWithFlags);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    SIM_ENTER(cuGraphInstantiateWithParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    SIM_ENTER(cuGraphInstantiateWithParams_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    SIM_ENTER(cuGraphKernelNodeCopyAttributes);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out)
{
    SIM_ENTER(cuGraphKernelNodeGetAttribute);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeGetParams_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value)
{
    SIM_ENTER(cuGraphKernelNodeSetAttribute);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphKernelNodeSetParams_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    SIM_ENTER(cuGraphLaunch);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ENTER(cuGraphLaunch_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    SIM_ENTER(cuGraphMemAllocNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    SIM_ENTER(cuGraphMemFreeNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    SIM_ENTER(cuGraphMemcpyNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    SIM_ENTER(cuGraphMemcpyNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphMemsetNodeGetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    SIM_ENTER(cuGraphMemsetNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph)
{
    SIM_ENTER(cuGraphNodeFindInClone);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies)
{
    SIM_ENTER(cuGraphNodeGetDependencies);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    SIM_ENTER(cuGraphNodeGetDependencies_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes)
{
    SIM_ENTER(cuGraphNodeGetDependentNodes);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    SIM_ENTER(cuGraphNodeGetDependentNodes_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    SIM_ENTER(cuGraphNodeGetEnabled);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    SIM_ENTER(cuGraphNodeGetType);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    SIM_ENTER(cuGraphNodeSetEnabled);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    SIM_ENTER(cuGraphNodeSetParams);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    SIM_ENTER(cuGraphRemoveDependencies);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies)
{
    SIM_ENTER(cuGraphRemoveDependencies_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
    SIM_ENTER(cuGraphUpload);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ENTER(cuGraphUpload_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    SIM_ENTER(cuIpcCloseMemHandle);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    SIM_ENTER(cuIpcGetEventHandle);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    SIM_ENTER(cuIpcGetMemHandle);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    SIM_ENTER(cuIpcOpenEventHandle);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    SIM_ENTER(cuIpcOpenMemHandle);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    SIM_ENTER(cuIpcOpenMemHandle_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels)
{
    SIM_ENTER(cuMipmappedArrayCreate);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    SIM_ENTER(cuMipmappedArrayDestroy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level)
{
    SIM_ENTER(cuMipmappedArrayGetLevel);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    SIM_ENTER(cuMipmappedArrayGetMemoryRequirements);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    SIM_ENTER(cuStreamBatchMemOp);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count,
                                 CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    SIM_ENTER(cuStreamBatchMemOp_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    SIM_ENTER(cuStreamBatchMemOp_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count,
                                    CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    SIM_ENTER(cuStreamBatchMemOp_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    SIM_ENTER(cuStreamBeginCapture);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream)
{
    SIM_ENTER(cuStreamBeginCapture_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCapture_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCapture_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCaptureToGraph);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCaptureToGraph_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream)
{
    SIM_ENTER(cuStreamCopyAttributes);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
    SIM_ENTER(cuStreamCopyAttributes_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    SIM_ENTER(cuStreamEndCapture);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
    SIM_ENTER(cuStreamEndCapture_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
    SIM_ENTER(cuStreamGetAttribute);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr,
                                   CUstreamAttrValue *value_out)
{
    SIM_ENTER(cuStreamGetAttribute_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out)
{
    SIM_ENTER(cuStreamGetCaptureInfo);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                     cuuint64_t *id_out)
{
    SIM_ENTER(cuStreamGetCaptureInfo_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                        cuuint64_t *id_out, CUgraph *graph_out,
                                        const CUgraphNode **dependencies_out,
                                        size_t *numDependencies_out)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v3);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                        cuuint64_t *id_out, CUgraph *graph_out,
                                        const CUgraphNode **dependencies_out,
                                        const CUgraphEdgeData **edgeData_out,
                                        size_t *numDependencies_out)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v3_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    SIM_ENTER(cuStreamIsCapturing);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    SIM_ENTER(cuStreamIsCapturing_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param)
{
    SIM_ENTER(cuStreamSetAttribute);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr,
                                   const CUstreamAttrValue *value)
{
    SIM_ENTER(cuStreamSetAttribute_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode *dependencies,
                                                size_t numDependencies, unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode *dependencies,
                                                   const CUgraphEdgeData *dependencyData,
                                                   size_t numDependencies, unsigned int flags)
{
    SIM_ENTER(cuStreamUpdateCaptureDependencies_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue32);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                  unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue32_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue32_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                     unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue32_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue64);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                  unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue64_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue64_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                     unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue64_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue32);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                   unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue32_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue32_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                      unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue32_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue64);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                   unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue64_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue64_v2);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                      unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue64_v2_ptsz);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    SIM_ENTER(cuSurfObjectCreate);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    SIM_ENTER(cuSurfObjectDestroy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    SIM_ENTER(cuSurfObjectGetResourceDesc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void *globalAddress,
                                 const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                 const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill)
{
    SIM_ENTER(cuTensorMapEncodeIm2col);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    SIM_ENTER(cuTensorMapEncodeIm2colWide);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void *globalAddress,
                                const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    SIM_ENTER(cuTensorMapEncodeTiled);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    SIM_ENTER(cuTexObjectCreate);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectDestroy);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectGetResourceDesc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
                                        CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectGetResourceViewDesc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectGetTextureDesc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    return CUDA_ERROR_NOT_SUPPORTED;
}
#include "array.h"
#include "event.h"
#include "graph.h"
#include "ipc.h"
#include "memory.h"
#include "stream.h"
void sim_graph_release(CUgraph graph)
{
}
CUgraph sim_graph_clone(CUgraph graph)
{
    return NULL;
}
CUgraphExec sim_graph_exec_retain(CUgraphExec exec)
{
    return exec;
}
void sim_graph_exec_release(CUgraphExec exec)
{
}
void sim_graph_exec_run_unlocked(CUgraphExec exec)
{
}
CUresult sim_capture_add(CUstream s, struct sim_work *w, CUgraphNode *n)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_refuse(CUstream s)
{
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
CUresult sim_capture_forbids_legacy(CUstream s)
{
    return CUDA_SUCCESS;
}
CUresult sim_capture_check_unsafe(void)
{
    return CUDA_SUCCESS;
}
CUresult sim_capture_check_event(CUevent e)
{
    return CUDA_SUCCESS;
}
CUresult sim_capture_invalidate_context(CUcontext c)
{
    return CUDA_SUCCESS;
}
CUresult sim_capture_record(CUstream s, CUevent e)
{
    return CUDA_SUCCESS;
}
CUresult sim_capture_wait(CUstream s, CUevent e)
{
    return CUDA_SUCCESS;
}
CUresult sim_capture_alloc(CUstream stream, size_t bytes, CUdeviceptr *address)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_free(CUstream stream, struct sim_range *range)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_graph_memory_free(struct sim_range *range, CUstream stream)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
void sim_capture_leave(CUstream s)
{
}
bool sim_ipc_event_open(CUevent e)
{
    return false;
}
void sim_ipc_event_close(CUevent e)
{
}
void sim_ipc_event_recorded(struct sim_ipc_event *e, uint64_t v)
{
}
void sim_ipc_event_reached(struct sim_ipc_event *e, uint64_t v)
{
}
bool sim_ipc_event_is_complete(const struct sim_ipc_event *e)
{
    return true;
}
uint64_t sim_ipc_event_latest(const struct sim_ipc_event *e)
{
    return 0;
}
bool sim_ipc_event_reached_version(const struct sim_ipc_event *e, uint64_t v)
{
    return true;
}
bool sim_array_is_valid(CUarray a)
{
    return false;
}
