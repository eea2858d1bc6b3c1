/* What the driver interface has no call for: how much of a device is in use while this process has
 * no context on it, and the driver's own version. Asked of NVML, which is loaded when it is first
 * needed, for memshim alone. */
#ifndef MEMSHIM_SHIM_SERVE_NVML_H
#define MEMSHIM_SHIM_SERVE_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* uuid: 16 bytes, as the driver gives them. False where NVML is missing or does not know. */
bool ms_nvml_used_bytes(const uint8_t *uuid, uint64_t *used_bytes);

struct ms_nvml_process {
    uint32_t pid;
    uint64_t bytes;
};

/* The processes with memory on the device, compute and graphics, each once. False where NVML does
 * not list them, they are more than `room`, or it has not been loaded before: it is not loaded for
 * this, since locks of the program may be held. */
bool ms_nvml_processes(const uint8_t *uuid, struct ms_nvml_process *out, size_t room,
                       size_t *count);

/* "575.51.03" into version, always terminated. False where NVML is missing or does not know. */
bool ms_nvml_driver_version(char *version, unsigned version_bytes);

#endif
