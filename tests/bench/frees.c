/* SPDX-License-Identifier: Apache-2.0 */
/* Alloc + free of one size in the way of cudaMalloc and cudaFree, on an idle device: cudaFree waits
 * for the device, here for nothing: frees [COUNT]. */
#include "driver.h"
#include "say.h"
#include "timing.h"

#define WARM_UP 200
#define BYTES   (96 * KIB)

static struct driver cu;

static void pairs(uint64_t count)
{
    CUdeviceptr block;
    for (uint64_t i = 0; i < count; i++) {
        MUST(cu.cuMemAlloc(&block, BYTES));
        MUST(cu.cuMemFree(block));
    }
}

int main(int argc, char **argv)
{
    uint64_t count = count_argument(argc, argv, 100000);
    CUcontext context;
    CUdeviceptr neighbour;
    cu = driver_use(&context);
    MUST(cu.cuMemAlloc(&neighbour, BYTES));
    pairs(WARM_UP);
    uint64_t start = now_ns();
    pairs(count);
    end_with_each(start, count);
}
