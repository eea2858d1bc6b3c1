/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates two blocks by itself, and one through what stands for NCCL. What the driver served, the
 * tests read in the report; the bytes of each tell which. */
#include <cuda.h>

#include "comm.h"
#include "say.h"

#ifdef COMM_RUNTIME
int cudaMalloc(void **at, size_t bytes);
#endif

static void allocate_own(size_t bytes)
{
#ifdef COMM_RUNTIME
    void *at = NULL;
    MUST(cudaMalloc(&at, bytes));
#else
    CUdeviceptr at = 0;
    MUST(cuMemAlloc(&at, bytes));
#endif
}

int main(void)
{
    CUcontext context;
    uint64_t at = 0;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    allocate_own(8 * MIB);
    MUST(ncclCommInitRank(&at, 4 * MIB));
    allocate_own(16 * MIB);
    return 0;
}
