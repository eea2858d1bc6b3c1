/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAllocAsync and cuMemFreeAsync as the runtime's cudaMallocAsync reaches them: memshim's pool
 * where memshim is preloaded. A stream a thread. */
#include "driver.h"
#include "say.h"
#include "subject.h"

const char subject_name[] = "driver";

static struct driver cu;
static CUcontext context;
static _Thread_local CUstream stream;

void subject_begin(void)
{
    CUdevice device;
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
}

void subject_begin_thread(void)
{
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

void *subject_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    return cu.cuMemAllocAsync(&block, bytes, stream) == CUDA_SUCCESS ? (void *)(uintptr_t)block
                                                                     : NULL;
}

void subject_free(void *block)
{
    MUST(cu.cuMemFreeAsync((CUdeviceptr)(uintptr_t)block, stream));
}
