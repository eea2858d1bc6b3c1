/* SPDX-License-Identifier: Apache-2.0 */
/* Streams by ids that are never used again. */
#ifndef MEMSHIM_SHIM_DEVICE_STREAM_H
#define MEMSHIM_SHIM_DEVICE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"
#include "shim/device/context.h"

/* What a stream argument means: with the per-thread flavour of a function (_ptsz, _ptds) the null
 * stream is the calling thread's default stream, otherwise the context's legacy one. */
struct ms_stream_view {
    ms_stream_t id;
    struct ms_context *context;
};

/* Resolves a stream argument. CUDA_SUCCESS, or the driver's own error for a handle that it does
 * not know or for a default stream without a current context. */
CUresult ms_stream_resolve(CUstream handle, bool per_thread, struct ms_stream_view *out);

/* A use of a stream by its id, on the calling thread, with its context current and in use: its
 * handle is the driver's until the use ends, also where the program destroys the stream meanwhile.
 * It lasts for one call of the driver's. */
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

/* The streams of a context that were created by handle, as they are at one moment. Not to be
 * copied: `at` may point into it. */
struct ms_stream_list {
    ms_stream_t *at;
    size_t count;
    ms_stream_t few[64];
};

/* False: no host memory for so many, and the list is empty. To be dropped in either case. */
bool ms_stream_list_take(const struct ms_context *context, struct ms_stream_list *out);
void ms_stream_list_drop(struct ms_stream_list *list);

/* The streams of a green context are about to end with it: the record of its primary context, and
 * what it was converted to. */
void ms_streams_end(struct ms_context *primary, CUcontext green);

/* A new id, for the legacy default stream of a new context. */
ms_stream_t ms_stream_new_id(void);
void ms_stream_add_legacy(struct ms_context *context);

/* The context is gone, and its streams with it. */
void ms_streams_forget(const struct ms_context *context);

/* Destroys the stream by this function of the driver's. */
CUresult ms_stream_destroy(CUstream handle, CUresult (*real)(CUstream));

/* ---- for captures: capture.h */

/* Notes that the stream captures, or does not; true where that changes what is noted of it. */
bool ms_stream_note_capturing(CUstream handle, bool per_thread, bool capturing);

/* False for a handle of which nothing is known, and for the legacy stream, which is never captured.
 * The driver must not be asked about an unknown handle: it may not be one. */
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
