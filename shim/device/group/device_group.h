/* SPDX-License-Identifier: Apache-2.0 */
/* A device whose cap is shared with other processes of the run, or of a named group. */
#ifndef MEMSHIM_SHIM_DEVICE_GROUP_DEVICE_GROUP_H
#define MEMSHIM_SHIM_DEVICE_GROUP_DEVICE_GROUP_H

#include <stdint.h>

#include "shim/device/device.h"

/* Whether the options ask for it. */
bool ms_device_group_wanted(void);

/* If the options ask for it: the device's budget borrows from the group from here on, and the
 * group's cap holds if it is smaller. If there can be no group, logs why, and the process keeps a
 * cap of its own. Called while the device is made. */
void ms_device_group_join(struct ms_device *device);

/* The device was not made after all. */
void ms_device_group_leave(struct ms_device *device);

/* Asks other members and tries the request, in turn, until it is served or refused, at most for the
 * configured time (MEMSHIM_WAIT_MS) and the last turn. Returns what the last attempt did;
 * MS_ERR_NO_MEMORY, too, if no other member gave anything. The device has a group. The caller holds
 * no lock, because a member that is asked may ask this process meanwhile. */
ms_status_t ms_device_group_climb(struct ms_device *device, const struct ms_group_climb *climb);

#endif
