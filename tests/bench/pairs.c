/* SPDX-License-Identifier: Apache-2.0 */
/* Alloc + free of one size on a warm pool, in the way the runtime's cudaMallocAsync and
 * cudaFreeAsync reach it: pairs [COUNT [exit]]. With exit it ends as programs do, so that memshim
 * sees the end (ends.py). */
#include "driver.h"
#include "say.h"
#include "timing.h"

#define WARM_UP 200
#define BYTES   (96 * KIB)

static struct driver cu;

static void pairs(CUstream stream, uint64_t count)
{
    CUdeviceptr block;
    for (uint64_t i = 0; i < count; i++) {
        MUST(cu.cuMemAllocAsync(&block, BYTES, stream));
        MUST(cu.cuMemFreeAsync(block, stream));
    }
}

int main(int argc, char **argv)
{
    uint64_t count = count_argument(argc, argv, 200000);
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr neighbour;
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuMemAllocAsync(&neighbour, BYTES, stream));
    pairs(stream, WARM_UP);
    uint64_t start = now_ns();
    pairs(stream, count);
    if (argc > 2) {
        say_each(start, count);
        return 0;
    }
    end_with_each(start, count);
}
