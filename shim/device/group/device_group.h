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

/* Asks the other members for memory that they hold unused, until the group has `bytes` free. True:
 * something came free. The caller holds no lock, because a member that is asked may ask this
 * process meanwhile. */
bool ms_device_group_ask(struct ms_device *device, uint64_t bytes);

/* Asks the member with the coldest memory to move some to the host: if that is colder than what
 * this process could move itself, or in any case if `any`. True: it moved some. */
bool ms_device_group_ask_spill(struct ms_device *device, uint64_t bytes, bool any);

#endif
