/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the driver by name, and uses it to find devices and host memory. */
#include "shim/cli/doctor/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct ms_cli_driver ms_cli_driver;

enum ms_cli_load ms_cli_driver_load(CUresult *result)
{
    bool whole = true;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return MS_CLI_NO_LIBRARY;
    }
    ms_cli_driver.library = library;
    *(void **)&ms_cli_driver.cuDeviceGetUuid_v2 = dlsym(library, "cuDeviceGetUuid_v2");
    *(void **)&ms_cli_driver.cuDeviceGetPCIBusId = dlsym(library, "cuDeviceGetPCIBusId");
#define MS_CLI_DRIVER_ROW(symbol)                              \
    *(void **)&ms_cli_driver.symbol = dlsym(library, #symbol); \
    whole = whole && ms_cli_driver.symbol != NULL;
    MS_CLI_DRIVER_ROWS
#undef MS_CLI_DRIVER_ROW
    if (!whole) {
        return MS_CLI_TOO_OLD;
    }
    *result = ms_cli_driver.cuInit(0);
    return *result == CUDA_SUCCESS ? MS_CLI_LOADED : MS_CLI_NO_INIT;
}

void ms_cli_device_pci(CUdevice device, char text[MS_CLI_PCI_BYTES])
{
    if (ms_cli_driver.cuDeviceGetPCIBusId == NULL ||
        ms_cli_driver.cuDeviceGetPCIBusId(text, MS_CLI_PCI_BYTES, device) != CUDA_SUCCESS) {
        text[0] = '\0';
    }
}

bool ms_cli_device_uuid(CUdevice device, char text[MS_CLI_UUID_TEXT_BYTES])
{
    CUuuid uuid = {{0}};
    CUresult result = ms_cli_driver.cuDeviceGetUuid_v2 != NULL
                          ? ms_cli_driver.cuDeviceGetUuid_v2(&uuid, device)
                          : ms_cli_driver.cuDeviceGetUuid(&uuid, device);
    for (size_t b = 0; b < sizeof(uuid.bytes); b++) {
        (void)snprintf(text + 2 * b, 3, "%02x", (unsigned char)uuid.bytes[b]);
    }
    return result == CUDA_SUCCESS;
}

bool ms_cli_device_find(const char *uuid_text, CUdevice *out)
{
    int count = 0;
    if (ms_cli_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        char text[MS_CLI_UUID_TEXT_BYTES];
        if (ms_cli_driver.cuDeviceGet(out, i) == CUDA_SUCCESS && ms_cli_device_uuid(*out, text) &&
            strcmp(text, uuid_text) == 0) {
            return true;
        }
    }
    return false;
}

int ms_cli_attribute(CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return ms_cli_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

bool ms_cli_device_enter(CUdevice device)
{
    CUcontext context = NULL;
    return ms_cli_driver.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
           ms_cli_driver.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

bool ms_cli_host_location(CUdevice device, CUmemLocation_v1 *out)
{
    out->type = CU_MEM_LOCATION_TYPE_INVALID;
    out->id = 0;
    if (ms_cli_attribute(device,
                         CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        int node = ms_cli_attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
        out->type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        out->id = node > 0 ? node : 0;
    } else if (ms_cli_attribute(device,
                                CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        out->type = CU_MEM_LOCATION_TYPE_HOST;
    }
    return out->type != CU_MEM_LOCATION_TYPE_INVALID;
}

CUresult ms_cli_map_host(CUdevice device, size_t bytes, CUdeviceptr *at, size_t *at_bytes)
{
    CUmemAllocationProp_v1 prop;
    CUmemGenericAllocationHandle chunk = 0;
    CUmemAccessDesc_v1 access;
    size_t granule = 0;
    memset(&prop, 0, sizeof(prop));
    memset(&access, 0, sizeof(access));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (!ms_cli_host_location(device, &prop.location)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result = ms_cli_driver.cuMemGetAllocationGranularity(&granule, &prop,
                                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || granule == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    *at_bytes = (bytes + granule - 1) / granule * granule;
    result = ms_cli_driver.cuMemCreate(&chunk, *at_bytes, &prop, 0);
    if (result == CUDA_SUCCESS) {
        result = ms_cli_driver.cuMemAddressReserve(at, *at_bytes, 0, 0, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = ms_cli_driver.cuMemMap(*at, *at_bytes, 0, chunk, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = ms_cli_driver.cuMemSetAccess(*at, *at_bytes, &access, 1);
    }
    return result;
}
