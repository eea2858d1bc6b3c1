/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts. The context that one is converted to is the primary context with other streams
 * (cuda.h, cuCtxFromGreenCtx): it has no record of its own, costs nothing and holds no memory. Only
 * its default stream is its own, and its streams end with it. */
#ifndef MEMSHIM_SHIM_DEVICE_GREEN_H
#define MEMSHIM_SHIM_DEVICE_GREEN_H

#include "shim/device/context.h"

/* A green context of this device was created; the record of its primary context is there. Where the
 * host has no memory for it, it counts as a context like others. */
void ms_green_add(CUgreenCtx green, CUdevice device, struct ms_context *primary);

/* Before it is destroyed: its streams are gone, and what is queued there belongs to the primary
 * context. The device's ordinal; -1: it is not known. */
CUdevice ms_green_going(CUgreenCtx green);

/* It was destroyed. */
void ms_green_gone(CUgreenCtx green);

/* The record of the primary context, and the id of the green one's default stream; null: the handle
 * is not that of a green context. */
struct ms_context *ms_green_primary(CUcontext handle, ms_stream_t *legacy);

#endif
