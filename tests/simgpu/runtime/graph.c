/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes of each kind, translated between the runtime's structures and the driver's. */
#include "runtime.h"

#include <string.h>
#include <vector_types.h>

/* The structures without the tails that later headers added; 12 and 13 agree on these. */
struct kernel_params {
    const void *function;
    dim3 grid, block;
    unsigned shared_bytes;
    void **arguments, **extra;
};

static cudaError_t to_driver_kernel(const struct rt_driver *driver,
                                    const struct kernel_params *params,
                                    CUDA_KERNEL_NODE_PARAMS_v2 *out)
{
    memset(out, 0, sizeof(*out));
    out->gridDimX = params->grid.x;
    out->gridDimY = params->grid.y;
    out->gridDimZ = params->grid.z;
    out->blockDimX = params->block.x;
    out->blockDimY = params->block.y;
    out->blockDimZ = params->block.z;
    out->sharedMemBytes = params->shared_bytes;
    out->kernelParams = params->arguments;
    out->extra = params->extra;
    return rt_kernel_of(driver, params->function, &out->kern);
}

/* Every graph function that takes a kernel's parameters: enter, translate, call. */
#define RT_KERNEL_CALL(params, function, ...)                                      \
    __extension__({                                                                \
        const struct rt_driver *driver_ = NULL;                                    \
        CUDA_KERNEL_NODE_PARAMS_v2 kernel_;                                        \
        cudaError_t error_ =                                                       \
            params ? rt_enter(RT_LEGACY_STREAM, &driver_) : cudaErrorInvalidValue; \
        if (error_ == cudaSuccess) {                                               \
            error_ = to_driver_kernel(driver_, params, &kernel_);                  \
        }                                                                          \
        if (error_ == cudaSuccess) {                                               \
            error_ = RT_TRY(driver_, function, __VA_ARGS__);                       \
        }                                                                          \
        rt_note(error_);                                                           \
    })

RT_API(cudaGraphAddKernelNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const struct kernel_params *params))
{
    return RT_KERNEL_CALL(params, cuGraphAddKernelNode, node, graph, dependencies, count, &kernel_);
}

RT_API(cudaGraphKernelNodeSetParams, (cudaGraphNode_t node, const struct kernel_params *params))
{
    return RT_KERNEL_CALL(params, cuGraphKernelNodeSetParams, node, &kernel_);
}

RT_API(cudaGraphExecKernelNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct kernel_params *params))
{
    return RT_KERNEL_CALL(params, cuGraphExecKernelNodeSetParams, exec, node, &kernel_);
}

/* The function is returned as a kernel handle, which is accepted wherever a function is. */
RT_API(cudaGraphKernelNodeGetParams, (cudaGraphNode_t node, struct kernel_params *params))
{
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    memset(&kernel, 0, sizeof(kernel));
    cudaError_t error =
        params ? RT_CALL(cuGraphKernelNodeGetParams, node, &kernel) : cudaErrorInvalidValue;
    if (error == cudaSuccess && kernel.kern) {
        error = rt_kernel_give(kernel.kern);
    }
    if (error == cudaSuccess) {
        *params = (struct kernel_params){
            .function = kernel.kern ? (void *)kernel.kern : (void *)kernel.func,
            .grid = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
            .block = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
            .shared_bytes = kernel.sharedMemBytes,
            .arguments = kernel.kernelParams,
            .extra = kernel.extra,
        };
    }
    return rt_note(error);
}

RT_API(cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t to, cudaGraphNode_t from))
{
    return RT_CALL(cuGraphKernelNodeCopyAttributes, to, from);
}

RT_API(cudaGraphKernelNodeGetAttribute,
       (cudaGraphNode_t node, cudaLaunchAttributeID name, void *value))
{
    return RT_CALL(cuGraphKernelNodeGetAttribute, node, (CUkernelNodeAttrID)name, value);
}

RT_API(cudaGraphKernelNodeSetAttribute,
       (cudaGraphNode_t node, cudaLaunchAttributeID name, const void *value))
{
    return RT_CALL(cuGraphKernelNodeSetAttribute, node, (CUkernelNodeAttrID)name, value);
}

