/* SPDX-License-Identifier: Apache-2.0 */
/* Captures are announced before they begin, so that no call of memshim's invalidates one. */
#include "shim/device/capture.h"

#include <sched.h>
#include <stdatomic.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/debt.h"
#include "shim/device/device.h"
#include "shim/device/heirs.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"

#define HOLD_OFF_YIELDS 100u /* recording an event takes no longer, unless a queue is full */
#define HOLD_OFF_NAP_NS 50000u

MS_HOT_DATA _Atomic int ms_captures;
static _Atomic int hold_offs; /* threads between ms_capture_hold_off and ms_capture_let_on */

CUresult ms_stream_captures_asked(CUstream handle, bool per_thread, bool *is_capturing)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result =
        ms_driver()->cuStreamIsCapturing(ms_stream_plain_handle(handle, per_thread), &status);
    *is_capturing =
        result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || status != CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
}

bool ms_capture_hold_off(int *cancellation)
{
    atomic_fetch_add(&hold_offs, 1);
    if (ms_captures_running()) {
        atomic_fetch_sub(&hold_offs, 1);
        return false;
    }
    *cancellation = ms_cancel_hold();
    ms_debt_note(1);
    return true;
}

void ms_capture_let_on(int cancellation)
{
    atomic_fetch_sub(&hold_offs, 1);
    ms_debt_note(-1);
    ms_cancel_let(cancellation);
}

/* Announces a capture, after the pools have settled, and waits for threads that are recording an
 * event. An event for a whole context that is recorded after the capture has begun would invalidate
 * it (cuda.h, cuCtxRecordEvent). No event is recorded after the announcement. So the wait is for
 * one record at most, which ends as soon as its queue has room, or for the handover of a destroyed
 * stream's work, which takes no longer than a request may wait. */
static void announce(void)
{
    const int cancellation = ms_cancel_hold();
    atomic_fetch_add(&ms_captures, 1);
    for (unsigned tries = 0; atomic_load(&hold_offs) != 0; tries++) {
        if (tries < HOLD_OFF_YIELDS) {
            sched_yield();
        } else {
            ms_nap(HOLD_OFF_NAP_NS);
        }
    }
    ms_cancel_let(cancellation);
}

static void prepare(CUstream stream, bool per_thread)
{
    ms_devices_settle();
    ms_heirs_keep(stream, per_thread);
}

void ms_capture_announce(CUstream handle, bool per_thread)
{
    prepare(handle, per_thread);
    ms_gate_enter(); /* until the driver has begun the capture: none may begin while contents
                        move */
    announce();
}

CUresult ms_capture_begun(CUstream handle, bool per_thread, CUresult result)
{
    ms_gate_leave();
    if (result != CUDA_SUCCESS || !ms_stream_note_capturing(handle, per_thread, true)) {
        atomic_fetch_sub(&ms_captures, 1);
    }
    return result;
}

/* The call's result does not say whether the capture goes on: an invalidated capture has ended in
 * spite of an error, one that another thread must end has not. So the driver is asked. */
CUresult ms_capture_ended(CUstream handle, bool per_thread, CUresult result)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool goes_on = result != CUDA_SUCCESS &&
                   ms_driver()->cuStreamIsCapturing(ms_stream_plain_handle(handle, per_thread),
                                                    &status) == CUDA_SUCCESS &&
                   status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!goes_on && ms_stream_note_capturing(handle, per_thread, false)) {
        atomic_fetch_sub(&ms_captures, 1);
    }
    return result;
}

/* A thread that comes while another one announces it does the same: its own capture may begin as
 * soon as this returns. */
void ms_captures_unseen(void)
{
    static atomic_bool unseen;
    if (atomic_load(&unseen)) {
        return;
    }
    prepare(CU_STREAM_LEGACY, false); /* it is not known which stream captures */
    announce();
    if (atomic_exchange(&unseen, true)) {
        atomic_fetch_sub(&ms_captures, 1); /* one counts for all */
        return;
    }
    ms_log(MS_LOG_WARN,
           "the program may capture graphs in a way that memshim does not know: from here on "
           "memshim treats memory as during a capture, and some of it may not be used again");
}

void ms_capture_begins(CUstream handle)
{
    if (!ms_stream_is_known(ms_stream_plain_handle(handle, true))) {
        ms_captures_unseen();
        return;
    }
    prepare(handle, true);
    announce();
    if (!ms_stream_note_capturing(handle, true, true)) {
        atomic_fetch_sub(&ms_captures, 1); /* it was capturing already */
    }
}

void ms_capture_forget(void)
{
    atomic_fetch_sub(&ms_captures, 1);
}
