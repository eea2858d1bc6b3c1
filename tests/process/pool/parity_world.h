/* SPDX-License-Identifier: Apache-2.0 */
/* Things of the driver's for parity_job to pass: one of each kind, made anew for every call. */
#ifndef MEMSHIM_TESTS_PROCESS_PARITY_WORLD_H
#define MEMSHIM_TESTS_PROCESS_PARITY_WORLD_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Null where the driver refused to make one, or the call has destroyed it. */
struct world {
    CUcontext context, second; /* the primary ones of devices 0 and 1 */
    CUcontext spare;           /* for what destroys a context */
    CUdeviceptr block, ordered, managed, mapped, reserved;
    CUmemGenericAllocationHandle chunk, mapped_chunk;
    void *host;
    CUstream stream;
    bool legacy; /* the legacy stream is passed instead of `stream` */
    CUmemoryPool pool, default_pool;
    CUmodule module;
    CUfunction kernel;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUarray array;
};

/* Reached by dlsym. Of what is versioned, the ABI that all drivers since CUDA 12.4 have. */
struct driver_of_parity {
    void *library;
    CUresult (*cuInit)(unsigned int flags);
    CUresult (*cuDeviceGetDefaultMemPool)(CUmemoryPool *pool, CUdevice device);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device);
    CUresult (*cuCtxCreate)(CUcontext *context, unsigned int flags, CUdevice device);
    CUresult (*cuCtxDestroy)(CUcontext context);
    CUresult (*cuCtxPopCurrent)(CUcontext *context);
    CUresult (*cuCtxSetCurrent)(CUcontext context);
    CUresult (*cuCtxSynchronize)(void);
    CUresult (*cuMemAlloc)(CUdeviceptr *at, size_t bytes);
    CUresult (*cuMemFree)(CUdeviceptr at);
    CUresult (*cuMemAllocManaged)(CUdeviceptr *at, size_t bytes, unsigned int flags);
    CUresult (*cuMemAllocAsync)(CUdeviceptr *at, size_t bytes, CUstream stream);
    CUresult (*cuMemFreeAsync)(CUdeviceptr at, CUstream stream);
    CUresult (*cuMemAllocHost)(void **at, size_t bytes);
    CUresult (*cuMemFreeHost)(void *at);
    CUresult (*cuMemPoolCreate)(CUmemoryPool *pool, const CUmemPoolProps *props);
    CUresult (*cuMemPoolDestroy)(CUmemoryPool pool);
    CUresult (*cuMemAddressReserve)(CUdeviceptr *at, size_t bytes, size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags);
    CUresult (*cuMemAddressFree)(CUdeviceptr at, size_t bytes);
    CUresult (*cuMemCreate)(CUmemGenericAllocationHandle *chunk, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags);
    CUresult (*cuMemRelease)(CUmemGenericAllocationHandle chunk);
    CUresult (*cuMemMap)(CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle chunk, unsigned long long flags);
    CUresult (*cuMemUnmap)(CUdeviceptr at, size_t bytes);
    CUresult (*cuMemSetAccess)(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access,
                               size_t count);
    CUresult (*cuStreamCreate)(CUstream *stream, unsigned int flags);
    CUresult (*cuStreamDestroy)(CUstream stream);
    CUresult (*cuStreamIsCapturing)(CUstream stream, CUstreamCaptureStatus *status);
    CUresult (*cuStreamBeginCapture)(CUstream stream, CUstreamCaptureMode mode);
    CUresult (*cuStreamEndCapture)(CUstream stream, CUgraph *graph);
    CUresult (*cuLaunchHostFunc)(CUstream stream, CUhostFn function, void *argument);
    CUresult (*cuModuleLoadData)(CUmodule *module, const void *image);
    CUresult (*cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*cuModuleUnload)(CUmodule module);
    CUresult (*cuGraphCreate)(CUgraph *graph, unsigned int flags);
    CUresult (*cuGraphAddEmptyNode)(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                    size_t count);
    CUresult (*cuGraphInstantiate)(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
    CUresult (*cuGraphExecDestroy)(CUgraphExec exec);
    CUresult (*cuGraphDestroy)(CUgraph graph);
    CUresult (*cuArrayCreate)(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape);
    CUresult (*cuArrayDestroy)(CUarray array);
};
extern struct driver_of_parity cu;

/* Finds the driver. Ends the program, with the reason, where it cannot be reached. */
void world_open(void);

/* Initialises the driver and retains the primary contexts of the first two devices (of one, where
 * there is one); the first is current afterwards. Once. */
void world_first(struct world *world);

/* Before and after each call of this function. After end the first context is current. */
void world_begin(struct world *world, const char *symbol);
void world_end(struct world *world);

/* The function was called: what it has destroyed is no longer there. */
void world_called(struct world *world, const char *symbol, CUresult result);

/* What to pass for a parameter, as hooks.def spells it ("CUdeviceptr_v2 *dptr"). */
uint64_t world_argument(struct world *world, const char *symbol, const char *parameter, bool valid);

#endif
