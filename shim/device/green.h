/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts. A green context converts to a context that is the primary one with other streams
 * (cuda.h, cuCtxFromGreenCtx). That has no record of its own, costs nothing and holds no memory.
 * Only its default stream is its own, and its streams end with it. */
#ifndef MEMSHIM_SHIM_DEVICE_GREEN_H
#define MEMSHIM_SHIM_DEVICE_GREEN_H

#include "shim/device/context.h"

/* A green context of this device was created; the record of its primary context exists. Without
 * host memory for its record, it counts as a context like others. */
void ms_green_add(CUgreenCtx green, CUdevice device, struct ms_context *primary);

/* Before it is destroyed: ends its streams, whose queued work then belongs to the primary context.
 * Waits for visits, at most a second: a driver call that takes longer may be waiting for the
 * caller. Returns the device's ordinal; -1: not known. */
CUdevice ms_green_going(CUgreenCtx green);

/* Calls `visit` for each green context of this primary one, which is in use, until one returns an
 * error; returns that. None is destroyed meanwhile. */
CUresult ms_greens_each(const struct ms_context *primary,
                        CUresult (*visit)(void *ctx, CUgreenCtx green), void *ctx);

/* It was destroyed. */
void ms_green_gone(CUgreenCtx green);

/* The record of the primary context, and the id of the green context's default stream; null: the
 * handle is not that of a green context. */
struct ms_context *ms_green_primary(CUcontext handle, ms_stream_t *legacy);

#endif
