/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, pitches and addresses near the ends of their types: what each call is answered, a line for
 * each. Nothing may be granted that was not there before. */
#include <cuda.h>

#include "say.h"
#include "tests/simgpu/simgpu.h"

static const size_t extremes[] = {
    SIZE_MAX,
    SIZE_MAX - 511,          /* from the pool's unit on */
    SIZE_MAX - 2 * MIB + 1,  /* a granule */
    SIZE_MAX - 2 * MIB,      /* just none */
    SIZE_MAX - 32 * MIB + 1, /* a step of the driver's pools */
    SIZE_MAX - 32 * MIB,
    ((size_t)1 << 63) + 1,
    (size_t)1 << 63,
    ((size_t)1 << 63) - 1,
    (size_t)1 << 62,
    ((size_t)1 << 48) + 1,
};

static CUdeviceptr block, mapped;
static CUstream stream;
static CUmemoryPool pool;

static void allocations(size_t bytes)
{
    static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle chunk = 0;
    size_t pitch = 0;
    SAY_RESULT(cuMemAlloc(&at, bytes));
    SAY_RESULT(cuMemAllocAsync(&at, bytes, stream));
    SAY_RESULT(cuMemAllocAsync(&at, bytes, NULL));
    SAY_RESULT(cuMemAllocFromPoolAsync(&at, bytes, pool, stream));
    SAY_RESULT(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL));
    SAY_RESULT(cuMemAllocPitch(&at, &pitch, bytes, 1, 4));
    SAY_RESULT(cuMemAllocPitch(&at, &pitch, 1, bytes, 4));
    SAY_RESULT(cuMemAllocPitch(&at, &pitch, bytes, 2, 8));
    SAY_RESULT(cuMemAllocPitch(&at, &pitch, bytes, bytes, 16));
    SAY_RESULT(cuMemCreate(&chunk, bytes, &prop, 0));
    SAY_RESULT(cuMemPoolTrimTo(pool, bytes));
}

static void arrays(size_t size)
{
    CUarray made = NULL;
    CUmipmappedArray mipmaps = NULL;
    const CUDA_ARRAY_DESCRIPTOR wide = {size, 1, CU_AD_FORMAT_FLOAT, 4};
    const CUDA_ARRAY_DESCRIPTOR high = {1, size, CU_AD_FORMAT_FLOAT, 4};
    const CUDA_ARRAY3D_DESCRIPTOR deep = {1, 1, size, CU_AD_FORMAT_FLOAT, 4, 0};
    const CUDA_ARRAY3D_DESCRIPTOR all = {size, size, size, CU_AD_FORMAT_FLOAT, 4, 0};
    SAY_RESULT(cuArrayCreate(&made, &wide));
    SAY_RESULT(cuArrayCreate(&made, &high));
    SAY_RESULT(cuArray3DCreate(&made, &deep));
    SAY_RESULT(cuArray3DCreate(&made, &all));
    SAY_RESULT(cuMipmappedArrayCreate(&mipmaps, &all, 2));
}

static void addresses(size_t size)
{
    static const CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle chunk = 0;
    size_t bytes = 0;
    unsigned type = 0;
    SAY_RESULT(cuMemAddressReserve(&base, size, 0, 0, 0) == CUDA_SUCCESS
                   ? (int)cuMemAddressFree(base, size)
                   : -1);
    SAY_RESULT(cuMemAddressFree(size, 2 * MIB));
    SAY_RESULT(cuMemUnmap(mapped, size));
    SAY_RESULT(cuMemUnmap(size, 2 * MIB));
    SAY_RESULT(cuMemSetAccess(mapped, size, &access, 1));
    SAY_RESULT(cuMemSetAccess(block, size, &access, 1));
    SAY_RESULT(cuMemRetainAllocationHandle(&chunk, (void *)size));
    SAY_RESULT(cuMemGetAddressRange(&base, &bytes, size));
    SAY_RESULT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, size));
    SAY_RESULT(cuMemFree(size));
    SAY_RESULT(cuMemFreeAsync(size, stream));
    SAY_RESULT(cuMemFreeHost((void *)size));
}

int main(void)
{
    CUcontext context = NULL;
    CUmemGenericAllocationHandle chunk = 0;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemAlloc(&block, 4 * MIB));
    MUST(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&chunk, 2 * MIB, &prop, 0));
    MUST(cuMemMap(mapped, 2 * MIB, 0, chunk, 0));
    const uint64_t used = simgpu_used_bytes(0);
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) {
        (void)printf("%#zx\n", extremes[i]);
        allocations(extremes[i]);
        arrays(extremes[i]);
        addresses(extremes[i]);
    }
    EXPECT(simgpu_used_bytes(0) == used);
    return 0;
}
