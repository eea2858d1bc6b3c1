/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the device can reach host memory, and how much of it may be taken. Host memory is the
 * last resort when a hole must be backed again (allocator/pool.h, host_limit_bytes). */
#ifndef MEMSHIM_SHIM_DEVICE_HOST_ACCESS_H
#define MEMSHIM_SHIM_DEVICE_HOST_ACCESS_H

#include "shim/device/device.h"

/* Finds this out before the process has a context on the device. Sets device->host_location
 * (CU_MEM_LOCATION_TYPE_INVALID: none) and device->no_host_access (the reason), and returns how
 * many bytes of the host the pool may take, or 0. If no answer is remembered
 * (shim/process/probe.h), as at the first time on a machine and after each change of driver, kernel
 * or memshim, a throw-away process tries it. That takes a second or two, at most 42 s. handle and
 * uuid are set. */
uint64_t ms_host_access_open(struct ms_device *device);

#endif
