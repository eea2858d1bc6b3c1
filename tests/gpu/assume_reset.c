/* SPDX-License-Identifier: Apache-2.0 */
/* What a reset of the primary context takes along. */
#include "tests/gpu/assume.h"

static CUresult show(const struct gpu *gpu, CUdeviceptr at, CUmemGenericAllocationHandle chunk)
{
    CUresult result = cuMemMap(at, gpu->granule_bytes, 0, chunk, 0);
    return result == CUDA_SUCCESS ? gpu_allow(gpu, at, gpu->granule_bytes) : result;
}

/* What was mapped before; copies ask the driver first, so that nothing faults. */
static enum verdict look_at_mapping(const struct gpu *gpu, CUdeviceptr at)
{
    unsigned char byte = 0;
    CUresult copied = cuMemcpyDtoH(&byte, at, 1);
    assume_gives("after a reset, a copy out of memory that was mapped before gives", copied);
    if (copied == CUDA_SUCCESS) {
        assume_whether("after a reset, does memory that was mapped before hold what it held?",
                       byte == 0x6d);
        CUresult filled = gpu_fill(gpu, at, gpu->granule_bytes, 0x2b, NULL);
        assume_whether("after a reset, can kernels use memory that was mapped before?",
                       filled == CUDA_SUCCESS &&
                           gpu_mismatches(gpu, at, gpu->granule_bytes, 0x2b) == 0);
    }
    assume_gives("after a reset, unmapping memory that was mapped before gives",
                 cuMemUnmap(at, gpu->granule_bytes));
    return HOLDS;
}

/* Reservations and handles of before. */
static enum verdict look_at_reservation(const struct gpu *gpu, CUdeviceptr at,
                                        CUmemGenericAllocationHandle chunk)
{
    CUresult shown = show(gpu, at, chunk);
    assume_gives("after a reset, mapping an old chunk at old addresses gives", shown);
    if (shown == CUDA_SUCCESS) {
        WORKS(cuMemUnmap(at, gpu->granule_bytes));
    }
    assume_gives("after a reset, releasing an old handle gives", cuMemRelease(chunk));
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    WORKS(cuMemCreate(&chunk, gpu->granule_bytes, &prop, 0));
    shown = show(gpu, at, chunk);
    assume_gives("after a reset, mapping a new chunk at old addresses gives", shown);
    if (shown == CUDA_SUCCESS) {
        WORKS(cuMemUnmap(at, gpu->granule_bytes));
    }
    WORKS(cuMemRelease(chunk));
    assume_gives("after a reset, freeing old addresses gives",
                 cuMemAddressFree(at, 2 * gpu->granule_bytes));
    return HOLDS;
}

static enum verdict reset(const struct gpu *gpu)
{
    CUdeviceptr block;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle chunks[2];
    struct gpu again;
    size_t before = gpu_free_bytes();
    WORKS(cuMemAlloc(&block, 64 * MIB));
    if (gpu->granule_bytes != 0) {
        CUmemAllocationProp prop = gpu_device_memory(gpu);
        WORKS(cuMemAddressReserve(&at, 2 * gpu->granule_bytes, 0, 0, 0));
        for (int i = 0; i < 2; i++) {
            WORKS(cuMemCreate(&chunks[i], gpu->granule_bytes, &prop, 0));
        }
        WORKS(show(gpu, at, chunks[0]));
        WORKS(gpu_fill(gpu, at, gpu->granule_bytes, 0x6d, NULL));
        WORKS(cuCtxSynchronize());
    }
    WORKS(cuDevicePrimaryCtxReset(gpu->device));
    gpu_open(&again);
    GIVES(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    if (gpu->granule_bytes == 0) {
        return HOLDS;
    }
    assume_measured("after a reset, of two chunks of 2 MiB and 64 MiB of cuMemAlloc are in use",
                    (long long)before - (long long)gpu_free_bytes(), "bytes");
    enum verdict verdict = look_at_mapping(&again, at);
    return verdict == HOLDS ? look_at_reservation(&again, at, chunks[1]) : verdict;
}

const struct assumption assume_reset[] = {
    {"a reset of the context frees what cuMemAlloc gave", reset, true},
    {NULL, NULL, false},
};
