/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver interface cannot say: how much of a device is in use while this process has no
 * context on it, and the driver's own version. NVML says it. It is loaded at its first use, for
 * memshim alone. */
#ifndef MEMSHIM_SHIM_DRIVER_NVML_H
#define MEMSHIM_SHIM_DRIVER_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* uuid: 16 bytes, as from the driver. False: no NVML, or it does not know. */
bool ms_nvml_used_bytes(const uint8_t *uuid, uint64_t *used_bytes);

struct ms_nvml_process {
    uint32_t pid;
    uint64_t bytes;
};

/* The processes with memory on the device, compute and graphics, each once. False if NVML does not
 * list them, there are more than `room`, or NVML was not loaded before. It is not loaded here,
 * because the program may hold locks. */
bool ms_nvml_processes(const uint8_t *uuid, struct ms_nvml_process *out, size_t room,
                       size_t *count);

/* The bytes that this process uses of the device; 0 if it is not listed, which it is once it has a
 * context there. False as for ms_nvml_processes. In a container NVML may list the machine's process
 * ids. This process does not know its own id there, and is never found in the list. */
bool ms_nvml_own_bytes(const uint8_t *uuid, uint64_t *own_bytes);

/* The driver's limit for a control group, by its path: how much of the device it may use and uses
 * (CUDA 13.4). False if NVML does not say. NVML is not loaded here either. */
bool ms_nvml_group_limit(const uint8_t *uuid, const char *group, uint64_t *limit_bytes,
                         uint64_t *used_bytes);

/* Writes a version such as "575.51.03", always terminated. False: no NVML, or it does not know. */
bool ms_nvml_driver_version(char *version, unsigned version_bytes);

#endif
