/* SPDX-License-Identifier: Apache-2.0 */
/* A device of which other processes of the run, or of a named group, have parts under one cap. */
#ifndef MEMSHIM_SHIM_DEVICE_DEVICE_GROUP_H
#define MEMSHIM_SHIM_DEVICE_DEVICE_GROUP_H

#include <stdint.h>

#include "shim/device/device.h"

/* Whether the options ask for it. */
bool ms_device_group_wanted(void);

/* Where the options ask for it: the device's budget borrows from the group from here on, and its
 * cap is the group's where that is smaller. Where there can be no group, a line says why, and the
 * cap is this process's own. While the device is made. */
void ms_device_group_join(struct ms_device *device);

/* The device was not made after all. */
void ms_device_group_leave(struct ms_device *device);

/* Asks the others to give what lies with them for nobody, until the group has `bytes` free. True:
 * something came free. No lock may be held: who is asked may ask this process meanwhile. */
bool ms_device_group_ask(struct ms_device *device, uint64_t bytes);

/* Asks the one whose memory is coldest to move some to the host: where that is colder than what
 * this process could move itself, or, with `any`, whatever it is. True: it did. */
bool ms_device_group_ask_spill(struct ms_device *device, uint64_t bytes, bool any);

#endif
