/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the device uses: what spilling stands on. Kernels fault on it on some machines
 * whose driver offers it. */
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

/* A spill and its way back: the address stays, contents go along. For a moment the new chunk is at
 * two addresses. */
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
        WORKS(cuMemUnmap(both.at, BYTES));
        WORKS(show(gpu, both.at, to));
        WORKS(cuMemUnmap(aside, BYTES));
        GIVES(gpu_mismatches(gpu, both.at, BYTES, 0x65), 0);
        CUmemGenericAllocationHandle swap = from;
        from = to;
        to = swap;
    }
    return HOLDS;
}

/* Pieces that change places one by one, while those behind them are still being copied. */
static enum verdict copied_while_others_change(const struct gpu *gpu)
{
    enum { PIECES = 16 };
    CUmemGenericAllocationHandle host[PIECES];
    CUevent copied[PIECES];
    CUdeviceptr at;
    CUdeviceptr aside;
    CUstream stream;
    BOTH(both);
    WORKS(cuMemAddressReserve(&at, PIECES * (size_t)BYTES, 0, 0, 0));
    WORKS(cuMemAddressReserve(&aside, PIECES * (size_t)BYTES, 0, 0, 0));
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < PIECES; i++) {
        CUmemGenericAllocationHandle device;
        WORKS(cuMemCreate(&device, BYTES, &device_prop, 0));
        WORKS(show(gpu, at + i * (size_t)BYTES, device));
        WORKS(cuMemRelease(device));
        WORKS(cuMemCreate(&host[i], BYTES, &host_prop, 0));
        WORKS(show(gpu, aside + i * (size_t)BYTES, host[i]));
        WORKS(gpu_fill(gpu, at + i * (size_t)BYTES, BYTES, i + 1, NULL));
        WORKS(cuEventCreate(&copied[i], CU_EVENT_DISABLE_TIMING));
    }
    WORKS(cuCtxSynchronize());
    for (unsigned i = 0; i < PIECES; i++) {
        size_t offset = i * (size_t)BYTES;
        WORKS(cuMemcpyAsync(aside + offset, at + offset, BYTES, stream));
        WORKS(cuEventRecord(copied[i], stream));
    }
    for (unsigned i = 0; i < PIECES; i++) {
        WORKS(cuEventSynchronize(copied[i]));
        WORKS(cuMemUnmap(at + i * (size_t)BYTES, BYTES));
        WORKS(show(gpu, at + i * (size_t)BYTES, host[i]));
    }
    WORKS(cuStreamSynchronize(stream));
    WORKS(cuMemUnmap(aside, PIECES * (size_t)BYTES));
    for (unsigned i = 0; i < PIECES; i++) {
        GIVES(gpu_mismatches(gpu, at + i * (size_t)BYTES, BYTES, i + 1), 0);
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

/* --- where on the host ------------------------------------------------------------------------ */

/* The first call that does not work with memory of that location, and what it gives; null: all do,
 * and *granule is that of its chunks. */
static const char *use_location(const struct gpu *gpu, CUmemLocation location, size_t *granule,
                                CUresult *result)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr at;
    const char *failed = NULL;
    *result = cuMemGetAllocationGranularity(granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (*result != CUDA_SUCCESS) {
        return "cuMemGetAllocationGranularity";
    }
    *result = cuMemCreate(&chunk, *granule, &prop, 0);
    if (*result != CUDA_SUCCESS) {
        return "cuMemCreate";
    }
    MUST(cuMemAddressReserve(&at, *granule, 0, 0, 0));
    *result = cuMemMap(at, *granule, 0, chunk, 0);
    if (*result != CUDA_SUCCESS) {
        failed = "cuMemMap";
    } else {
        *result = gpu_allow(gpu, at, *granule);
        failed = *result != CUDA_SUCCESS ? "cuMemSetAccess" : NULL;
        if (failed == NULL) {
            *result = gpu_fill(gpu, at, *granule, 0x19, NULL);
            *result = *result == CUDA_SUCCESS ? cuCtxSynchronize() : *result;
            failed = *result != CUDA_SUCCESS ? "a kernel" : NULL;
        }
        (void)cuMemUnmap(at, *granule);
    }
    (void)cuMemAddressFree(at, *granule);
    (void)cuMemRelease(chunk);
    return failed;
}

static void answer_location(const struct gpu *gpu, CUmemLocation location, const char *what)
{
    char question[160];
    char answer[160];
    size_t granule = 0;
    CUresult result;
    const char *failed = use_location(gpu, location, &granule, &result);
    (void)snprintf(question, sizeof question, "host memory %s: can the device use it?", what);
    if (failed) {
        (void)snprintf(answer, sizeof answer, "no: %s gives %s", failed,
                       assume_result_name(result));
    } else {
        (void)snprintf(answer, sizeof answer, "yes, in granules of %zu KiB", granule / KIB);
    }
    assume_answer(question, answer);
}

/* Whether the node has processors; below 0: there is no such node. */
static int node_has_cpus(int node)
{
    char path[80];
    char first = '\n';
    (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    int has = fread(&first, 1, 1, file) == 1 && first != '\n';
    (void)fclose(file);
    return has;
}

static enum verdict locations(const struct gpu *gpu)
{
    enum { NODES_MAX = 64 };
    int value = 0;
    CUmemAllocationProp device = gpu_device_memory(gpu);
    size_t granule = 0;
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    WORKS(cuMemGetAllocationGranularity(&granule, &device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    assume_measured("the granule that is recommended for the device's memory", (long long)granule,
                    "bytes");
    WORKS(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, gpu->device));
    assume_measured("CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", value, "");
    WORKS(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, gpu->device));
    assume_measured("CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID", value, "");
    for (int node = 0; node < NODES_MAX; node++) {
        char what[64];
        int has_cpus = node_has_cpus(node);
        if (has_cpus < 0 && node > 0) {
            continue;
        }
        (void)snprintf(what, sizeof what, "of node %d%s", node,
                       has_cpus == 1   ? ", with processors"
                       : has_cpus == 0 ? ", without processors"
                                       : ", of a host without nodes");
        answer_location(gpu, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node},
                        what);
    }
    answer_location(gpu, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT},
                    "of the thread's node");
    answer_location(gpu, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}, "of no node");
    WORKS(cuCtxSynchronize()); /* a fault stays with the context */
    return HOLDS;
}

const struct assumption assume_host[] = {
    {"a host-located chunk takes no device memory", costs_no_device_memory, false},
    {"kernels write and read host-located chunks", kernels_use_it, false},
    {"copies and memsets reach host-located chunks", copies_use_it, false},
    {"contents go to the host and back under one address", there_and_back, false},
    {"pieces change places while others are copied", copied_while_others_change, false},
    {"a mapped host-located address can be asked for its kind", reads_as_device_memory, false},
    {"host memory of every location can be tried", locations, false},
    {NULL, NULL, false},
};