/* Copies and fills name their context: that of the calling thread. */
#define RT_COPY_CALL(params, function, ...)                        \
    __extension__({                                                \
        const struct rt_driver *driver_ = NULL;                    \
        CUDA_MEMCPY3D copy_;                                       \
        CUcontext context_ = NULL;                                 \
        cudaError_t error_ = rt_enter(RT_LEGACY_STREAM, &driver_); \
        if (error_ == cudaSuccess) {                               \
            error_ = rt_copy_3d(driver_, params, &copy_);          \
        }                                                          \
        if (error_ == cudaSuccess) {                               \
            error_ = RT_TRY(driver_, cuCtxGetCurrent, &context_);  \
        }                                                          \
        if (error_ == cudaSuccess) {                               \
            error_ = RT_TRY(driver_, function, __VA_ARGS__);       \
        }                                                          \
        (void)context_;                                            \
        rt_note(error_);                                           \
    })

RT_API(cudaGraphAddMemcpyNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const struct cudaMemcpy3DParms *params))
{
    return RT_COPY_CALL(params, cuGraphAddMemcpyNode, node, graph, dependencies, count, &copy_,
                        context_);
}

RT_API(cudaGraphMemcpyNodeSetParams, (cudaGraphNode_t node, const struct cudaMemcpy3DParms *params))
{
    return RT_COPY_CALL(params, cuGraphMemcpyNodeSetParams, node, &copy_);
}

RT_API(cudaGraphExecMemcpyNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemcpy3DParms *params))
{
    return RT_COPY_CALL(params, cuGraphExecMemcpyNodeSetParams, exec, node, &copy_, context_);
}

/* A one-dimensional copy is a 3D one of one row. */
static struct cudaMemcpy3DParms row(void *to, const void *from, size_t count,
                                    enum cudaMemcpyKind kind)
{
    return (struct cudaMemcpy3DParms){
        .srcPtr = {.ptr = (void *)(uintptr_t)from, .pitch = count, .xsize = count, .ysize = 1},
        .dstPtr = {.ptr = to, .pitch = count, .xsize = count, .ysize = 1},
        .extent = {.width = count, .height = 1, .depth = 1},
        .kind = kind,
    };
}

RT_API(cudaGraphAddMemcpyNode1D,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t number, void *to, const void *from, size_t count, enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params = row(to, from, count, kind);
    return RT_COPY_CALL(&params, cuGraphAddMemcpyNode, node, graph, dependencies, number, &copy_,
                        context_);
}

