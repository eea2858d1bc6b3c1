/* SPDX-License-Identifier: Apache-2.0 */
/* Queues the work of destroyed streams behind a stream that lives on. */
#include "shim/device/heirs.h"

#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "shim/device/capture.h"
#include "shim/driver/driver.h"
#include "shim/tables/options.h"

#define NAP_NS 1000000u

/* Makes the context's heir if it has none. False: it could not be made. The context is in use. */
static bool need_heir(struct ms_context *context)
{
    CUstream handle = NULL;
    struct ms_stream_view view;
    ms_stream_t none = 0;
    if (context->heir != 0) {
        return true;
    }
    if (MS_REAL(cuStreamCreate)(&handle, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return false;
    }
    /* If another thread was faster, this stream stays, empty, as long as the context. */
    bool known = ms_stream_resolve(handle, false, &view) == CUDA_SUCCESS;
    if (known) {
        atomic_compare_exchange_strong(&context->heir, &none, view.id);
    } else {
        (void)MS_REAL(cuStreamDestroy_v2)(handle);
    }
    return known;
}

/* The event is destroyed at once: streams that wait for it go on waiting (cuda.h,
 * cuEventDestroy). */
static bool wait_behind(CUstream heir, CUstream stream)
{
    CUevent event = NULL;
    CUresult result = ms_driver()->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return false;
    }
    result = ms_driver()->cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) {
        result = ms_driver()->cuStreamWaitEvent(heir, event, CU_EVENT_WAIT_DEFAULT);
    }
    (void)ms_driver()->cuEventDestroy_v2(event);
    return result == CUDA_SUCCESS;
}

/* The context of both streams is in use. */
static bool hand_over(struct ms_context *context, CUstream stream)
{
    struct ms_stream_use heir;
    if (!need_heir(context) || !ms_stream_enter(context->heir, &heir)) {
        return false;
    }
    bool handed = wait_behind(heir.handle, stream);
    ms_stream_leave(&heir);
    return handed;
}

static bool has_work(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ms_driver()->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE &&
           ms_driver()->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

/* The scope permits these calls while another stream captures. Without an heir this waits for the
 * work, as long as a request would. */
void ms_heirs_take(struct ms_context *context, ms_stream_t stream)
{
    struct ms_stream_use use;
    int cancellation = 0;
    const bool held_off = ms_capture_hold_off(&cancellation);
    if (ms_stream_enter(stream, &use)) {
        uint64_t end_ns = ms_clock_ns() + ms_options()->wait_ns;
        if (has_work(use.handle) && !hand_over(context, use.handle)) {
            while (has_work(use.handle) && ms_clock_ns() < end_ns) {
                ms_nap(NAP_NS);
            }
        }
        ms_stream_leave(&use);
    }
    if (held_off) {
        ms_capture_let_on(cancellation);
    }
}

/* The event is recorded for all of the work. Without an heir this waits, as above. */
static void wait_behind_event(struct ms_context *context, CUevent event)
{
    struct ms_stream_use heir;
    bool handed = false;
    const uint64_t end_ns = ms_clock_ns() + ms_options()->wait_ns;
    if (ms_driver()->cuEventQuery(event) == CUDA_ERROR_NOT_READY && need_heir(context) &&
        ms_stream_enter(context->heir, &heir)) {
        handed = ms_driver()->cuStreamWaitEvent(heir.handle, event, CU_EVENT_WAIT_DEFAULT) ==
                 CUDA_SUCCESS;
        ms_stream_leave(&heir);
    }
    while (!handed && ms_driver()->cuEventQuery(event) == CUDA_ERROR_NOT_READY &&
           ms_clock_ns() < end_ns) {
        ms_nap(NAP_NS);
    }
}

void ms_heirs_take_green(struct ms_context *primary, CUgreenCtx green)
{
    struct ms_scope scope;
    CUevent event = NULL;
    int cancellation = 0;
    if (!ms_driver()->cuGreenCtxRecordEvent || !ms_capture_hold_off(&cancellation)) {
        return;
    }
    if (ms_scope_enter_context(primary, &scope)) {
        if (ms_driver()->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
            if (ms_driver()->cuGreenCtxRecordEvent(green, event) == CUDA_SUCCESS) {
                wait_behind_event(primary, event);
            }
            (void)ms_driver()->cuEventDestroy_v2(event);
        }
        ms_scope_leave(&scope);
    }
    ms_capture_let_on(cancellation);
}

/* --- before captures -------------------------------------------------------------------------- */

static void keep_one(struct ms_context *context, ms_stream_t stream)
{
    struct ms_stream_use use;
    if (stream != context->heir && ms_stream_enter(stream, &use)) {
        if (has_work(use.handle)) {
            (void)hand_over(context, use.handle);
        }
        ms_stream_leave(&use);
    }
}

/* Streams that are made meanwhile have no queued work yet that this thread knows of. */
static void keep_all(struct ms_context *context)
{
    struct ms_stream_list streams;
    (void)ms_stream_list_take(context, &streams);
    for (size_t i = 0; i < streams.count; i++) {
        keep_one(context, streams.at[i]);
    }
    ms_stream_list_drop(&streams);
}

static void keep_everything(void)
{
    for (struct ms_context *c = ms_context_first(); c != NULL; c = c->next) {
        if (ms_context_hold_live(c)) {
            keep_all(c);
            ms_context_let(c);
        }
    }
}

void ms_heirs_keep(CUstream stream, bool per_thread)
{
    struct ms_stream_view view;
    CUstream plain = ms_stream_plain_handle(stream, per_thread);
    int cancellation = 0;
    if (ms_capture_hold_off(&cancellation)) {
        keep_everything();
        ms_capture_let_on(cancellation);
    } else if (plain != CU_STREAM_LEGACY &&
               ms_stream_resolve(plain, per_thread, &view) == CUDA_SUCCESS) {
        keep_one(view.context, view.id);
    }
}
