/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's interface for the test programs, reached by one of two roads: the one that the
 * runtime takes (dlopen, dlsym of cuGetProcAddress_v2, then names), or direct linking. Which one is
 * decided by the file linked in: driver_resolved.c or driver_linked.c. */
#ifndef MEMSHIM_TESTS_PROCESS_DRIVER_H
#define MEMSHIM_TESTS_PROCESS_DRIVER_H

#include <cuda.h>
#include <cudaTypedefs.h>

#include "say.h"

/* Name, and the version of its interface (cudaTypedefs.h). */
#define DRIVER_FUNCTIONS(X)                 \
    X(cuInit, 2000)                         \
    X(cuDeviceGet, 2000)                    \
    X(cuDeviceGetCount, 2000)               \
    X(cuDeviceTotalMem, 3020)               \
    X(cuDevicePrimaryCtxRetain, 7000)       \
    X(cuDevicePrimaryCtxRelease, 11000)     \
    X(cuCtxDestroy, 4000)                   \
    X(cuCtxSetCurrent, 4000)                \
    X(cuCtxSynchronize, 2000)               \
    X(cuMemAlloc, 3020)                     \
    X(cuMemFree, 3020)                      \
    X(cuMemAllocPitch, 3020)                \
    X(cuMemAllocManaged, 6000)              \
    X(cuMemAllocHost, 3020)                 \
    X(cuMemFreeHost, 2000)                  \
    X(cuMemGetInfo, 3020)                   \
    X(cuMemGetAddressRange, 3020)           \
    X(cuPointerGetAttribute, 4000)          \
    X(cuMemsetD8, 3020)                     \
    X(cuMemsetD8Async, 3020)                \
    X(cuMemcpyDtoH, 3020)                   \
    X(cuMemcpyHtoD, 3020)                   \
    X(cuMemcpyDtoD, 3020)                   \
    X(cuMemcpyDtoHAsync, 3020)              \
    X(cuMemcpyHtoDAsync, 3020)              \
    X(cuMemcpyDtoDAsync, 3020)              \
    X(cuMemcpyPeerAsync, 4000)              \
    X(cuStreamCreate, 2000)                 \
    X(cuStreamDestroy, 4000)                \
    X(cuStreamSynchronize, 2000)            \
    X(cuStreamWaitEvent, 3020)              \
    X(cuEventCreate, 2000)                  \
    X(cuEventRecord, 2000)                  \
    X(cuEventSynchronize, 2000)             \
    X(cuEventDestroy, 4000)                 \
    X(cuMemAllocAsync, 11020)               \
    X(cuMemFreeAsync, 11020)                \
    X(cuMemAllocFromPoolAsync, 11020)       \
    X(cuMemPoolCreate, 11020)               \
    X(cuMemPoolDestroy, 11020)              \
    X(cuMemPoolTrimTo, 11020)               \
    X(cuMemPoolSetAttribute, 11020)         \
    X(cuMemPoolGetAttribute, 11020)         \
    X(cuDeviceGetDefaultMemPool, 11020)     \
    X(cuArrayCreate, 3020)                  \
    X(cuArrayDestroy, 2000)                 \
    X(cuMemAddressReserve, 10020)           \
    X(cuMemAddressFree, 10020)              \
    X(cuMemCreate, 10020)                   \
    X(cuMemRelease, 10020)                  \
    X(cuMemMap, 10020)                      \
    X(cuMemUnmap, 10020)                    \
    X(cuMemSetAccess, 10020)                \
    X(cuMemGetAllocationGranularity, 10020) \
    X(cuModuleLoad, 2000)                   \
    X(cuModuleLoadData, 2000)               \
    X(cuModuleGetFunction, 2000)            \
    X(cuLaunchKernel, 4000)                 \
    X(cuStreamBeginCapture, 10010)          \
    X(cuStreamEndCapture, 10000)            \
    X(cuGraphInstantiateWithFlags, 11040)   \
    X(cuGraphLaunch, 10000)                 \
    X(cuGraphUpload, 11010)                 \
    X(cuGraphExecDestroy, 10000)            \
    X(cuDeviceGraphMemTrim, 11040)          \
    X(cuGraphDestroy, 10000)

struct driver {
#define DRIVER_FIELD(name, version) PFN_##name##_v##version name;
    DRIVER_FUNCTIONS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

/* Ends the program, with the reason, where the driver cannot be reached. */
struct driver driver_open(void);

/* The same, and device 0's primary context, made current on this thread; left in *context. */
static inline struct driver driver_use(CUcontext *context)
{
    const struct driver cu = driver_open();
    CUdevice device;
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(context, device));
    MUST(cu.cuCtxSetCurrent(*context));
    return cu;
}

#endif
