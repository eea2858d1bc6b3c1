/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver interface has no call for: how much of a device is in use while this process has
 * no context on it, and the driver's own version. Asked of NVML, which is loaded when it is first
 * needed, for memshim alone. */
#ifndef MEMSHIM_SHIM_DEVICE_NVML_H
#define MEMSHIM_SHIM_DEVICE_NVML_H

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

/* What this process uses of the device; 0 where it is not in the list, which it is once it has a
 * context there. False as for ms_nvml_processes. In a container NVML may list process ids of the
 * machine. This process does not know its own one there, and is never found in the list. */
bool ms_nvml_own_bytes(const uint8_t *uuid, uint64_t *own_bytes);

/* The driver's limit on a control group, by its path: how much of the device it may have and has
 * (CUDA 13.4). False where NVML does not say. It is not loaded for this either. */
bool ms_nvml_group_limit(const uint8_t *uuid, const char *group, uint64_t *limit_bytes,
                         uint64_t *used_bytes);

/* "575.51.03" into version, always terminated. False where NVML is missing or does not know. */
bool ms_nvml_driver_version(char *version, unsigned version_bytes);

#endif
