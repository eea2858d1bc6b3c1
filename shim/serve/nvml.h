/* What the driver interface has no call for: how much of a device is in use while this process has
 * no context on it, and the driver's own version. Asked of NVML, which is loaded when it is first
 * needed, for memshim alone. */
#ifndef MEMSHIM_SHIM_SERVE_NVML_H
#define MEMSHIM_SHIM_SERVE_NVML_H

#include <stdbool.h>
#include <stdint.h>

/* uuid: 16 bytes, as the driver gives them. False where NVML is missing or does not know. */
bool ms_nvml_used_bytes(const uint8_t *uuid, uint64_t *used_bytes);

/* "575.51.03" into version, always terminated. False where NVML is missing or does not know. */
bool ms_nvml_driver_version(char *version, unsigned version_bytes);

#endif
