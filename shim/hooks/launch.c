/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in which the driver takes device memory by itself. They are measured and charged to the
 * context. If the driver ran out of memory and the pool could give some back, they are tried once
 * more. */
#include "shim/device/addresses/ledger.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/graph_memory.h"
#include "shim/device/overhead.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/driver/seen.h"
#include "shim/hooks/serve.h"
#include "shim/policy/graph_heat.h"
#include "shim/policy/heat.h"
#include "shim/policy/parameters.h"

struct launch_watch {
    struct ms_context *context; /* null: nothing is measured */
    struct ms_measure measure;
    enum ms_charge_reason reason;
    bool retried;
};

/* On an error the driver must not be called, because nobody would know what to charge to which
 * context. No context is no error: only the driver knows whether the call needs one, or is invalid
 * anyway. */
static CUresult watch_begin(struct launch_watch *watch, enum ms_charge_reason reason)
{
    *watch = (struct launch_watch){.reason = reason};
    CUresult result = ms_context_query(&watch->context);
    if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_CONTEXT ||
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return CUDA_SUCCESS;
    }
    if (watch->context) {
        ms_measure_begin(watch->context->device, &watch->measure);
    }
    return result;
}

static bool again(bool *retried, CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY || *retried) {
        return false;
    }
    *retried = true;
    struct ms_device *device = ms_device_current();
    return device && ms_device_make_room(device, ms_options()->wait_ns);
}

/* Enters what was taken for a handle. What was taken for it before is added: a library may be
 * loaded long after its handle was made. */
static void note_taken(const struct launch_watch *watch, const void *handle, uint64_t bytes)
{
    struct ms_grant before;
    struct ms_grant displaced;
    struct ms_grant grant = {.name = (uint64_t)(uintptr_t)handle,
                             .extent_bytes = bytes,
                             .holder = watch->context,
                             .space = MS_SPACE_HANDLE,
                             .kind = MS_GRANT_OVERHEAD,
                             .device = watch->context->device->ordinal,
                             .reason = (uint8_t)watch->reason};
    if (ms_ledger_take(MS_SPACE_HANDLE, grant.name, &before) && before.holder == grant.holder) {
        grant.extent_bytes += before.extent_bytes;
    }
    (void)ms_ledger_put(&grant, &displaced);
}

/* Charges what the driver took. handle: what the call made, or looked into, and a later call can
 * destroy; null if nothing. */
static CUresult watch_end(struct launch_watch *watch, CUresult result, const void *handle)
{
    if (result != CUDA_SUCCESS || !watch->context) {
        return result;
    }
    int64_t taken = ms_measure_charge(&watch->measure, watch->context, watch->reason);
    if (taken < 0) {
        if (watch->reason == MS_CHARGE_LIMIT) {
            ms_overhead_discharge(watch->context, watch->reason, (uint64_t)-taken);
        }
        return result;
    }
    if (handle && taken > 0) {
        note_taken(watch, handle, (uint64_t)taken);
    }
    return result;
}

/* Evaluates `call` once, or twice if the driver ran out of memory the first time. */
#define WATCHED(charge_reason, call, handle)                                       \
    do {                                                                           \
        struct launch_watch watch_;                                                \
        CUresult result_ = watch_begin(&watch_, (charge_reason));                  \
        if (result_ != CUDA_SUCCESS) {                                             \
            return result_;                                                        \
        }                                                                          \
        do {                                                                       \
            result_ = (call);                                                      \
        } while (again(&watch_.retried, result_));                                 \
        return watch_end(&watch_, result_,                                         \
                         result_ == CUDA_SUCCESS ? (const void *)(handle) : NULL); \
    } while (0)

