/* SPDX-License-Identifier: Apache-2.0 */
/* Unmaps its own memory while the host has none. What was not unmapped still counts as mapped, and
 * what was unmapped is given back. */
#include <stdbool.h>

#include <cuda.h>

#include "say.h"

#define PAGE (4 * MIB)

extern void *__libc_calloc(size_t count, size_t bytes);

static _Thread_local bool fails; /* the next one, of this thread */

void *calloc(size_t count, size_t bytes)
{
    const bool now = fails;
    fails = false;
    return now ? NULL : __libc_calloc(count, bytes);
}

static size_t free_bytes(void)
{
    size_t free_now = 0, total = 0;
    MUST(cuMemGetInfo(&free_now, &total));
    return free_now;
}

int main(void)
{
    const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUcontext context;
    CUdeviceptr at;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    const size_t before = free_bytes();
    MUST(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    for (int round = 0; round < 3; round++) {
        CUmemGenericAllocationHandle chunk = 0;
        MUST(cuMemCreate(&chunk, PAGE, &on_device, 0));
        MUST(cuMemMap(at, PAGE, 0, chunk, 0));
        MUST(cuMemRelease(chunk));
        fails = true;
        const CUresult result = cuMemUnmap(at, PAGE);
        fails = false;
        EXPECT(free_bytes() == (result == CUDA_SUCCESS ? before : before - PAGE));
        if (result != CUDA_SUCCESS) {
            EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
            MUST(cuMemUnmap(at, PAGE));
        }
        EXPECT(free_bytes() == before);
    }
    return 0;
}
