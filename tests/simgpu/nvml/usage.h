/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory of a simulated device is used, and by whom, as seen from outside the driver: from
 * the file that SIMGPU_SHARED names, or else from the driver in this process, if one is loaded.
 */
#ifndef SIMGPU_NVML_USAGE_H
#define SIMGPU_NVML_USAGE_H

#include <stdint.h>

/* Bytes in use on a device, by everyone. */
uint64_t usage_bytes(int device);

/* Fills at most `capacity` of `pids` and `bytes`; gives how many processes use the device. */
unsigned usage_processes(int device, unsigned capacity, uint32_t *pids, uint64_t *bytes);

#endif
