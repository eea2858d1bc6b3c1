/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory of a simulated device is used, and by which processes, as seen from outside the
 * driver: from the file named by SIMGPU_SHARED, otherwise from the driver in this process, if it is
 * loaded. */
#ifndef SIMGPU_NVML_USAGE_H
#define SIMGPU_NVML_USAGE_H

#include <stdint.h>

/* Bytes in use on a device, by all processes. */
uint64_t usage_bytes(int device);

/* Fills at most `capacity` entries of `pids` and `bytes`; returns how many processes use the
 * device. */
unsigned usage_processes(int device, unsigned capacity, uint32_t *pids, uint64_t *bytes);

#endif
