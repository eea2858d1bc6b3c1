#include "shim/cli/probe.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/cli/cli.h"
#include "shim/cuda_api.h"
#include "shim/probe.h"

#define LONGEST_SECONDS 10u
#define PATTERN         0xa5a5a5a5u

/* PROBE_ROW(symbol): looked up in libcuda, which this executable does not link. */
#define PROBE_ROWS                           \
    PROBE_ROW(cuInit)                        \
    PROBE_ROW(cuDeviceGetCount)              \
    PROBE_ROW(cuDeviceGet)                   \
    PROBE_ROW(cuDeviceGetUuid)               \
    PROBE_ROW(cuDeviceGetAttribute)          \
    PROBE_ROW(cuDevicePrimaryCtxRetain)      \
    PROBE_ROW(cuCtxSetCurrent)               \
    PROBE_ROW(cuCtxSynchronize)              \
    PROBE_ROW(cuMemGetAllocationGranularity) \
    PROBE_ROW(cuMemAddressReserve)           \
    PROBE_ROW(cuMemCreate)                   \
    PROBE_ROW(cuMemMap)                      \
    PROBE_ROW(cuMemSetAccess)                \
    PROBE_ROW(cuMemAlloc_v2)                 \
    PROBE_ROW(cuMemsetD32_v2)                \
    PROBE_ROW(cuMemcpyDtoD_v2)               \
    PROBE_ROW(cuMemcpyDtoH_v2)

static struct driver {
#define PROBE_ROW(symbol) __typeof__(symbol) *(symbol);
    PROBE_ROWS
#undef PROBE_ROW
    __typeof__(cuDeviceGetUuid_v2) *cuDeviceGetUuid_v2; /* CUDA 11.4; tells MIG devices apart */
} driver;

static bool load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
    driver.cuDeviceGetUuid_v2 =
        (__typeof__(driver.cuDeviceGetUuid_v2))dlsym(library, "cuDeviceGetUuid_v2");
    bool whole = true;
#define PROBE_ROW(symbol)                                               \
    driver.symbol = (__typeof__(driver.symbol))dlsym(library, #symbol); \
    whole = whole && driver.symbol != NULL;
    PROBE_ROWS
#undef PROBE_ROW
    return whole && driver.cuInit(0) == CUDA_SUCCESS;
}

static bool find_device(const char *uuid_text, CUdevice *out)
{
    int count = 0;
    if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        CUuuid uuid = {{0}};
        char text[2 * sizeof(uuid.bytes) + 1];
        bool known = driver.cuDeviceGet(out, i) == CUDA_SUCCESS &&
                     (driver.cuDeviceGetUuid_v2 != NULL
                          ? driver.cuDeviceGetUuid_v2
                          : driver.cuDeviceGetUuid)(&uuid, *out) == CUDA_SUCCESS;
        for (size_t b = 0; b < sizeof(uuid.bytes); b++) {
            (void)snprintf(text + 2 * b, 3, "%02x", (unsigned char)uuid.bytes[b]);
        }
        if (known && strcmp(text, uuid_text) == 0) {
            return true;
        }
    }
    return false;
}

static int attribute(CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* Where the serving half would put it (find_host_location). */
static CUmemAllocationProp_v1 host_properties(CUdevice device)
{
    CUmemAllocationProp_v1 prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        int node = attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        prop.location.id = node > 0 ? node : 0;
    } else {
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    }
    return prop;
}

/* The driver ran out of something: nothing is known then. */
static int refused(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY ? MS_PROBE_UNKNOWN : MS_PROBE_NO;
}

/* One chunk of host memory where the device can access it; its length too. */
static int map_host(CUdevice device, CUdeviceptr *at, size_t *bytes)
{
    CUmemAllocationProp_v1 prop = host_properties(device);
    CUmemGenericAllocationHandle chunk = 0;
    CUmemAccessDesc_v1 access;
    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result =
        driver.cuMemGetAllocationGranularity(bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemCreate(&chunk, *bytes, &prop, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemAddressReserve(at, *bytes, 0, 0, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemMap(*at, *bytes, 0, chunk, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemSetAccess(*at, *bytes, &access, 1);
    }
    return result == CUDA_SUCCESS ? MS_PROBE_YES : refused(result);
}

/* The device writes the pattern into device memory, copies it to the host's, over itself there, and
 * back; whatever does not arrive is seen. */
static int access_host(CUdeviceptr host, CUdeviceptr device, uint32_t *words, size_t bytes)
{
    size_t half = bytes / 2;
    bool done = driver.cuMemsetD32_v2(host, ~PATTERN, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver.cuMemsetD32_v2(device, PATTERN, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver.cuMemcpyDtoD_v2(host, device, half) == CUDA_SUCCESS &&
                driver.cuMemcpyDtoD_v2(host + half, host, half) == CUDA_SUCCESS &&
                driver.cuMemsetD32_v2(device, 0, bytes / sizeof(*words)) == CUDA_SUCCESS &&
                driver.cuMemcpyDtoD_v2(device, host, bytes) == CUDA_SUCCESS &&
                driver.cuCtxSynchronize() == CUDA_SUCCESS &&
                driver.cuMemcpyDtoH_v2(words, device, bytes) == CUDA_SUCCESS;
    for (size_t i = 0; done && i < bytes / sizeof(*words); i++) {
        done = words[i] == PATTERN;
    }
    return done ? MS_PROBE_YES : MS_PROBE_NO;
}

int ms_cli_probe_host(int argc, char **argv)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CUdeviceptr host = 0, scratch = 0;
    size_t bytes = 0;
    if (argc != 2) {
        return MS_CLI_WRONG_CALL;
    }
    (void)alarm(LONGEST_SECONDS); /* a device may hang over it */
    if (!load_driver() || !find_device(argv[1], &device) ||
        driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        driver.cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        return MS_PROBE_UNKNOWN;
    }
    int status = map_host(device, &host, &bytes);
    if (status != MS_PROBE_YES) {
        return status;
    }
    uint32_t *words = malloc(bytes);
    if (words == NULL || driver.cuMemAlloc_v2(&scratch, bytes) != CUDA_SUCCESS) {
        free(words);
        return MS_PROBE_UNKNOWN;
    }
    status = access_host(host, scratch, words, bytes);
    free(words);
    return status; /* the driver takes the rest when the process ends */
}

int ms_cli_probe_mapping(int argc, char **argv)
{
    int count = 0;
    (void)argv;
    if (argc != 1) {
        return MS_CLI_WRONG_CALL;
    }
    (void)alarm(LONGEST_SECONDS);
    if (!load_driver() || driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        return MS_PROBE_UNKNOWN;
    }
    for (int i = 0; i < count; i++) {
        CUdevice device = 0;
        if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            !attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
            return MS_PROBE_NO;
        }
    }
    return MS_PROBE_YES;
}
