/* SPDX-License-Identifier: Apache-2.0 */
/* How many streams capture, and what must not happen meanwhile. */
#ifndef MEMSHIM_SHIM_DEVICE_CAPTURE_H
#define MEMSHIM_SHIM_DEVICE_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/tables/cuda_api.h"

extern _Atomic int ms_captures; /* streams that capture or are about to */

/* True while any stream of the process captures. */
static inline bool ms_captures_running(void)
{
    return atomic_load(&ms_captures) != 0;
}

/* While some stream captures: is it this one? */
CUresult ms_stream_captures_asked(CUstream handle, bool per_thread, bool *is_capturing);

/* Whether only the driver may answer calls on this stream, because it captures, or because it is
 * the legacy stream while a blocking stream captures. The result is then
 * CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, which the driver gives to every use of it. Asks the driver,
 * but only while any stream captures. Returns the driver's error. */
static inline CUresult ms_stream_captures(CUstream handle, bool per_thread, bool *is_capturing)
{
    *is_capturing = false;
    return __builtin_expect(ms_captures_running(), 0)
               ? ms_stream_captures_asked(handle, per_thread, is_capturing)
               : CUDA_SUCCESS;
}

/* Between hold_off and let_on no capture can begin, and the thread cannot be cancelled (cancel.h).
 * Calls that would invalidate a capture (recording an event for a whole context) are made in
 * between. False if something captures; then there is nothing to let on. *cancellation is for
 * let_on. */
bool ms_capture_hold_off(int *cancellation);
void ms_capture_let_on(int cancellation);

/* Called around a call that begins or ends a capture; the latter two return the result that they
 * get. An announced capture that did not begin counts no more. */
void ms_capture_announce(CUstream handle, bool per_thread);
CUresult ms_capture_begun(CUstream handle, bool per_thread, CUresult result);
CUresult ms_capture_ended(CUstream handle, bool per_thread, CUresult result);

/* A driver function that memshim does not know is about to begin a capture on this stream. The
 * stream counts as capturing until one of its captures is ended, or until it is destroyed. For a
 * handle of no known stream: as ms_captures_unseen. */
void ms_capture_begins(CUstream handle);

/* Captures may begin without memshim's notice: from here on a capture counts as running at all
 * times. */
void ms_captures_unseen(void);

/* A stream that counted as capturing is gone. */
void ms_capture_forget(void);

#endif
