/* SPDX-License-Identifier: Apache-2.0 */
/* The work of destroyed streams.
 *
 * Each context has an heir: a stream of memshim's own, made when it is first needed. It waits for
 * work that could not be waited for otherwise, because its stream is gone. Fences and standstills
 * treat it like any stream. cuCtxRecordEvent may cover destroyed streams by itself, but cuda.h does
 * not say so; it covers the heir in any case. */
#ifndef MEMSHIM_SHIM_DEVICE_HEIRS_H
#define MEMSHIM_SHIM_DEVICE_HEIRS_H

#include "shim/device/stream.h"

/* Before a stream of the context is destroyed: the heir waits for what is still queued there. A
 * stream that captures is left alone: ms_heirs_keep was called before the capture. */
void ms_heirs_take(struct ms_context *context, ms_stream_t stream);

/* Before a green context of this primary one is destroyed: the heir waits for all that is queued in
 * it. Its default streams can be named nowhere else. Not while a stream captures. */
void ms_heirs_take_green(struct ms_context *primary, CUgreenCtx green);

/* Before a capture of this stream begins: the heirs wait for all queued work. A stream may be
 * destroyed while it captures, when the driver cannot be asked what it had queued before. While
 * others capture, they wait for this stream's work alone: any other one may come into such a
 * capture at any moment, and then a question about it would end the capture. */
void ms_heirs_keep(CUstream stream, bool per_thread);

#endif