/* Discharges what was charged for this handle, as far as the driver gave it back. */
static CUresult destroyed(CUresult (*destroy)(void *), void *handle)
{
    struct ms_grant grant;
    struct ms_grant displaced;
    struct ms_measure measure = {0};
    struct ms_device *device = NULL;
    bool known = ms_ledger_take(MS_SPACE_HANDLE, (uint64_t)(uintptr_t)handle, &grant);
    if (known) {
        device = ms_device_get(grant.device);
        ms_measure_begin(device, &measure);
    }
    CUresult result = destroy(handle);
    if (known && result == CUDA_SUCCESS) {
        int64_t back = -ms_measure_end(&measure);
        uint64_t most = grant.extent_bytes;
        if (back > 0) {
            ms_overhead_discharge(grant.holder, grant.reason,
                                  (uint64_t)back < most ? (uint64_t)back : most);
        }
    } else if (known) {
        (void)ms_ledger_put(&grant, &displaced);
    }
    return result;
}

/* --- limits ----------------------------------------------------------------------------------- */

CUresult ms_serve_cuCtxSetLimit(CUlimit limit, size_t value)
{
    WATCHED(MS_CHARGE_LIMIT, MS_REAL(cuCtxSetLimit)(limit, value), NULL);
}

/* --- modules and libraries -------------------------------------------------------------------- */

CUresult ms_serve_cuModuleLoad(CUmodule *module, const char *fname)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuModuleLoad)(module, fname), *module);
}

CUresult ms_serve_cuModuleLoadData(CUmodule *module, const void *image)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuModuleLoadData)(module, image), *module);
}

CUresult ms_serve_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                     CUjit_option *options, void **optionValues)
{
    WATCHED(MS_CHARGE_MODULE,
            MS_REAL(cuModuleLoadDataEx)(module, image, numOptions, options, optionValues), *module);
}

CUresult ms_serve_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuModuleLoadFatBinary)(module, fatCubin), *module);
}

static CUresult unload_module(void *module)
{
    return MS_REAL(cuModuleUnload)(module);
}

CUresult ms_serve_cuModuleUnload(CUmodule hmod)
{
    ms_parameters_forget();
    return destroyed(unload_module, hmod);
}

static CUresult function(CUresult result, const CUfunction *given)
{
    if (result == CUDA_SUCCESS) {
        ms_parameters_note_function(*given);
    }
    return result;
}

CUresult ms_serve_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    WATCHED(MS_CHARGE_MODULE, function(MS_REAL(cuModuleGetFunction)(hfunc, hmod, name), hfunc),
            hmod);
}

CUresult ms_serve_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                    void **jitOptionsValues, unsigned int numJitOptions,
                                    CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                    unsigned int numLibraryOptions)
{
    WATCHED(MS_CHARGE_MODULE,
            MS_REAL(cuLibraryLoadData)(library, code, jitOptions, jitOptionsValues, numJitOptions,
                                       libraryOptions, libraryOptionValues, numLibraryOptions),
            *library);
}

CUresult ms_serve_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
                                        CUjit_option *jitOptions, void **jitOptionsValues,
                                        unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                        void **libraryOptionValues, unsigned int numLibraryOptions)
{
    WATCHED(MS_CHARGE_MODULE,
            MS_REAL(cuLibraryLoadFromFile)(library, fileName, jitOptions, jitOptionsValues,
                                           numJitOptions, libraryOptions, libraryOptionValues,
                                           numLibraryOptions),
            *library);
}

static CUresult unload_library(void *library)
{
    return MS_REAL(cuLibraryUnload)(library);
}

CUresult ms_serve_cuLibraryUnload(CUlibrary library)
{
    ms_parameters_forget();
    return destroyed(unload_library, library);
}

CUresult ms_serve_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult result = MS_REAL(cuLibraryGetKernel)(pKernel, library, name);
    if (result == CUDA_SUCCESS) {
        ms_parameters_note_kernel(*pKernel);
    }
    return result;
}

CUresult ms_serve_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels,
                                            CUlibrary lib)
{
    unsigned int count = 0;
    CUresult result = MS_REAL(cuLibraryEnumerateKernels)(kernels, numKernels, lib);
    if (result == CUDA_SUCCESS &&
        ms_driver()->cuLibraryGetKernelCount(&count, lib) == CUDA_SUCCESS) {
        for (unsigned int i = 0; i < count && i < numKernels; i++) {
            ms_parameters_note_kernel(kernels[i]);
        }
    }
    return result;
}

