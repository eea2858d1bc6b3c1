/* SPDX-License-Identifier: Apache-2.0 */
/* A device of which other processes of the run, or of a named group, have parts under one cap. */
#ifndef MEMSHIM_SHIM_DEVICE_DEVICE_GROUP_H
#define MEMSHIM_SHIM_DEVICE_DEVICE_GROUP_H

#include <stdint.h>

#include "shim/device/device.h"
#include "shim/device/overhead.h"

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

/* A context is about to be made, for which the driver takes memory without asking: as much as the
 * contexts of other members took is earmarked. False: the group has no room for it, and the context
 * must not be made. `device` may be null. *kept_bytes: earmarked until the context is charged. */
bool ms_device_group_expect_context(struct ms_device *device, uint64_t *kept_bytes);

/* What a context took that was just made. Where NVML does not say what this process uses, other
 * members' calls are in what was measured; then what those before it took counts. */
int64_t ms_device_group_context_bytes(const struct ms_measure *measure, uint64_t kept_bytes);

void ms_device_group_context_made(struct ms_device *device, uint64_t kept_bytes,
                                  int64_t taken_bytes);

#endif
