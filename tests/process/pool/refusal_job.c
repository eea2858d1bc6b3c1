/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that no device can grant, and calls that have no room, when nothing is left: what each is
 * answered, a line for each. */
#include <cuda.h>

#include "say.h"
#include "tests/simgpu/simgpu.h"

#define TIB (1024 * GIB)

/* All but less than `least`, which is a power of two. */
static void fill(size_t least)
{
    CUdeviceptr at = 0;
    for (size_t bytes = GIB; bytes >= least;) {
        CUresult result = cuMemAlloc(&at, bytes);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        bytes = result == CUDA_SUCCESS ? bytes : bytes / 2;
    }
}

static void array(const char *name, size_t width, size_t height, size_t depth, unsigned channels,
                  unsigned flags)
{
    CUarray made = NULL;
    CUmipmappedArray mipmaps = NULL;
    const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = width,
                                           .Height = height,
                                           .Depth = depth,
                                           .Format = CU_AD_FORMAT_FLOAT,
                                           .NumChannels = channels,
                                           .Flags = flags};
    const CUDA_ARRAY_DESCRIPTOR flat = {width, height, CU_AD_FORMAT_FLOAT, channels};
    (void)printf("%s,%d\n", name, (int)cuArray3DCreate(&made, &shape));
    (void)printf("%s mipmapped,%d\n", name, (int)cuMipmappedArrayCreate(&mipmaps, &shape, 2));
    if (depth == 0 && flags == 0) {
        (void)printf("%s flat,%d\n", name, (int)cuArrayCreate(&made, &flat));
    }
}

static void arrays(void)
{
    array("more than there is", 1 << 20, 1 << 20, 0, 4, 0);
    array("too wide", (128 << 10) + 1, 32, 0, 4, 0);
    array("too high", 32, (64 << 10) + 1, 0, 4, 0);
    array("a line too wide", 1 << 20, 0, 0, 4, 0);
    array("a space too deep", 64, 64, (32 << 10) + 1, 1, 0);
    array("a space without height", 1 << 14, 0, 64, 4, 0);
    array("too many layers", 64, 64, 2049, 1, CUDA_ARRAY3D_LAYERED);
    array("too many lines", 1 << 12, 0, 2049, 1, CUDA_ARRAY3D_LAYERED);
    array("a cube of five sides", 1 << 10, 1 << 10, 5, 4, CUDA_ARRAY3D_CUBEMAP);
    array("a cube that is none", 1 << 10, 1 << 11, 6, 4, CUDA_ARRAY3D_CUBEMAP);
    array("gathered from too wide", 1 << 16, 32, 0, 4, CUDA_ARRAY3D_TEXTURE_GATHER);
    array("five channels", 1 << 10, 1 << 10, 0, 5, 0);
    array("no extent", 0, 0, 0, 4, 0);
    /* Only what has no room. */
    array("a plane", 1 << 14, 1 << 12, 0, 4, 0);
    array("a deep space", 1 << 7, 1 << 7, 1 << 14, 1, 0);
    array("a layered cube", 1 << 10, 1 << 10, 12, 4, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    /* The simulated GPU does not look at the limits of surfaces. */
    array("a surface too wide", 1 << 16, 0, 0, 4, CUDA_ARRAY3D_SURFACE_LDST);
}

static void no_levels(void)
{
    CUmipmappedArray made = NULL;
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = 1 << 13, .Height = 1 << 13, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    SAY_RESULT(cuMipmappedArrayCreate(&made, &shape, 0));
}

static void memory(void)
{
    CUdeviceptr at = 0;
    size_t pitch = 0;
    SAY_RESULT(cuMemAlloc(&at, 4096 * TIB));
    SAY_RESULT(cuMemAllocPitch(&at, &pitch, 4096 * GIB, 4, 4));
    SAY_RESULT(cuMemAllocPitch(&at, &pitch, MIB, 4096, 3));
    SAY_RESULT(cuMemAllocAsync(&at, 4096 * TIB, NULL));
    SAY_RESULT(cuMemAllocManaged(&at, 4 * GIB, 0));
    SAY_RESULT(cuMemAllocManaged(&at, 4 * GIB, 64));
    SAY_RESULT(cuMemAllocManaged(NULL, 4 * GIB, CU_MEM_ATTACH_GLOBAL));
}

static void chunk(const char *name, size_t bytes, CUmemAllocationProp prop,
                  unsigned long long flags)
{
    CUmemGenericAllocationHandle made = 0;
    prop.type = prop.type ? prop.type : CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    (void)printf("%s,%d\n", name, (int)cuMemCreate(&made, bytes, &prop, flags));
}

static void chunks(void)
{
    const CUmemAllocationProp plain = {0};
    chunk("a chunk", 512 * MIB, plain, 0);
    chunk("a chunk larger than the device", TIB, plain, 0);
    chunk("a chunk of no whole granules", 512 * MIB + 1, plain, 0);
    chunk("a chunk with flags", 512 * MIB, plain, 1);
    chunk("a chunk for a fabric", 512 * MIB,
          (CUmemAllocationProp){.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC}, 0);
    chunk("a chunk for a fabric, larger than the device", TIB,
          (CUmemAllocationProp){.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC}, 0);
    chunk("a chunk of no type", 512 * MIB, (CUmemAllocationProp){.type = (CUmemAllocationType)77},
          0);
    chunk("a chunk of no device", 512 * MIB, (CUmemAllocationProp){.location.id = 5}, 0);
}

int main(void)
{
    CUcontext context = NULL;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    fill(64 * KIB);
    const uint64_t used = simgpu_used_bytes(0);
    arrays();
    no_levels();
    memory();
    chunks();
    EXPECT(simgpu_used_bytes(0) == used);
    return 0;
}
