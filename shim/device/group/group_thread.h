/* SPDX-License-Identifier: Apache-2.0 */
/* A member's thread. It gives what other members ask for, whatever the program's own threads do. */
#ifndef MEMSHIM_SHIM_DEVICE_GROUP_GROUP_THREAD_H
#define MEMSHIM_SHIM_DEVICE_GROUP_GROUP_THREAD_H

#include <stdint.h>

#include "shim/device/device.h"

/* Starts the thread for a device in a group, once; does nothing otherwise. If it cannot be started,
 * other members ask in vain. */
void ms_group_thread_start(struct ms_device *device);

/* When the coldest memory that the device's pool could move to the host was last used, by
 * CLOCK_MONOTONIC, as far as is known; UINT64_MAX: it can move nothing. */
uint64_t ms_group_thread_coldest_ns(struct ms_device *device);

#endif
