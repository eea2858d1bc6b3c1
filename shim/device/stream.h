/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, by ids that are never reused. */
#ifndef MEMSHIM_SHIM_DEVICE_STREAM_H
#define MEMSHIM_SHIM_DEVICE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"
#include "shim/device/context.h"

/* The meaning of a stream argument. In the per-thread flavour of a function (_ptsz, _ptds) the null
 * stream is the calling thread's default stream, otherwise the context's legacy one. */
struct ms_stream_view {
    ms_stream_t id;
    struct ms_context *context;
};

/* Resolves a stream argument. Returns CUDA_SUCCESS, or the driver's own error for an unknown
 * handle, or for a default stream without a current context. */
CUresult ms_stream_resolve(CUstream handle, bool per_thread, struct ms_stream_view *out);

/* A use of a stream by its id, on the calling thread, with the stream's context current and in use.
 * The handle stays valid until the use ends, even if the program destroys the stream meanwhile. A
 * use lasts for one driver call. */
struct ms_stream_use {
    CUstream handle;
    struct ms_context *context;
    struct ms_scope scope;
    struct stream *record;
};

/* False, and nothing to leave: the stream is gone, belongs to another thread, or its context cannot
 * be used (ms_context_use). */
bool ms_stream_enter(ms_stream_t id, struct ms_stream_use *use);
void ms_stream_leave(struct ms_stream_use *use);

/* The streams of a context that were created by handle, at one moment. Do not copy it: `at` may
 * point into it. */
struct ms_stream_list {
    ms_stream_t *at;
    size_t count;
    ms_stream_t few[64];
};

/* False: no host memory for the list, which is empty then. Drop it in either case. */
bool ms_stream_list_take(const struct ms_context *context, struct ms_stream_list *out);
void ms_stream_list_drop(struct ms_stream_list *list);

/* The streams of a green context are about to end with it. primary: the record of its primary
 * context. green: what it was converted to. legacy: its default stream. */
void ms_streams_end(struct ms_context *primary, CUcontext green, ms_stream_t legacy);

/* A new id, for the legacy default stream of a new context. */
ms_stream_t ms_stream_new_id(void);
void ms_stream_add_legacy(struct ms_context *context);

/* The context is gone, and its streams with it. */
void ms_streams_forget(const struct ms_context *context);

/* Destroys the stream with this function of the driver's. */
CUresult ms_stream_destroy(CUstream handle, CUresult (*real)(CUstream));

/* ---- for captures: capture.h */

/* Notes whether the stream captures; true if that changes what was noted. */
bool ms_stream_note_capturing(CUstream handle, bool per_thread, bool capturing);

/* False for an unknown handle, and for the legacy stream, which is never captured. The driver must
 * not be asked about an unknown handle, because it may be none. */
bool ms_stream_is_known(CUstream handle);

/* The default stream that a null handle stands for. */
static inline CUstream ms_stream_plain_handle(CUstream handle, bool per_thread)
{
    if (handle) {
        return handle;
    }
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

#endif