/* With lazy loading the driver loads a library into a context only when it is asked what is in it;
 * and a variable has memory no sooner. */
CUresult ms_serve_cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
                                    const char *name)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuModuleGetGlobal)(dptr, bytes, hmod, name), hmod);
}

CUresult ms_serve_cuModuleGetGlobal_v2(CUdeviceptr_v2 *dptr, size_t *bytes, CUmodule hmod,
                                       const char *name)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuModuleGetGlobal_v2)(dptr, bytes, hmod, name), hmod);
}

CUresult ms_serve_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuLibraryGetModule)(pMod, library), library);
}

CUresult ms_serve_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                     const char *name)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuLibraryGetGlobal)(dptr, bytes, library, name), library);
}

CUresult ms_serve_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                      const char *name)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuLibraryGetManaged)(dptr, bytes, library, name), library);
}

CUresult ms_serve_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    if (ms_seen(kernel)) {
        return function(MS_REAL(cuKernelGetFunction)(pFunc, kernel), pFunc);
    }
    WATCHED(MS_CHARGE_MODULE, function(MS_REAL(cuKernelGetFunction)(pFunc, kernel), pFunc), NULL);
}

CUresult ms_serve_cuFuncLoad(CUfunction hfunc)
{
    WATCHED(MS_CHARGE_MODULE, MS_REAL(cuFuncLoad)(hfunc), NULL);
}

/* --- graphs ----------------------------------------------------------------------------------- */

static CUresult made(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
    if (result == CUDA_SUCCESS) {
        ms_graph_heat_made(*exec, graph);
        ms_graph_memory_made(*exec, graph);
    }
    return result;
}

CUresult ms_serve_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    WATCHED(
        MS_CHARGE_GRAPH,
        made(MS_REAL(cuGraphInstantiate)(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
             phGraphExec, hGraph),
        *phGraphExec);
}

CUresult ms_serve_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
                                        CUgraphNode *phErrorNode, char *logBuffer,
                                        size_t bufferSize)
{
    WATCHED(MS_CHARGE_GRAPH,
            made(MS_REAL(cuGraphInstantiate_v2)(phGraphExec, hGraph, phErrorNode, logBuffer,
                                                bufferSize),
                 phGraphExec, hGraph),
            *phGraphExec);
}

CUresult ms_serve_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                              unsigned long long flags)
{
    WATCHED(
        MS_CHARGE_GRAPH,
        made(MS_REAL(cuGraphInstantiateWithFlags)(phGraphExec, hGraph, flags), phGraphExec, hGraph),
        *phGraphExec);
}

CUresult ms_serve_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                               CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    WATCHED(MS_CHARGE_GRAPH,
            made(MS_REAL(cuGraphInstantiateWithParams)(phGraphExec, hGraph, instantiateParams),
                 phGraphExec, hGraph),
            *phGraphExec);
}

CUresult
ms_serve_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    WATCHED(MS_CHARGE_GRAPH,
            made(MS_REAL(cuGraphInstantiateWithParams_ptsz)(phGraphExec, hGraph, instantiateParams),
                 phGraphExec, hGraph),
            *phGraphExec);
}

typedef CUresult send_graph(CUgraphExec exec, CUstream stream);

/* What the graph's allocations took is charged at once. */
static CUresult sent(send_graph *send, CUgraphExec exec, CUstream stream, bool allocates)
{
    if (!allocates) {
        return ms_graph_memory_launched(MS_GATED(send(exec, stream)));
    }
    ms_graph_memory_change_begins();
    const CUresult result = MS_GATED(send(exec, stream));
    ms_graph_memory_change_ends();
    return ms_graph_memory_launched(result);
}