RT_API(cudaGraphMemcpyNodeSetParams1D,
       (cudaGraphNode_t node, void *to, const void *from, size_t count, enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params = row(to, from, count, kind);
    return RT_COPY_CALL(&params, cuGraphMemcpyNodeSetParams, node, &copy_);
}

RT_API(cudaGraphExecMemcpyNodeSetParams1D,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *from, size_t count,
        enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params = row(to, from, count, kind);
    return RT_COPY_CALL(&params, cuGraphExecMemcpyNodeSetParams, exec, node, &copy_, context_);
}

/* The copy's kind is not kept, because it follows from the two sides. */
RT_API(cudaGraphMemcpyNodeGetParams, (cudaGraphNode_t node, struct cudaMemcpy3DParms *params))
{
    CUDA_MEMCPY3D copy;
    memset(&copy, 0, sizeof(copy));
    cudaError_t error =
        params ? RT_CALL(cuGraphMemcpyNodeGetParams, node, &copy) : cudaErrorInvalidValue;
    if (error != cudaSuccess) {
        return rt_note(error);
    }
    int from_host = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
    int to_host = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
    int is_unified =
        copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED || copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED;
    void *from = from_host ? (void *)(uintptr_t)copy.srcHost : (void *)copy.srcDevice;
    void *to = to_host ? copy.dstHost : (void *)copy.dstDevice;
    *params = (struct cudaMemcpy3DParms){
        .srcArray = (cudaArray_t)copy.srcArray,
        .srcPos = {copy.srcXInBytes, copy.srcY, copy.srcZ},
        .srcPtr = {from, copy.srcPitch, copy.WidthInBytes, copy.srcHeight},
        .dstArray = (cudaArray_t)copy.dstArray,
        .dstPos = {copy.dstXInBytes, copy.dstY, copy.dstZ},
        .dstPtr = {to, copy.dstPitch, copy.WidthInBytes, copy.dstHeight},
        .extent = {copy.WidthInBytes, copy.Height, copy.Depth},
        .kind = is_unified  ? cudaMemcpyDefault
                : from_host ? (to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                            : (to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice),
    };
    return cudaSuccess;
}

/* A row to or from a device variable. */
static cudaError_t symbol_row(const void *symbol, const void *other, int to_symbol, size_t count,
                              size_t offset, enum cudaMemcpyKind kind,
                              struct cudaMemcpy3DParms *out)
{
    const struct rt_driver *driver = NULL;
    CUdeviceptr address = 0;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_range(driver, symbol, offset, count, &address);
    }
    void *given = (void *)(uintptr_t)other;
    *out = to_symbol ? row((void *)address, given, count, kind)
                     : row(given, (void *)address, count, kind);
    return rt_note(error);
}

RT_API(cudaGraphAddMemcpyNodeToSymbol,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t number, const void *symbol, const void *from, size_t count, size_t offset,
        enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params;
    cudaError_t error = symbol_row(symbol, from, 1, count, offset, kind, &params);
    return error == cudaSuccess ? RT_COPY_CALL(&params, cuGraphAddMemcpyNode, node, graph,
                                               dependencies, number, &copy_, context_)
                                : error;
}

RT_API(cudaGraphAddMemcpyNodeFromSymbol,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t number, void *to, const void *symbol, size_t count, size_t offset,
        enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params;
    cudaError_t error = symbol_row(symbol, to, 0, count, offset, kind, &params);
    return error == cudaSuccess ? RT_COPY_CALL(&params, cuGraphAddMemcpyNode, node, graph,
                                               dependencies, number, &copy_, context_)
                                : error;
}

RT_API(cudaGraphMemcpyNodeSetParamsToSymbol,
       (cudaGraphNode_t node, const void *symbol, const void *from, size_t count, size_t offset,
        enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params;
    cudaError_t error = symbol_row(symbol, from, 1, count, offset, kind, &params);
    return error == cudaSuccess ? RT_COPY_CALL(&params, cuGraphMemcpyNodeSetParams, node, &copy_)
                                : error;
}

RT_API(cudaGraphMemcpyNodeSetParamsFromSymbol,
       (cudaGraphNode_t node, void *to, const void *symbol, size_t count, size_t offset,
        enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params;
    cudaError_t error = symbol_row(symbol, to, 0, count, offset, kind, &params);
    return error == cudaSuccess ? RT_COPY_CALL(&params, cuGraphMemcpyNodeSetParams, node, &copy_)
                                : error;
}

RT_API(cudaGraphExecMemcpyNodeSetParamsToSymbol,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const void *symbol, const void *from,
        size_t count, size_t offset, enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params;
    cudaError_t error = symbol_row(symbol, from, 1, count, offset, kind, &params);
    return error == cudaSuccess
               ? RT_COPY_CALL(&params, cuGraphExecMemcpyNodeSetParams, exec, node, &copy_, context_)
               : error;
}

RT_API(cudaGraphExecMemcpyNodeSetParamsFromSymbol,
       (cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *symbol, size_t count,
        size_t offset, enum cudaMemcpyKind kind))
{
    struct cudaMemcpy3DParms params;
    cudaError_t error = symbol_row(symbol, to, 0, count, offset, kind, &params);
    return error == cudaSuccess
               ? RT_COPY_CALL(&params, cuGraphExecMemcpyNodeSetParams, exec, node, &copy_, context_)
               : error;
}

/* cudaMemsetParams is CUDA_MEMSET_NODE_PARAMS with a pointer type changed. */
_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS) &&
                   offsetof(struct cudaMemsetParams, height) ==
                       offsetof(CUDA_MEMSET_NODE_PARAMS, height),
               "memset parameters are laid out alike");

#define RT_FILL_CALL(function, ...)                                \
    __extension__({                                                \
        const struct rt_driver *driver_ = NULL;                    \
        CUcontext context_ = NULL;                                 \
        cudaError_t error_ = rt_enter(RT_LEGACY_STREAM, &driver_); \
        if (error_ == cudaSuccess) {                               \
            error_ = RT_TRY(driver_, cuCtxGetCurrent, &context_);  \
        }                                                          \
        if (error_ == cudaSuccess) {                               \
            error_ = RT_TRY(driver_, function, __VA_ARGS__);       \
        }                                                          \
        rt_note(error_);                                           \
    })

RT_API(cudaGraphAddMemsetNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const struct cudaMemsetParams *params))
{
    return RT_FILL_CALL(cuGraphAddMemsetNode, node, graph, dependencies, count,
                        (const CUDA_MEMSET_NODE_PARAMS *)params, context_);
}

