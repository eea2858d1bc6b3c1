/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as memshim's own commands use it: loaded by name, because this executable does not
 * link to it. For throw-away processes: nothing is freed. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_DRIVER_H
#define MEMSHIM_SHIM_CLI_DOCTOR_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/tables/cuda_api.h"

/* MS_CLI_DRIVER_ROW(symbol): functions without which memshim cannot use the driver. */
#define MS_CLI_DRIVER_ROWS                           \
    MS_CLI_DRIVER_ROW(cuInit)                        \
    MS_CLI_DRIVER_ROW(cuDeviceGetCount)              \
    MS_CLI_DRIVER_ROW(cuDeviceGet)                   \
    MS_CLI_DRIVER_ROW(cuDeviceGetUuid)               \
    MS_CLI_DRIVER_ROW(cuDeviceGetName)               \
    MS_CLI_DRIVER_ROW(cuDeviceTotalMem_v2)           \
    MS_CLI_DRIVER_ROW(cuDeviceGetAttribute)          \
    MS_CLI_DRIVER_ROW(cuDriverGetVersion)            \
    MS_CLI_DRIVER_ROW(cuDevicePrimaryCtxRetain)      \
    MS_CLI_DRIVER_ROW(cuCtxSetCurrent)               \
    MS_CLI_DRIVER_ROW(cuCtxSynchronize)              \
    MS_CLI_DRIVER_ROW(cuMemGetAllocationGranularity) \
    MS_CLI_DRIVER_ROW(cuMemAddressReserve)           \
    MS_CLI_DRIVER_ROW(cuMemCreate)                   \
    MS_CLI_DRIVER_ROW(cuMemMap)                      \
    MS_CLI_DRIVER_ROW(cuMemSetAccess)                \
    MS_CLI_DRIVER_ROW(cuMemAlloc_v2)                 \
    MS_CLI_DRIVER_ROW(cuMemAllocManaged)             \
    MS_CLI_DRIVER_ROW(cuMemHostAlloc)                \
    MS_CLI_DRIVER_ROW(cuMemHostGetDevicePointer_v2)  \
    MS_CLI_DRIVER_ROW(cuMemAdvise)                   \
    MS_CLI_DRIVER_ROW(cuMemsetD32_v2)                \
    MS_CLI_DRIVER_ROW(cuMemcpyDtoD_v2)               \
    MS_CLI_DRIVER_ROW(cuMemcpyDtoH_v2)

struct ms_cli_driver {
#define MS_CLI_DRIVER_ROW(symbol) __typeof__(symbol) *(symbol);
    MS_CLI_DRIVER_ROWS
#undef MS_CLI_DRIVER_ROW
    __typeof__(cuDeviceGetPCIBusId) *cuDeviceGetPCIBusId;
    __typeof__(cuDeviceGetUuid_v2) *cuDeviceGetUuid_v2; /* CUDA 11.4; distinguishes MIG devices */
    void *library;
};

/* Empty until ms_cli_driver_load has found everything. */
extern struct ms_cli_driver ms_cli_driver;

enum ms_cli_load {
    MS_CLI_LOADED,
    MS_CLI_NO_LIBRARY, /* libcuda.so.1 cannot be loaded */
    MS_CLI_TOO_OLD,    /* it lacks a function that memshim needs */
    MS_CLI_NO_INIT     /* cuInit failed: *result */
};
enum ms_cli_load ms_cli_driver_load(CUresult *result);

#define MS_CLI_UUID_TEXT_BYTES (2 * sizeof(((CUuuid *)0)->bytes) + 1)

/* "0000:01:00.0"; empty if the driver does not say. */
#define MS_CLI_PCI_BYTES 32
void ms_cli_device_pci(CUdevice device, char text[MS_CLI_PCI_BYTES]);

/* 32 hexadecimal digits; false if the driver does not say. */
bool ms_cli_device_uuid(CUdevice device, char text[MS_CLI_UUID_TEXT_BYTES]);
bool ms_cli_device_find(const char *uuid_text, CUdevice *out);

/* 0 also if the driver does not know the attribute. */
int ms_cli_attribute(CUdevice device, CUdevice_attribute which);

/* Makes a new context of the device, and makes it current. */
bool ms_cli_device_enter(CUdevice device);

/* Where host memory that the device can reach would lie, by the library's own rule
 * (shim/device/host_access.c). False: the driver offers none. */
bool ms_cli_host_location(CUdevice device, CUmemLocation_v1 *out);

/* Maps one accessible chunk of at least `bytes` there; *at_bytes: its length. Returns the driver's
 * error on failure. */
CUresult ms_cli_map_host(CUdevice device, size_t bytes, CUdeviceptr *at, size_t *at_bytes);

#endif
