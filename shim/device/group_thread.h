/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a member: it gives what other members ask for, whatever the program's threads do.
 */
#ifndef MEMSHIM_SHIM_DEVICE_GROUP_THREAD_H
#define MEMSHIM_SHIM_DEVICE_GROUP_THREAD_H

#include <stdint.h>

#include "shim/device/device.h"

/* For a device that is in a group, once; nothing elsewhere. Without it the others ask in vain. */
void ms_group_thread_start(struct ms_device *device);

/* When the coldest of what the device's pool could move to the host was used last, by
 * CLOCK_MONOTONIC, as far as that is known; UINT64_MAX: it can move nothing. */
uint64_t ms_group_thread_coldest_ns(struct ms_device *device);

#endif
