/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the device can reach: whether there is any, and how much of it may be
 * taken. The last rung of backing a hole again (allocator/pool.h, host_limit_bytes). */
#ifndef MEMSHIM_SHIM_DEVICE_HOST_ACCESS_H
#define MEMSHIM_SHIM_DEVICE_HOST_ACCESS_H

#include "shim/device/device.h"

/* Finds out, before the device has a context of this process: fills device->host_location
 * (CU_MEM_LOCATION_TYPE_INVALID: none) and device->no_host_access (why not), and returns how many
 * bytes of the host the pool may take, 0 where there is none. The first time on a machine, after
 * each change of driver, kernel or memshim, and wherever no answer is remembered
 * (shim/process/probe.h), a throw-away process tries it: that takes a second or two, and at most 42
 * s. handle and uuid are set. */
uint64_t ms_host_access_open(struct ms_device *device);

#endif
