/* SPDX-License-Identifier: Apache-2.0 */
/* Fences, and other waits for a device's work. */
#ifndef MEMSHIM_SHIM_DEVICE_OPERATIONS_FENCES_H
#define MEMSHIM_SHIM_DEVICE_OPERATIONS_FENCES_H

#include "shim/device/context.h"
#include "shim/device/device.h"

/* Part of the table of device operations; ctx is the struct ms_device. */
ms_status_t ms_fence_take(void *ctx, ms_stream_t stream, ms_fence_t *out);
ms_status_t ms_fence_query(void *ctx, ms_fence_t fence);
ms_status_t ms_fence_wait(void *ctx, ms_fence_t fence, uint64_t timeout_ns);
ms_status_t ms_fence_stream_wait(void *ctx, ms_stream_t stream, ms_fence_t fence);
void ms_fence_release(void *ctx, ms_fence_t fence);

/* Waits, as cudaFree does, for the work that is queued now on this device's contexts. Does not wait
 * for other devices: their work may need this thread to go on. Holds no lock of this room
 * meanwhile. A capture may begin and is not harmed; if one runs already, does not wait. The error
 * is the driver's: of earlier work, or of the calls that this takes. */
CUresult ms_fences_wait_for_work(const struct ms_device *device);

/* The driver's answer to a "potentially unsafe" call of this thread, such as cuMemAlloc or
 * cuMemFree, while streams capture (cuda.h, cuThreadExchangeStreamCaptureMode). If it is an error,
 * the captures in the way are invalidated, as by such a call of the application's. */
CUresult ms_fences_ask_permission(struct ms_context *context);

/* The context is dead: drops the events that are kept for it. */
void ms_fences_forget(const struct ms_context *context);

#endif