/* The first time: the driver takes memory for more than the graph's allocations. */
static CUresult watched(send_graph *send, CUgraphExec exec, CUstream stream, bool allocates)
{
    WATCHED(MS_CHARGE_GRAPH, sent(send, exec, stream, allocates), NULL);
}

static CUresult sent_or_again(send_graph *send, CUgraphExec exec, CUstream stream)
{
    bool retried = false;
    CUresult result;
    do {
        result = sent(send, exec, stream, true);
    } while (again(&retried, result));
    return result;
}

/* An upload or a launch with which the graph's allocations get their memory. */
static CUresult supplied(send_graph *send, CUgraphExec exec, CUstream stream, bool first)
{
    const struct ms_graph_room room = ms_graph_memory_expect(exec);
    const CUresult result =
        first ? watched(send, exec, stream, true) : sent_or_again(send, exec, stream);
    ms_graph_memory_came(&room, result);
    return result;
}

static CUresult upload(send_graph *send, CUgraphExec exec, CUstream stream)
{
    const enum ms_graph_memory memory = ms_graph_memory_of(exec);
    return memory == MS_GRAPH_MEMORY_LACKS
               ? supplied(send, exec, stream, true)
               : watched(send, exec, stream, memory != MS_GRAPH_MEMORY_NONE);
}

CUresult ms_serve_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
    return upload(MS_REAL(cuGraphUpload), hGraph, hStream);
}

CUresult ms_serve_cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    return upload(MS_REAL(cuGraphUpload_ptsz), hGraphExec, hStream);
}

static CUresult destroy_graph(void *graph)
{
    ms_graph_memory_change_begins();
    const CUresult result = MS_REAL(cuGraphExecDestroy)(graph);
    ms_graph_memory_change_ends();
    return ms_graph_memory_launched(result);
}

CUresult ms_serve_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    ms_unseen(hGraphExec); /* another graph may get its address */
    ms_graph_heat_gone(hGraphExec);
    ms_graph_memory_gone(hGraphExec);
    return destroyed(destroy_graph, hGraphExec);
}

CUresult ms_serve_cuDeviceGraphMemTrim(CUdevice device)
{
    ms_graph_memory_change_begins();
    const CUresult result = MS_REAL(cuDeviceGraphMemTrim)(device);
    ms_graph_memory_change_ends();
    if (result == CUDA_SUCCESS) {
        ms_graph_memory_trimmed(device);
    }
    return ms_graph_memory_launched(result);
}

/* --- launches --------------------------------------------------------------------------------- */

/* Whether a launch of this function takes only memory that was measured before: the function was
 * launched before, so its code is loaded, and so was something in its context. */
static bool launched_before(const void *function)
{
    if (atomic_load_explicit(&ms_contexts_unlaunched, memory_order_relaxed) == 0) {
        return ms_seen(function);
    }
    struct ms_context *context = ms_context_current();
    bool first = context && !ms_captures_running() && !atomic_exchange(&context->launched, true);
    if (first) {
        atomic_fetch_sub(&ms_contexts_unlaunched, 1);
        ms_gate_watch_launches(false);
    }
    return ms_seen(function) && !first;
}

/* A launch of a graph that needs nothing that was not measured before. How much memory its
 * allocations take on this stream only the driver knows: room is made once it has too little. */
static CUresult launch_known(send_graph *send, CUgraphExec exec, CUstream stream, bool allocates)
{
    if (!allocates) {
        return MS_GATED(send(exec, stream));
    }
    const CUresult result = sent(send, exec, stream, true);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? supplied(send, exec, stream, false) : result;
}

/* A launch that failed was not the first: the next one takes the memory. */
static CUresult launch_graph(send_graph *send, CUgraphExec exec, CUstream stream)
{
    const bool first = !ms_seen(exec);
    const enum ms_graph_memory memory = ms_graph_memory_of(exec);
    CUresult result;
    if (memory == MS_GRAPH_MEMORY_LACKS) {
        result = supplied(send, exec, stream, first);
    } else if (first) {
        result = watched(send, exec, stream, memory != MS_GRAPH_MEMORY_NONE);
    } else {
        result = launch_known(send, exec, stream, memory == MS_GRAPH_MEMORY_HAD);
    }
    if (result == CUDA_SUCCESS && ms_heat_is_on()) {
        ms_graph_heat_launched(exec);
    } else if (result != CUDA_SUCCESS && first) {
        ms_unseen(exec);
    }
    return result;
}