RT_API(cudaGraphMemsetNodeGetParams, (cudaGraphNode_t node, struct cudaMemsetParams *params))
{
    return RT_CALL(cuGraphMemsetNodeGetParams, node, (CUDA_MEMSET_NODE_PARAMS *)params);
}

RT_API(cudaGraphMemsetNodeSetParams, (cudaGraphNode_t node, const struct cudaMemsetParams *params))
{
    return RT_CALL(cuGraphMemsetNodeSetParams, node, (const CUDA_MEMSET_NODE_PARAMS *)params);
}

RT_API(cudaGraphExecMemsetNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemsetParams *params))
{
    return RT_FILL_CALL(cuGraphExecMemsetNodeSetParams, exec, node,
                        (const CUDA_MEMSET_NODE_PARAMS *)params, context_);
}

RT_API(cudaGraphAddHostNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, const struct cudaHostNodeParams *params))
{
    return RT_CALL(cuGraphAddHostNode, node, graph, dependencies, count,
                   (const CUDA_HOST_NODE_PARAMS *)params);
}

RT_API(cudaGraphHostNodeGetParams, (cudaGraphNode_t node, struct cudaHostNodeParams *params))
{
    return RT_CALL(cuGraphHostNodeGetParams, node, (CUDA_HOST_NODE_PARAMS *)params);
}

RT_API(cudaGraphHostNodeSetParams, (cudaGraphNode_t node, const struct cudaHostNodeParams *params))
{
    return RT_CALL(cuGraphHostNodeSetParams, node, (const CUDA_HOST_NODE_PARAMS *)params);
}

RT_API(cudaGraphExecHostNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaHostNodeParams *params))
{
    return RT_CALL(cuGraphExecHostNodeSetParams, exec, node, (const CUDA_HOST_NODE_PARAMS *)params);
}

RT_API(cudaGraphAddChildGraphNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, cudaGraph_t child))
{
    return RT_CALL(cuGraphAddChildGraphNode, node, graph, dependencies, count, child);
}

RT_API(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *child))
{
    return RT_CALL(cuGraphChildGraphNodeGetGraph, node, child);
}

RT_API(cudaGraphExecChildGraphNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child))
{
    return RT_CALL(cuGraphExecChildGraphNodeSetParams, exec, node, child);
}

RT_API(cudaGraphAddEmptyNode, (cudaGraphNode_t * node, cudaGraph_t graph,
                               const cudaGraphNode_t *dependencies, size_t count))
{
    return RT_CALL(cuGraphAddEmptyNode, node, graph, dependencies, count);
}

RT_API(cudaGraphAddEventRecordNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, cudaEvent_t event))
{
    return RT_CALL(cuGraphAddEventRecordNode, node, graph, dependencies, count, event);
}

RT_API(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event))
{
    return RT_CALL(cuGraphEventRecordNodeGetEvent, node, event);
}

RT_API(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event))
{
    return RT_CALL(cuGraphEventRecordNodeSetEvent, node, event);
}

RT_API(cudaGraphExecEventRecordNodeSetEvent,
       (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event))
{
    return RT_CALL(cuGraphExecEventRecordNodeSetEvent, exec, node, event);
}

RT_API(cudaGraphAddEventWaitNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, cudaEvent_t event))
{
    return RT_CALL(cuGraphAddEventWaitNode, node, graph, dependencies, count, event);
}

RT_API(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event))
{
    return RT_CALL(cuGraphEventWaitNodeGetEvent, node, event);
}

RT_API(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event))
{
    return RT_CALL(cuGraphEventWaitNodeSetEvent, node, event);
}

RT_API(cudaGraphExecEventWaitNodeSetEvent,
       (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event))
{
    return RT_CALL(cuGraphExecEventWaitNodeSetEvent, exec, node, event);
}

RT_API(cudaGraphAddMemAllocNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, struct cudaMemAllocNodeParams *params))
{
    return RT_CALL(cuGraphAddMemAllocNode, node, graph, dependencies, count,
                   (CUDA_MEM_ALLOC_NODE_PARAMS *)params);
}

RT_API(cudaGraphMemAllocNodeGetParams,
       (cudaGraphNode_t node, struct cudaMemAllocNodeParams *params))
{
    return RT_CALL(cuGraphMemAllocNodeGetParams, node, (CUDA_MEM_ALLOC_NODE_PARAMS *)params);
}

RT_API(cudaGraphAddMemFreeNode, (cudaGraphNode_t * node, cudaGraph_t graph,
                                 const cudaGraphNode_t *dependencies, size_t count, void *pointer))
{
    return RT_CALL(cuGraphAddMemFreeNode, node, graph, dependencies, count, (CUdeviceptr)pointer);
}

RT_API(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *pointer))
{
    return RT_CALL(cuGraphMemFreeNodeGetParams, node, (CUdeviceptr *)pointer);
}

/* cudaGraphNodeParams and CUgraphNodeParams are tagged unions of one size. Kernels, copies and
   fills differ inside; every other kind is laid out alike. */
struct node_params {
    int type, reserved0[3];
    union {
        long long reserved1[29];
        struct kernel_params kernel;
        struct {
            int flags, reserved[3];
            struct cudaMemcpy3DParms copy;
        } memcpy;
    };
    long long reserved2;
};
_Static_assert(sizeof(struct node_params) == sizeof(CUgraphNodeParams), "one size");

static cudaError_t to_driver_node(const struct rt_driver *driver, const struct node_params *params,
                                  CUgraphNodeParams *out)
{
    CUcontext context = NULL;
    cudaError_t error = RT_TRY(driver, cuCtxGetCurrent, &context);
    if (error != cudaSuccess) {
        return error;
    }
    memcpy(out, params, sizeof(*out));
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 kernel;
        memset(&out->kernel, 0, sizeof(out->kernel));
        error = to_driver_kernel(driver, &params->kernel, &kernel);
        memcpy(&out->kernel, &kernel, sizeof(kernel));
        return error;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        memset(&out->memcpy, 0, sizeof(out->memcpy));
        out->memcpy.flags = params->memcpy.flags;
        out->memcpy.copyCtx = context;
        return rt_copy_3d(driver, &params->memcpy.copy, &out->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        out->memset.ctx = context;
        return cudaSuccess;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        out->conditional.ctx = context;
        return cudaSuccess;
    default:
        return cudaSuccess;
    }
}

/* The bodies of conditional nodes and the addresses of allocation nodes are outputs. */
static void give_answers(const CUgraphNodeParams *from, struct node_params *to)
{
    CUgraphNodeParams answers;
    memcpy(&answers, to, sizeof(answers));
    if (from->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        answers.conditional.phGraph_out = from->conditional.phGraph_out;
    } else if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        answers.alloc.dptr = from->alloc.dptr;
    } else {
        return;
    }
    memcpy(to, &answers, sizeof(*to));
}

