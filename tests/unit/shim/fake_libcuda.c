/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 for tests of the door: a driver of some years ago (CUDA 11.8: it lacks what came
 * later) whose functions do nothing but note that they were called. */
#include <stdint.h>
#include <string.h>

#include "shim/tables/cuda_api.h"

#define DRIVER_VERSION 11080
#define EXPORT         __attribute__((visibility("default")))

static const char *last_called = "nothing";

EXPORT const char *fake_last_called(void);
EXPORT const char *fake_last_called(void)
{
    const char *last = last_called;
    last_called = "nothing";
    return last;
}

#define FAKE(symbol, params)      \
    EXPORT CUresult symbol params \
    {                             \
        last_called = #symbol;    \
        return CUDA_SUCCESS;      \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

static int initialized;

EXPORT CUresult cuInit(unsigned int flags)
{
    initialized = flags == 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    *flags = 0;
    *active = initialized;
    return initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

FAKE(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned int bytes))
FAKE(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))
FAKE(cuMemFree_v2, (CUdeviceptr address))
FAKE(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream))
FAKE(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream))
FAKE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device))
FAKE(cuCtxCreate_v3, (CUcontext * context, CUexecAffinityParam *params, int count,
                      unsigned int flags, CUdevice device))
FAKE(cuMemFreeAsync, (CUdeviceptr address, CUstream stream))
FAKE(cuEventQuery, (CUevent event))

/* One function under two names, as where the flavours of a function do not differ. */
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
    __attribute__((alias("cuMemFreeAsync")));

/* Of one name the newest version stands last. */
static const struct {
    const char *name;
    int version; /* the first that answers with this function */
    int flavour; /* 0 any, 1 legacy, 2 per-thread */
    void *function;
} known[] = {
    {"cuInit", 2000, 0, (void *)cuInit},
    {"cuMemAlloc", 2000, 0, (void *)cuMemAlloc},
    {"cuMemAlloc", 3020, 0, (void *)cuMemAlloc_v2},
    {"cuMemFree", 3020, 0, (void *)cuMemFree_v2},
    {"cuMemAllocAsync", 11020, 1, (void *)cuMemAllocAsync},
    {"cuMemAllocAsync", 11020, 2, (void *)cuMemAllocAsync_ptsz},
    {"cuMemFreeAsync", 11020, 0, (void *)cuMemFreeAsync},
    {"cuCtxCreate", 3020, 0, (void *)cuCtxCreate_v2},
    {"cuCtxCreate", 11040, 0, (void *)cuCtxCreate_v3},
    {"cuEventQuery", 2000, 0, (void *)cuEventQuery},
    {"cuGetProcAddress", 11030, 0, (void *)cuGetProcAddress},
};

static CUresult answer(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    int flavour = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 ? 2 : 1;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *pfn = NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, symbol) != 0 ||
            (known[i].flavour != 0 && known[i].flavour != flavour)) {
            continue;
        }
        if (known[i].version > version || version > DRIVER_VERSION) {
            found = *pfn != NULL ? found : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        *pfn = known[i].function;
        found = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    if (status != NULL) {
        *status = found;
    }
    return *pfn != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    return answer(symbol, pfn, version, flags, NULL);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    return answer(symbol, pfn, version, flags, status);
}
