/* The real driver's table of device operations (allocator/device_ops.h). */
#ifndef MEMSHIM_SHIM_SERVE_DRIVER_OPS_H
#define MEMSHIM_SHIM_SERVE_DRIVER_OPS_H

#include "shim/serve/context.h"
#include "shim/serve/device.h"

/* Fills device->ops and granule_bytes. handle and total_bytes are set. */
void ms_driver_ops_init(struct ms_device *device);

/* The marks (marks.c), part of the same table; ctx is the struct ms_device. */
ms_status_t ms_mark_take(void *ctx, ms_stream_t stream, ms_mark_t *out);
ms_status_t ms_mark_query(void *ctx, ms_mark_t mark);
ms_status_t ms_mark_wait(void *ctx, ms_mark_t mark, uint64_t timeout_ns);
ms_status_t ms_mark_stream_wait(void *ctx, ms_stream_t stream, ms_mark_t mark);
void ms_mark_release(void *ctx, ms_mark_t mark);

/* The context is dead: what is kept for it is dropped. */
void ms_marks_forget(const struct ms_context *context);

void ms_marks_fork_prepare(void);
void ms_marks_fork_parent(void);
void ms_marks_fork_child(void);

#endif
