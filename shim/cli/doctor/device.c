/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim doctor asks the driver and each device, in throw-away processes. */
#include "shim/cli/doctor/device.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "shim/cli/doctor/probe.h"
#include "shim/tables/probe_codes.h"

#define LONGEST_SECONDS 10u
#define MEASURED_BYTES  ((size_t)64 << 20)
#define ROUNDS          4u
#define PATTERN         0x5a5a5a5au
#define TRIED_BYTES     ((size_t)2 << 20)

/* --- without a context ------------------------------------------------------------------------ */

static void read_device(CUdevice handle, struct ms_doctor_device *device)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    CUmemAllocationProp_v1 prop;
    CUmemLocation_v1 location;
    size_t bytes = 0;
    (void)driver->cuDeviceGetName(device->name, sizeof(device->name), handle);
    (void)ms_cli_device_uuid(handle, device->uuid);
    ms_cli_device_pci(handle, device->pci);
    if (driver->cuDeviceTotalMem_v2(&bytes, handle) == CUDA_SUCCESS) {
        device->total_bytes = bytes;
    }
    device->mapping =
        ms_cli_attribute(handle, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = handle;
    if (device->mapping && driver->cuMemGetAllocationGranularity(
                               &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS) {
        device->granule_bytes = bytes;
    }
    device->handle_fd =
        ms_cli_attribute(handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    device->handle_fabric =
        ms_cli_attribute(handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    device->rdma_offered =
        ms_cli_attribute(handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    device->host_offered = device->mapping && ms_cli_host_location(handle, &location);
    device->host_node =
        device->host_offered && location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? location.id : -1;
}

static void name_result(CUresult result, char *name, size_t name_bytes)
{
    const char *text = NULL;
    __typeof__(cuGetErrorName) *ask = NULL;
    *(void **)&ask = dlsym(ms_cli_driver.library, "cuGetErrorName");
    if (ask != NULL && ask(result, &text) == CUDA_SUCCESS && text != NULL) {
        (void)snprintf(name, name_bytes, "%s", text);
    }
}

static void read_devices(struct ms_doctor_facts *facts, int unused)
{
    CUresult result = CUDA_SUCCESS;
    int count = 0;
    (void)unused;
    enum ms_cli_load load = ms_cli_driver_load(&result);
    facts->init_result = (int32_t)result;
    if (load != MS_CLI_NO_LIBRARY) {
        for (int row = 0; row < MS_HOOK_COUNT; row++) {
            facts->functions[row] = dlsym(ms_cli_driver.library, ms_hook_table[row].symbol) != NULL;
        }
    }
    if (load == MS_CLI_NO_INIT) {
        name_result(result, facts->init_name, sizeof(facts->init_name));
    }
    if (load == MS_CLI_LOADED) {
        (void)ms_cli_driver.cuDriverGetVersion(&facts->cuda_version);
        (void)ms_cli_driver.cuDeviceGetCount(&count);
        facts->device_count = count < MS_DEVICES_MAX ? count : MS_DEVICES_MAX;
    }
    for (int i = 0; i < facts->device_count; i++) {
        CUdevice handle = 0;
        facts->devices[i].ordinal = i;
        if (ms_cli_driver.cuDeviceGet(&handle, i) == CUDA_SUCCESS) {
            read_device(handle, &facts->devices[i]);
        }
    }
    facts->load = (int32_t)load;
}

/* --- with a context --------------------------------------------------------------------------- */

/* The pool's own chunks ask for it, if it works (shim/device/operations/driver_ops.c). */
static uint8_t try_rdma(CUdevice handle, size_t granule)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    CUmemAllocationProp_v1 prop;
    CUmemAccessDesc_v1 access;
    CUmemGenericAllocationHandle chunk = 0;
    CUdeviceptr at = 0;
    memset(&prop, 0, sizeof(prop));
    memset(&access, 0, sizeof(access));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = handle;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    bool works = driver->cuMemCreate(&chunk, granule, &prop, 0) == CUDA_SUCCESS &&
                 driver->cuMemAddressReserve(&at, granule, 0, 0, 0) == CUDA_SUCCESS &&
                 driver->cuMemMap(at, granule, 0, chunk, 0) == CUDA_SUCCESS &&
                 driver->cuMemSetAccess(at, granule, &access, 1) == CUDA_SUCCESS;
    return works ? MS_DOCTOR_YES : MS_DOCTOR_NO;
}

/* An attribute claims handle types that the driver may refuse: fabric handles on a machine whose
 * devices have no fabric (seen on an H200 with driver 580.159.04). */
static bool makes_handles(CUdevice handle, size_t granule, CUmemAllocationHandleType type)
{
    const CUmemAllocationProp_v1 prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = type,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = handle},
    };
    CUmemGenericAllocationHandle chunk = 0;
    return ms_cli_driver.cuMemCreate(&chunk, granule, &prop, 0) == CUDA_SUCCESS;
}

/* The device writes there, and another copy of it is read back. */
static uint8_t try_memory(CUdeviceptr at, CUdeviceptr scratch, size_t bytes)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    uint32_t words[1024] = {0};
    bool done = driver->cuMemsetD32_v2(at, PATTERN, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver->cuMemcpyDtoD_v2(scratch, at, bytes) == CUDA_SUCCESS &&
                driver->cuCtxSynchronize() == CUDA_SUCCESS &&
                driver->cuMemcpyDtoH_v2(words, scratch + bytes - sizeof(words), sizeof(words)) ==
                    CUDA_SUCCESS;
    for (size_t i = 0; done && i < sizeof(words) / sizeof(*words); i++) {
        done = words[i] == PATTERN;
    }
    return done ? MS_DOCTOR_YES : MS_DOCTOR_NO;
}

static uint8_t try_managed(CUdevice handle, CUdeviceptr scratch)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    CUdeviceptr at = 0;
    if (!ms_cli_attribute(handle, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) ||
        driver->cuMemAllocManaged(&at, TRIED_BYTES, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS ||
        driver->cuMemAdvise(at, TRIED_BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU) !=
            CUDA_SUCCESS) {
        return MS_DOCTOR_NO;
    }
    return try_memory(at, scratch, TRIED_BYTES);
}

static uint8_t try_pinned(CUdeviceptr scratch)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    void *memory = NULL;
    CUdeviceptr at = 0;
    if (driver->cuMemHostAlloc(&memory, TRIED_BYTES, CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        driver->cuMemHostGetDevicePointer_v2(&at, memory, 0) != CUDA_SUCCESS) {
        return MS_DOCTOR_NO;
    }
    return try_memory(at, scratch, TRIED_BYTES);
}

/* Bytes per second; 0 if a copy failed. */
static uint64_t measure(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const struct ms_cli_driver *driver = &ms_cli_driver;
    bool done = driver->cuMemcpyDtoD_v2(to, from, bytes) == CUDA_SUCCESS && /* not measured */
                driver->cuCtxSynchronize() == CUDA_SUCCESS;
    uint64_t start_ns = ms_clock_ns();
    for (unsigned round = 0; done && round < ROUNDS; round++) {
        done = driver->cuMemcpyDtoD_v2(to, from, bytes) == CUDA_SUCCESS;
    }
    done = done && driver->cuCtxSynchronize() == CUDA_SUCCESS;
    uint64_t took_ns = ms_clock_ns() - start_ns + 1;
    return done ? (uint64_t)((double)bytes * ROUNDS * 1e9 / (double)took_ns) : 0;
}

static void measure_host_access(CUdevice handle, struct ms_doctor_device *device)
{
    CUdeviceptr host = 0, there = 0;
    size_t bytes = MEASURED_BYTES;
    if (ms_cli_map_host(handle, bytes, &host, &bytes) == CUDA_SUCCESS &&
        ms_cli_driver.cuMemAlloc_v2(&there, bytes) == CUDA_SUCCESS) {
        device->down_bytes_per_s = measure(host, there, bytes);
        device->up_bytes_per_s = measure(there, host, bytes);
    }
}

static bool enter(struct ms_doctor_facts *facts, int ordinal, CUdevice *handle)
{
    CUresult result = CUDA_SUCCESS;
    struct ms_doctor_device *device = &facts->devices[ordinal];
    device->entered = ms_cli_driver_load(&result) == MS_CLI_LOADED &&
                      ms_cli_driver.cuDeviceGet(handle, ordinal) == CUDA_SUCCESS &&
                      ms_cli_device_enter(*handle);
    return device->entered;
}

static void try_chunks(struct ms_doctor_facts *facts, int ordinal)
{
    CUdevice handle = 0;
    struct ms_doctor_device *device = &facts->devices[ordinal];
    if (!enter(facts, ordinal, &handle)) {
        return;
    }
    const size_t granule = device->granule_bytes;
    if (device->rdma_offered && granule > 0) {
        device->rdma = try_rdma(handle, granule);
    }
    device->handle_fd = device->handle_fd &&
                        makes_handles(handle, granule, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    device->handle_fabric =
        device->handle_fabric && makes_handles(handle, granule, CU_MEM_HANDLE_TYPE_FABRIC);
    if (ms_probe_answer_of(device->host_code) == MS_PROBE_YES) {
        measure_host_access(handle, device);
    }
}

static void try_rungs(struct ms_doctor_facts *facts, int ordinal)
{
    CUdevice handle = 0;
    CUdeviceptr scratch = 0;
    struct ms_doctor_device *device = &facts->devices[ordinal];
    if (enter(facts, ordinal, &handle) &&
        ms_cli_driver.cuMemAlloc_v2(&scratch, TRIED_BYTES) == CUDA_SUCCESS) {
        device->pinned = try_pinned(scratch);
        device->managed = try_managed(handle, scratch);
    }
}

static void prove_host_access(struct ms_doctor_facts *facts, int ordinal)
{
    _exit(ms_probe_host(facts->devices[ordinal].uuid));
}

/* --- in a process of its own ------------------------------------------------------------------ */

/* How the process ended: a code of MS_PROBE_CODES if that is what it asked for. */
static int apart(struct ms_doctor_facts *facts, void (*ask)(struct ms_doctor_facts *, int),
                 int ordinal)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(LONGEST_SECONDS);
        ask(facts, ordinal);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return MS_PROBE_NOT_RUN_CODE;
    }
    return ms_probe_code_of(status);
}

struct ms_doctor_facts *ms_doctor_ask_driver(void)
{
    struct ms_doctor_facts *facts =
        mmap(NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (facts == MAP_FAILED) {
        return NULL;
    }
    facts->load = -1;
    (void)apart(facts, read_devices, 0);
    for (int i = 0; i < facts->device_count && facts->load == MS_CLI_LOADED; i++) {
        struct ms_doctor_device *device = &facts->devices[i];
        device->host_code =
            device->host_offered ? apart(facts, prove_host_access, i) : MS_PROBE_REFUSED_CODE;
        (void)apart(facts, try_chunks, i);
        (void)apart(facts, try_rungs, i);
    }
    return facts;
}
