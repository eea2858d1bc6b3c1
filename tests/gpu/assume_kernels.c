/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels do with memory beyond plain loads and stores, on chunks of the host as on those of
 * the device: nothing that a kernel may do with its memory may depend on where it has gone. */
#include <string.h>

#include "tests/gpu/assume.h"
#include "tests/gpu/memory_kernels.h"
#include "tests/gpu/mixed.h"

static const char *const no_kernels = "kernels do nothing on the simulated GPU";

static CUresult launch(CUmodule module, const char *name, unsigned blocks, unsigned threads,
                       void **arguments)
{
    CUfunction function;
    CUresult result = cuModuleGetFunction(&function, module, name);
    return result == CUDA_SUCCESS
               ? cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL)
               : result;
}

/* A kernel on memory of either location, and what it left there, waited for. */
struct trial {
    const char *image;
    enum verdict (*run)(CUmodule module, CUdeviceptr at);
};

/* On the device's chunk first: where that fails, too, the probe is at fault. */
static enum verdict try_both(const struct gpu *gpu, const struct trial *trial)
{
    CUmodule module;
    MIXED(mixed);
    CUresult loaded = cuModuleLoadData(&module, trial->image);
    NEEDS(loaded == CUDA_SUCCESS, "the driver cannot load such kernels");
    for (unsigned location = 0; location < LOCATIONS; location++) {
        mixed_show(gpu, &mixed, 0, location);
        WORKS(cuMemsetD8(mixed.at, 0, mixed.each));
        enum verdict verdict = trial->run(module, mixed.at);
        if (verdict == DIFFERS && location == ON_DEVICE) {
            return assume_saw(DIFFERS, "not on the device's own chunk either", 0);
        }
        if (verdict != HOLDS) {
            return verdict;
        }
    }
    WORKS(cuModuleUnload(module));
    mixed_close(&mixed);
    return HOLDS;
}

static enum verdict run_add(CUmodule module, CUdeviceptr at)
{
    enum { BLOCKS = 4, THREADS = 64, ALL = BLOCKS * THREADS };
    struct {
        uint32_t whole, unused;
        uint64_t wide;
        float single;
        uint32_t unused_too;
        double twice;
        uint16_t halves[2];
        uint32_t largest;
        uint64_t swapped;
    } sums;
    void *arguments[] = {&at};
    WORKS(launch(module, "gpu_add", BLOCKS, THREADS, arguments));
    WORKS(cuMemcpyDtoH(&sums, at, sizeof sums));
    NEEDS(!gpu_is_simulated(), no_kernels);
    GIVES(sums.whole, ALL);
    GIVES(sums.wide, ALL);
    GIVES(sums.single, ALL);
    GIVES(sums.twice, ALL);
    GIVES(sums.halves[0], 0x5c00); /* 256 */
    GIVES(sums.halves[1], 0x5c00);
    GIVES(sums.largest, THREADS - 1);
    GIVES(sums.swapped, ALL);
    return HOLDS;
}

static enum verdict atomics(const struct gpu *gpu)
{
    static const struct trial trial = {gpu_memory_kernels, run_add};
    return try_both(gpu, &trial);
}

static enum verdict run_sum(CUmodule module, CUdeviceptr at)
{
    uint64_t bytes = MIB;
    CUdeviceptr to = at + bytes;
    uint32_t sum = 0;
    void *arguments[] = {&at, &bytes, &to};
    WORKS(cuMemsetD32(at, 3, bytes / 4));
    WORKS(launch(module, "gpu_sum", 32, 256, arguments));
    WORKS(cuMemcpyDtoH(&sum, to, sizeof sum));
    NEEDS(!gpu_is_simulated(), no_kernels);
    GIVES(sum, 3 * bytes / 4);
    return HOLDS;
}

static enum verdict reductions(const struct gpu *gpu)
{
    static const struct trial trial = {gpu_memory_kernels, run_sum};
    return try_both(gpu, &trial);
}

static enum verdict run_fetch(CUmodule module, CUdeviceptr at)
{
    enum { COUNT = 4096 };
    static uint32_t numbers[COUNT];
    static uint32_t seen[COUNT];
    CUtexObject texture;
    CUDA_RESOURCE_DESC memory = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                 .res.linear = {.devPtr = at,
                                                .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                .numChannels = 1,
                                                .sizeInBytes = sizeof numbers}};
    CUDA_TEXTURE_DESC reading = {.flags = CU_TRSF_READ_AS_INTEGER};
    CUdeviceptr to = at + MIB;
    for (uint32_t i = 0; i < COUNT; i++) {
        numbers[i] = i * 2654435761u;
    }
    WORKS(cuMemcpyHtoD(at, numbers, sizeof numbers));
    WORKS(cuTexObjectCreate(&texture, &memory, &reading, NULL));
    void *arguments[] = {&texture, &to};
    WORKS(launch(module, "gpu_fetch", COUNT / 256, 256, arguments));
    WORKS(cuMemcpyDtoH(seen, to, sizeof seen));
    WORKS(cuTexObjectDestroy(texture));
    NEEDS(!gpu_is_simulated(), no_kernels);
    SO(memcmp(numbers, seen, sizeof seen) == 0);
    return HOLDS;
}

