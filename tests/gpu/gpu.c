/* SPDX-License-Identifier: Apache-2.0 */
/* Device 0 for the programs of the check. See gpu.h. */
#include "tests/gpu/gpu.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/kernels.h"

enum { THREADS = 256, BLOCKS_MAX = 1024 };

void gpu_open(struct gpu *gpu)
{
    CUmodule module;
    int mapping = 0;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&gpu->device, 0));
    MUST(cuDevicePrimaryCtxRetain(&gpu->context, gpu->device));
    MUST(cuCtxSetCurrent(gpu->context));
    MUST(cuModuleLoadData(&module, gpu_kernels));
    MUST(cuModuleGetFunction(&gpu->fill, module, "simgpu_fill"));
    MUST(cuModuleGetFunction(&gpu->check, module, "simgpu_check"));
    MUST(cuModuleGetFunction(&gpu->spin, module, "simgpu_spin"));
    MUST(cuDeviceGetAttribute(&mapping, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                              gpu->device));
    gpu->granule_bytes = 0;
    if (mapping) {
        CUmemAllocationProp prop = gpu_device_memory(gpu);
        MUST(cuMemGetAllocationGranularity(&gpu->granule_bytes, &prop,
                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    }
}

int gpu_is_simulated(void)
{
    return dlsym(RTLD_DEFAULT, "simgpu_calls") != NULL;
}

/* The driver's table of symbols is in a private mapping of its file, so that this process alone
 * sees the change. */
void gpu_leave_out(const char *function)
{
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    void *address = dlsym(RTLD_DEFAULT, function);
    EXPECT(address != NULL);
    EXPECT(dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL &&
           info.dli_sname != NULL && strcmp(info.dli_sname, function) == 0);
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)symbol / page_bytes * page_bytes;
    size_t bytes = (uintptr_t)(symbol + 1) - first;
    MUST(mprotect((void *)first, bytes, PROT_READ | PROT_WRITE));
    symbol->st_other = (unsigned char)((symbol->st_other & ~3) | STV_HIDDEN);
    MUST(mprotect((void *)first, bytes, PROT_READ));
    EXPECT(dlsym(RTLD_DEFAULT, function) == NULL);
}

static unsigned blocks_for(size_t bytes)
{
    size_t blocks = (bytes + THREADS - 1) / THREADS;
    return blocks > BLOCKS_MAX ? BLOCKS_MAX : (unsigned)(blocks == 0 ? 1 : blocks);
}

CUresult gpu_fill(const struct gpu *gpu, CUdeviceptr at, size_t bytes, unsigned byte,
                  CUstream stream)
{
    uint64_t count = bytes;
    void *arguments[] = {&at, &count, &byte};
    return cuLaunchKernel(gpu->fill, blocks_for(bytes), 1, 1, THREADS, 1, 1, 0, stream, arguments,
                          NULL);
}

CUresult gpu_check(const struct gpu *gpu, CUdeviceptr at, size_t bytes, unsigned byte,
                   CUdeviceptr mismatches, CUstream stream)
{
    uint64_t count = bytes;
    void *arguments[] = {&at, &count, &byte, &mismatches};
    return cuLaunchKernel(gpu->check, blocks_for(bytes), 1, 1, THREADS, 1, 1, 0, stream, arguments,
                          NULL);
}

CUresult gpu_spin(const struct gpu *gpu, uint64_t nanoseconds, CUstream stream)
{
    void *arguments[] = {&nanoseconds};
    return cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

uint64_t gpu_mismatches(const struct gpu *gpu, CUdeviceptr at, size_t bytes, unsigned byte)
{
    CUdeviceptr counter;
    uint64_t count = 0;
    MUST(cuMemAlloc(&counter, sizeof count));
    MUST(cuMemsetD8(counter, 0, sizeof count));
    MUST(gpu_check(gpu, at, bytes, byte, counter, NULL));
    MUST(cuMemcpyDtoH(&count, counter, sizeof count));
    MUST(cuMemFree(counter));
    return count;
}

CUmemAllocationProp gpu_device_memory(const struct gpu *gpu)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device}};
}

int gpu_host_memory(const struct gpu *gpu, CUmemAllocationProp *at)
{
    int supported = 0;
    int node = 0;
    if (cuDeviceGetAttribute(&supported,
                             CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                             gpu->device) != CUDA_SUCCESS ||
        !supported) {
        return 1;
    }
    /* Below zero: the host has no nodes, and the only memory is number 0. */
    (void)cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, gpu->device);
    *at = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node < 0 ? 0 : node}};
    return 0;
}

CUresult gpu_allow(const struct gpu *gpu, CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(at, bytes, &access, 1);
}

size_t gpu_free_bytes(void)
{
    size_t free = 0;
    size_t total = 0;
    MUST(cuMemGetInfo(&free, &total));
    return free;
}

uint64_t gpu_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