static cudaError_t add_node(cudaGraphNode_t *node, cudaGraph_t graph,
                            const cudaGraphNode_t *dependencies, const void *edges, int with_edges,
                            size_t count, struct node_params *params)
{
    const struct rt_driver *driver = NULL;
    CUgraphNodeParams translated;
    cudaError_t error = params ? rt_enter(RT_LEGACY_STREAM, &driver) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = to_driver_node(driver, params, &translated);
    }
    if (error != cudaSuccess) {
        return error;
    }
    error =
        with_edges
            ? RT_TRY(driver, cuGraphAddNode, node, graph, dependencies, edges, count, &translated)
            : RT_TRY(driver, cuGraphAddNode_plain, node, graph, dependencies, count, &translated);
    if (error == cudaSuccess) {
        give_answers(&translated, params);
    }
    return error;
}

RT_API(cudaGraphNodeSetParams, (cudaGraphNode_t node, struct node_params *params))
{
    const struct rt_driver *driver = NULL;
    CUgraphNodeParams translated;
    cudaError_t error = params ? rt_enter(RT_LEGACY_STREAM, &driver) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = to_driver_node(driver, params, &translated);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuGraphNodeSetParams, node, &translated);
    }
    return rt_note(error);
}

RT_API(cudaGraphExecNodeSetParams,
       (cudaGraphExec_t exec, cudaGraphNode_t node, struct node_params *params))
{
    const struct rt_driver *driver = NULL;
    CUgraphNodeParams translated;
    cudaError_t error = params ? rt_enter(RT_LEGACY_STREAM, &driver) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = to_driver_node(driver, params, &translated);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuGraphExecNodeSetParams, exec, node, &translated);
    }
    return rt_note(error);
}

/* Functions on dependencies have edge data: in CUDA 12 those named _v2, in 13 the only ones. */
#if RT_ABI == 12
#    define WITH_EDGES(name) name##_v2

RT_API(cudaGraphAddNode,
       (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
        size_t count, struct node_params *params))
{
    return rt_note(add_node(node, graph, dependencies, NULL, 0, count, params));
}

RT_API(cudaGraphGetEdges,
       (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *count))
{
    return RT_CALL(cuGraphGetEdges_plain, graph, from, to, count);
}

RT_API(cudaGraphNodeGetDependencies,
       (cudaGraphNode_t node, cudaGraphNode_t *dependencies, size_t *count))
{
    return RT_CALL(cuGraphNodeGetDependencies_plain, node, dependencies, count);
}

RT_API(cudaGraphNodeGetDependentNodes,
       (cudaGraphNode_t node, cudaGraphNode_t *dependents, size_t *count))
{
    return RT_CALL(cuGraphNodeGetDependentNodes_plain, node, dependents, count);
}

RT_API(cudaGraphAddDependencies,
       (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count))
{
    return RT_CALL(cuGraphAddDependencies_plain, graph, from, to, count);
}

RT_API(cudaGraphRemoveDependencies,
       (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count))
{
    return RT_CALL(cuGraphRemoveDependencies_plain, graph, from, to, count);
}
#else
#    define WITH_EDGES(name) name
#endif
/* Expands the name before RT_API turns it into a symbol. */
#define RT_EDGE_API(name, params)       RT_EDGE_API_NAMED(WITH_EDGES(name), params)
#define RT_EDGE_API_NAMED(name, params) RT_API(name, params)

RT_EDGE_API(cudaGraphAddNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
             const void *edges, size_t count, struct node_params *params))
{
    return rt_note(add_node(node, graph, dependencies, edges, 1, count, params));
}

RT_EDGE_API(cudaGraphGetEdges, (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                                void *edges, size_t *count))
{
    return RT_CALL(cuGraphGetEdges, graph, from, to, edges, count);
}

RT_EDGE_API(cudaGraphNodeGetDependencies,
            (cudaGraphNode_t node, cudaGraphNode_t *dependencies, void *edges, size_t *count))
{
    return RT_CALL(cuGraphNodeGetDependencies, node, dependencies, edges, count);
}

RT_EDGE_API(cudaGraphNodeGetDependentNodes,
            (cudaGraphNode_t node, cudaGraphNode_t *dependents, void *edges, size_t *count))
{
    return RT_CALL(cuGraphNodeGetDependentNodes, node, dependents, edges, count);
}

