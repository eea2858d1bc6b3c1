/* Streams by ids that are never used again, and who captures. */
#ifndef MEMSHIM_SHIM_SERVE_STREAM_H
#define MEMSHIM_SHIM_SERVE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device_ops.h"
#include "shim/serve/context.h"

/* What a stream argument means: with the per-thread flavour of a function (_ptsz, _ptds) the null
 * stream is the calling thread's default stream, otherwise the context's legacy one. */
struct ms_stream_view {
    ms_stream_t id;
    struct ms_context *context;
};

/* Resolves a stream argument. CUDA_SUCCESS, or the driver's own error for a handle that it does
 * not know or for a default stream without a current context. */
CUresult ms_stream_resolve(CUstream handle, bool per_thread, struct ms_stream_view *out);

/* A handle that ms_stream_resolve's id can be used under at this moment, on the calling thread,
 * with the context of the stream current. False: the stream is gone, or belongs to another thread.
 * Only valid until the application destroys the stream. The context is held. */
bool ms_stream_handle(ms_stream_t id, CUstream *handle, struct ms_context **context);

/* Up to `count` streams of the context that were created by handle; returns how many there are. */
size_t ms_streams_of(const struct ms_context *context, CUstream *out, size_t count);

/* A new id, for the legacy default stream of a new context. */
ms_stream_t ms_stream_new_id(void);
void ms_stream_add_legacy(struct ms_context *context);

/* The context is gone, and its streams with it. */
void ms_streams_forget(const struct ms_context *context);

/* True while any stream of the process captures. */
bool ms_captures_running(void);

/* Whether this very stream captures. Asks the driver, but only while any stream captures. */
bool ms_stream_captures(CUstream handle, bool per_thread);

/* Between begin and end no capture can start: what would invalidate a capture (an event recorded
 * for a whole context) is done in between. False, and nothing to end, while something captures. */
bool ms_capture_hold_off(void);
void ms_capture_let_on(void);

/* A function of the driver's that memshim does not know is about to begin a capture on this stream:
 * it counts as capturing until a capture of it is ended, or it is destroyed. A handle that is no
 * known stream's: as ms_captures_unseen. */
void ms_capture_begins(CUstream handle);

/* Captures may begin unseen: from here on something captures at all times. */
void ms_captures_unseen(void);

void ms_streams_fork_prepare(void);
void ms_streams_fork_parent(void);
void ms_streams_fork_child(void);

#endif
