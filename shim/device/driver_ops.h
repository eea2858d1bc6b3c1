/* SPDX-License-Identifier: Apache-2.0 */
/* The real driver's table of device operations (allocator/device/device_ops.h). */
#ifndef MEMSHIM_SHIM_DEVICE_DRIVER_OPS_H
#define MEMSHIM_SHIM_DEVICE_DRIVER_OPS_H

#include "shim/device/context.h"
#include "shim/device/device.h"

/* Fills device->ops and granule_bytes. handle and total_bytes are set. An error: the driver did not
 * say whether the device can map memory. */
CUresult ms_driver_ops_init(struct ms_device *device);

/* The fences (fences.c), part of the same table; ctx is the struct ms_device. */
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