RT_EDGE_API(cudaGraphAddDependencies, (cudaGraph_t graph, const cudaGraphNode_t *from,
                                       const cudaGraphNode_t *to, const void *edges, size_t count))
{
    return RT_CALL(cuGraphAddDependencies, graph, from, to, edges, count);
}

RT_EDGE_API(cudaGraphRemoveDependencies,
            (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
             const void *edges, size_t count))
{
    return RT_CALL(cuGraphRemoveDependencies, graph, from, to, edges, count);
}

RT_API(cudaGraphCreate, (cudaGraph_t * graph, unsigned flags))
{
    return RT_CALL(cuGraphCreate, graph, flags);
}

RT_API(cudaGraphDestroy, (cudaGraph_t graph))
{
    return RT_CALL(cuGraphDestroy, graph);
}

RT_API(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t original))
{
    return RT_CALL(cuGraphClone, clone, original);
}

RT_API(cudaGraphNodeFindInClone,
       (cudaGraphNode_t * node, cudaGraphNode_t original, cudaGraph_t clone))
{
    return RT_CALL(cuGraphNodeFindInClone, node, original, clone);
}

RT_API(cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *type))
{
    return RT_CALL(cuGraphNodeGetType, node, (CUgraphNodeType *)type);
}

RT_API(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count))
{
    return RT_CALL(cuGraphGetNodes, graph, nodes, count);
}

RT_API(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count))
{
    return RT_CALL(cuGraphGetRootNodes, graph, nodes, count);
}

RT_API(cudaGraphDestroyNode, (cudaGraphNode_t node))
{
    return RT_CALL(cuGraphDestroyNode, node);
}

RT_API(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags))
{
    return RT_CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

RT_API(cudaGraphInstantiateWithFlags,
       (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags))
{
    return RT_CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

RT_API(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags))
{
    return RT_CALL(cuGraphExecGetFlags, exec, (cuuint64_t *)flags);
}

RT_API(cudaGraphExecUpdate,
       (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result))
{
    return RT_CALL(cuGraphExecUpdate, exec, graph, (CUgraphExecUpdateResultInfo *)result);
}

RT_API(cudaGraphExecDestroy, (cudaGraphExec_t exec))
{
    return RT_CALL(cuGraphExecDestroy, exec);
}

RT_API(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled))
{
    return RT_CALL(cuGraphNodeSetEnabled, exec, node, enabled);
}

RT_API(cudaGraphNodeGetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned *enabled))
{
    return RT_CALL(cuGraphNodeGetEnabled, exec, node, enabled);
}

RT_API(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned flags))
{
    return RT_CALL(cuGraphDebugDotPrint, graph, path, flags);
}

RT_API(cudaGraphConditionalHandleCreate,
       (cudaGraphConditionalHandle * handle, cudaGraph_t graph, unsigned value, unsigned flags))
{
    const struct rt_driver *driver = NULL;
    CUcontext context = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuCtxGetCurrent, &context);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuGraphConditionalHandleCreate, (CUgraphConditionalHandle *)handle,
                       graph, context, value, flags);
    }
    return rt_note(error);
}

RT_API(cudaUserObjectCreate, (cudaUserObject_t * object, void *pointer, cudaHostFn_t destroy,
                              unsigned count, unsigned flags))
{
    return RT_CALL(cuUserObjectCreate, (CUuserObject *)object, pointer, destroy, count, flags);
}

RT_API(cudaUserObjectRetain, (cudaUserObject_t object, unsigned count))
{
    return RT_CALL(cuUserObjectRetain, (CUuserObject)object, count);
}

RT_API(cudaUserObjectRelease, (cudaUserObject_t object, unsigned count))
{
    return RT_CALL(cuUserObjectRelease, (CUuserObject)object, count);
}

RT_API(cudaGraphRetainUserObject,
       (cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags))
{
    return RT_CALL(cuGraphRetainUserObject, graph, (CUuserObject)object, count, flags);
}

RT_API(cudaGraphReleaseUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned count))
{
    return RT_CALL(cuGraphReleaseUserObject, graph, (CUuserObject)object, count);
}
