/* SPDX-License-Identifier: Apache-2.0 */
/* Who captures: how many streams do, and what must not happen meanwhile. */
#ifndef MEMSHIM_SHIM_DEVICE_CAPTURE_H
#define MEMSHIM_SHIM_DEVICE_CAPTURE_H

#include <stdbool.h>

#include "shim/tables/cuda_api.h"

/* True while any stream of the process captures. */
bool ms_captures_running(void);

/* Whether this very stream captures. Asks the driver, but only while any stream captures; an error
 * is the driver's. */
CUresult ms_stream_captures(CUstream handle, bool per_thread, bool *is_capturing);

/* Between begin and end no capture can start: what would invalidate a capture (an event recorded
 * for a whole context) is done in between. False, and nothing to end, while something captures. */
bool ms_capture_hold_off(void);
void ms_capture_let_on(void);

/* Around a call that begins or ends a capture; the latter two return the result that they are
 * given. A capture that was announced ends where it did not begin. */
void ms_capture_announce(void);
CUresult ms_capture_begun(CUstream handle, bool per_thread, CUresult result);
CUresult ms_capture_ended(CUstream handle, bool per_thread, CUresult result);

/* A function of the driver's that memshim does not know is about to begin a capture on this stream:
 * it counts as capturing until a capture of it is ended, or it is destroyed. A handle that is no
 * known stream's: as ms_captures_unseen. */
void ms_capture_begins(CUstream handle);

/* Captures may begin unseen: from here on something captures at all times. */
void ms_captures_unseen(void);

/* A stream that was noted as capturing is gone. */
void ms_capture_forget(void);

#endif
