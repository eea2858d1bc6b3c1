/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the device uses: what spilling stands on. Kernels fault on it on some machines
 * whose driver offers it, so each of these is alone. */
#include <string.h>

#include "tests/gpu/assume.h"

enum { BYTES = 4 << 20 };

struct both {
    CUdeviceptr at; /* on the device's chunk */
    CUmemGenericAllocationHandle device, host;
};

#define BOTH(both)                                                                     \
    struct both both = {0};                                                            \
    CUmemAllocationProp host_prop;                                                     \
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");                    \
    NEEDS(gpu_host_memory(gpu, &host_prop) == 0, "the device cannot map host memory"); \
    CUmemAllocationProp device_prop = gpu_device_memory(gpu);                          \
    WORKS(cuMemAddressReserve(&(both).at, BYTES, 0, 0, 0));                            \
    WORKS(cuMemCreate(&(both).device, BYTES, &device_prop, 0));                        \
    WORKS(cuMemCreate(&(both).host, BYTES, &host_prop, 0))

static CUresult show(const struct gpu *gpu, CUdeviceptr at, CUmemGenericAllocationHandle chunk)
{
    CUresult result = cuMemMap(at, BYTES, 0, chunk, 0);
    return result == CUDA_SUCCESS ? gpu_allow(gpu, at, BYTES) : result;
}

static enum verdict costs_no_device_memory(const struct gpu *gpu)
{
    CUmemGenericAllocationHandle chunk;
    CUmemAllocationProp prop;
    NEEDS(gpu_host_memory(gpu, &prop) == 0, "the device cannot map host memory");
    size_t before = gpu_free_bytes();
    WORKS(cuMemCreate(&chunk, 64 * MIB, &prop, 0));
    SO(before - gpu_free_bytes() <= 2 * MIB); /* page tables */
    WORKS(cuMemRelease(chunk));
    return HOLDS;
}

static enum verdict kernels_use_it(const struct gpu *gpu)
{
    BOTH(both);
    WORKS(show(gpu, both.at, both.host));
    WORKS(gpu_fill(gpu, both.at, BYTES, 0x3c, NULL));
    WORKS(cuCtxSynchronize());
    GIVES(gpu_mismatches(gpu, both.at, BYTES, 0x3c), 0);
    return HOLDS;
}

static enum verdict copies_use_it(const struct gpu *gpu)
{
    BOTH(both);
    static unsigned char host[BYTES];
    WORKS(show(gpu, both.at, both.host));
    WORKS(cuMemsetD8(both.at, 0x21, BYTES));
    WORKS(cuMemcpyDtoH(host, both.at, BYTES));
    SO(host[0] == 0x21 && host[BYTES - 1] == 0x21);
    memset(host, 0x43, BYTES);
    WORKS(cuMemcpyHtoD(both.at, host, BYTES));
    GIVES(gpu_mismatches(gpu, both.at, BYTES, 0x43), 0);
    return HOLDS;
}

/* A spill and its way back: the address stays, contents go along. */
static enum verdict there_and_back(const struct gpu *gpu)
{
    CUdeviceptr aside;
    BOTH(both);
    WORKS(cuMemAddressReserve(&aside, BYTES, 0, 0, 0));
    WORKS(show(gpu, both.at, both.device));
    WORKS(gpu_fill(gpu, both.at, BYTES, 0x65, NULL));
    CUmemGenericAllocationHandle from = both.device;
    CUmemGenericAllocationHandle to = both.host;
    for (int round = 0; round < 6; round++) {
        WORKS(show(gpu, aside, to));
        WORKS(cuMemcpyDtoDAsync(aside, both.at, BYTES, NULL));
        WORKS(cuCtxSynchronize());
        WORKS(cuMemUnmap(aside, BYTES));
        WORKS(cuMemUnmap(both.at, BYTES));
        WORKS(show(gpu, both.at, to));
        GIVES(gpu_mismatches(gpu, both.at, BYTES, 0x65), 0);
        CUmemGenericAllocationHandle swap = from;
        from = to;
        to = swap;
    }
    return HOLDS;
}

static enum verdict reads_as_device_memory(const struct gpu *gpu)
{
    unsigned kind = 0;
    BOTH(both);
    WORKS(show(gpu, both.at, both.host));
    CUresult result = cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, both.at);
    WORKS(result);
    SO(kind == CU_MEMORYTYPE_DEVICE || kind == CU_MEMORYTYPE_HOST);
    return HOLDS;
}

const struct assumption assume_host[] = {
    {"a host-located chunk takes no device memory", costs_no_device_memory, true},
    {"kernels write and read host-located chunks", kernels_use_it, true},
    {"copies and memsets reach host-located chunks", copies_use_it, true},
    {"contents go to the host and back under one address", there_and_back, true},
    {"a mapped host-located address can be asked for its kind", reads_as_device_memory, true},
    {NULL, NULL, false},
};