static enum verdict textures(const struct gpu *gpu)
{
    static const struct trial trial = {gpu_memory_kernels, run_fetch};
    return try_both(gpu, &trial);
}

/* --- since compute capability 9.0 ------------------------------------------------------------- */

static enum verdict try_newer(const struct gpu *gpu,
                              enum verdict (*run)(CUmodule module, CUdeviceptr at))
{
    const struct trial trial = {gpu_newer_kernels, run};
    int major = 0;
    WORKS(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->device));
    NEEDS(major >= 9, "the device is older than compute capability 9.0");
    return try_both(gpu, &trial);
}

static enum verdict run_packed(CUmodule module, CUdeviceptr at)
{
    uint16_t sums[2];
    void *arguments[] = {&at};
    WORKS(launch(module, "gpu_add_packed", 2, 64, arguments));
    WORKS(cuMemcpyDtoH(sums, at, sizeof sums));
    NEEDS(!gpu_is_simulated(), no_kernels);
    GIVES(sums[0], 0x4300); /* 128 */
    GIVES(sums[1], 0x4300);
    return HOLDS;
}

static enum verdict packed_atomics(const struct gpu *gpu)
{
    return try_newer(gpu, run_packed);
}

static enum verdict run_wide(CUmodule module, CUdeviceptr at)
{
    uint64_t numbers[2];
    void *arguments[] = {&at};
    WORKS(launch(module, "gpu_swap_wide", 4, 64, arguments));
    WORKS(cuMemcpyDtoH(numbers, at, sizeof numbers));
    NEEDS(!gpu_is_simulated(), no_kernels);
    GIVES(numbers[0], 256);
    GIVES(numbers[1], 256);
    return HOLDS;
}

static enum verdict wide_swaps(const struct gpu *gpu)
{
    return try_newer(gpu, run_wide);
}

static enum verdict run_bulk(CUmodule module, CUdeviceptr at)
{
    enum { COUNT = 1024 };
    static uint32_t numbers[COUNT];
    static uint32_t seen[COUNT];
    CUdeviceptr to = at + 64 * KIB;
    CUdeviceptr sums = at + 128 * KIB;
    void *arguments[] = {&at, &to, &sums};
    for (uint32_t i = 0; i < COUNT; i++) {
        numbers[i] = i * 2654435761u;
    }
    WORKS(cuMemcpyHtoD(at, numbers, sizeof numbers));
    WORKS(cuMemsetD32(sums, 5, COUNT));
    WORKS(launch(module, "gpu_bulk", 1, 1, arguments));
    WORKS(cuMemcpyDtoH(seen, to, sizeof seen));
    NEEDS(!gpu_is_simulated(), no_kernels);
    SO(memcmp(numbers, seen, sizeof seen) == 0);
    WORKS(cuMemcpyDtoH(seen, sums, sizeof seen));
    for (uint32_t i = 0; i < COUNT; i++) {
        GIVES(seen[i], (uint32_t)(numbers[i] + 5));
    }
    return HOLDS;
}

static enum verdict bulk_copies(const struct gpu *gpu)
{
    return try_newer(gpu, run_bulk);
}

static enum verdict run_tile(CUmodule module, CUdeviceptr at)
{
    enum { SIDE = 64, PITCH = 256 };
    static unsigned char bytes[SIDE * PITCH];
    static unsigned char seen[SIDE * SIDE];
    CUtensorMap map;
    CUdeviceptr to = at + 64 * KIB;
    const cuuint64_t size[] = {PITCH, SIDE};
    const cuuint64_t pitch[] = {PITCH};
    const cuuint32_t box[] = {SIDE, SIDE};
    const cuuint32_t step[] = {1, 1};
    void *arguments[] = {&map, &to};
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    }
    WORKS(cuMemcpyHtoD(at, bytes, sizeof bytes));
    WORKS(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)(uintptr_t)at,
                                 size, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    WORKS(launch(module, "gpu_tile", 1, 1, arguments));
    WORKS(cuMemcpyDtoH(seen, to, sizeof seen));
    NEEDS(!gpu_is_simulated(), no_kernels);
    for (size_t row = 0; row < SIDE; row++) {
        SO(memcmp(seen + row * SIDE, bytes + row * PITCH, SIDE) == 0);
    }
    return HOLDS;
}

static enum verdict tensor_maps(const struct gpu *gpu)
{
    return try_newer(gpu, run_tile);
}

const struct assumption assume_kernels[] = {
    {"atomics of 32 and 64 bits, whole and not, work on host-located chunks", atomics, false},
    {"reductions work on host-located chunks", reductions, false},
    {"textures read host-located chunks", textures, false},
    {"atomics of two bfloat16 work on host-located chunks", packed_atomics, false},
    {"128 bits are compared and swapped on host-located chunks", wide_swaps, false},
    {"bulk copies (TMA) work on host-located chunks", bulk_copies, false},
    {"tensor maps (TMA) read host-located chunks", tensor_maps, false},
    {NULL, NULL, false},
};
