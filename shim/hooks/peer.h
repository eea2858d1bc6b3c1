/* SPDX-License-Identifier: Apache-2.0 */
/* Which device may access which memory. */
#ifndef MEMSHIM_SHIM_HOOKS_PEER_H
#define MEMSHIM_SHIM_HOOKS_PEER_H

#include <stdbool.h>

#include "shim/device/context.h"
#include "shim/device/device.h"

/* The program gave another device access to a memory pool of this device, or withdrew it. */
CUresult ms_peer_pool_access(struct ms_device *device, int other, bool on);

/* The context is dead: drops the access that it was given. */
void ms_peers_forget(struct ms_context *context);

/* Whether either device can access the memory of both: they are the same, or have mutual access. */
bool ms_peers_meet(const struct ms_device *one, const struct ms_device *other);

#endif