CUresult ms_serve_cuGraphLaunch(CUgraphExec f, CUstream hStream)
{
    return launch_graph(MS_REAL(cuGraphLaunch), f, hStream);
}

CUresult ms_serve_cuGraphLaunch_ptsz(CUgraphExec f, CUstream hStream)
{
    return launch_graph(MS_REAL(cuGraphLaunch_ptsz), f, hStream);
}

/* A launch of a known function can run out of memory, too, because local memory grows with the
 * grid. */
#define LAUNCHED(function, call, parameters, extra)                                         \
    do {                                                                                    \
        if (launched_before(function)) {                                                    \
            bool retried_ = false;                                                          \
            CUresult result_;                                                               \
            do {                                                                            \
                result_ = MS_GATED(call);                                                   \
            } while (again(&retried_, result_));                                            \
            return ms_heat_launched(result_, (function), (parameters), (extra));            \
        }                                                                                   \
        WATCHED(MS_CHARGE_LAUNCH,                                                           \
                ms_heat_launched(MS_GATED(call), (function), (parameters), (extra)), NULL); \
    } while (0)

CUresult ms_serve_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                 unsigned int gridDimZ, unsigned int blockDimX,
                                 unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, CUstream hStream, void **kernelParams,
                                 void **extra)
{
    LAUNCHED(f,
             MS_REAL(cuLaunchKernel)(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                     blockDimZ, sharedMemBytes, hStream, kernelParams, extra),
             kernelParams, extra);
}

CUresult ms_serve_cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                      unsigned int gridDimZ, unsigned int blockDimX,
                                      unsigned int blockDimY, unsigned int blockDimZ,
                                      unsigned int sharedMemBytes, CUstream hStream,
                                      void **kernelParams, void **extra)
{
    LAUNCHED(f,
             MS_REAL(cuLaunchKernel_ptsz)(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                          blockDimZ, sharedMemBytes, hStream, kernelParams, extra),
             kernelParams, extra);
}

CUresult ms_serve_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                                   void **extra)
{
    LAUNCHED(f, MS_REAL(cuLaunchKernelEx)(config, f, kernelParams, extra), kernelParams, extra);
}

CUresult ms_serve_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f,
                                        void **kernelParams, void **extra)
{
    LAUNCHED(f, MS_REAL(cuLaunchKernelEx_ptsz)(config, f, kernelParams, extra), kernelParams,
             extra);
}

CUresult ms_serve_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                            unsigned int gridDimY, unsigned int gridDimZ,
                                            unsigned int blockDimX, unsigned int blockDimY,
                                            unsigned int blockDimZ, unsigned int sharedMemBytes,
                                            CUstream hStream, void **kernelParams)
{
    LAUNCHED(f,
             MS_REAL(cuLaunchCooperativeKernel)(f, gridDimX, gridDimY, gridDimZ, blockDimX,
                                                blockDimY, blockDimZ, sharedMemBytes, hStream,
                                                kernelParams),
             kernelParams, NULL);
}

CUresult ms_serve_cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX,
                                                 unsigned int gridDimY, unsigned int gridDimZ,
                                                 unsigned int blockDimX, unsigned int blockDimY,
                                                 unsigned int blockDimZ,
                                                 unsigned int sharedMemBytes, CUstream hStream,
                                                 void **kernelParams)
{
    LAUNCHED(f,
             MS_REAL(cuLaunchCooperativeKernel_ptsz)(f, gridDimX, gridDimY, gridDimZ, blockDimX,
                                                     blockDimY, blockDimZ, sharedMemBytes, hStream,
                                                     kernelParams),
             kernelParams, NULL);
}
