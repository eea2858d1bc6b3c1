/* SPDX-License-Identifier: Apache-2.0 */
/* Which device may access whose memory. */
#ifndef MEMSHIM_SHIM_HOOKS_PEER_H
#define MEMSHIM_SHIM_HOOKS_PEER_H

#include <stdbool.h>

#include "shim/device/context.h"
#include "shim/device/device.h"

/* A memory pool of the device was opened to another device, or closed. */
CUresult ms_peer_pool_access(struct ms_device *device, int other, bool on);

/* The context is dead: what it was given to access is nobody's. */
void ms_peers_forget(struct ms_context *context);

/* Whether memory of both can be reached from either: the same device, or mutual access. */
bool ms_peers_meet(const struct ms_device *one, const struct ms_device *other);

#endif
