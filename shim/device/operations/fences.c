/* SPDX-License-Identifier: Apache-2.0 */
/* Fences: points in the order of a device's work, made of driver events.
 *
 * A fence holds one event for each stream or context that it waits for. Events are used again, each
 * in the context that it was made in, because the driver takes no event of another context. An
 * event of a dead context counts as done, and is never touched again.
 *
 * While a call that may destroy a context is under way, no event can be recorded in it. The fence
 * then holds an event without a handle: done if the context dies, and recorded afterwards if it
 * lives on. That is later than needed, never too early.
 *
 * The heir of a context covers the work of its destroyed streams (heirs.h). */
#include "shim/device/operations/fences.h"

#include <stdlib.h>

#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/green.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"

#define SPARE_EVENTS_MAX 256u /* spare events in all; more are destroyed */
#define FIRST_NAP_NS     10000u
#define LONGEST_NAP_NS   1000000u
#define POLLS_AT_ONCE    32u /* an idle device ends an event within one nap */

struct event {
    struct event *next;
    struct ms_context *context; /* held */
    CUevent handle;             /* null: for all work of a context that was about to be destroyed */
};

struct fence {
    ms_lock_t lock;       /* of the list: one thread may wait for a fence while others query it */
    struct event *events; /* not yet seen to be done */
};

static struct event *spare MS_GUARDED_BY(*MS_LOCK(FENCES));
static unsigned spare_count MS_GUARDED_BY(*MS_LOCK(FENCES));

static void event_free(struct event *event)
{
    ms_context_let(event->context);
    free(event);
}

static struct event *event_new(struct ms_context *context)
{
    struct event *event = calloc(1, sizeof *event);
    if (event) {
        event->context = context;
        ms_context_hold(context);
    }
    return event;
}

/* An event of this context, which is current and in use. */
static struct event *event_get(struct ms_context *context)
{
    ms_lock_acquire(MS_LOCK(FENCES));
    struct event **slot = &spare;
    while (*slot && (*slot)->context != context) {
        slot = &(*slot)->next;
    }
    struct event *event = *slot;
    if (event) {
        *slot = event->next;
        spare_count--;
    }
    ms_lock_release(MS_LOCK(FENCES));
    if (event) {
        return event;
    }
    event = event_new(context);
    if (event &&
        ms_driver()->cuEventCreate(&event->handle, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        event_free(event);
        event = NULL;
    }
    return event;
}

static void event_destroy(struct event *event)
{
    struct ms_scope scope;
    if (event->handle && ms_scope_enter_context(event->context, &scope)) {
        (void)ms_driver()->cuEventDestroy_v2(event->handle);
        ms_scope_leave(&scope);
    }
    event_free(event);
}

static void event_put(struct event *event)
{
    ms_lock_acquire(MS_LOCK(FENCES));
    bool dead = event->context->dead; /* if not, ms_fences_forget will come */
    bool keep = !dead && event->handle && spare_count < SPARE_EVENTS_MAX;
    if (keep) {
        event->next = spare;
        spare = event;
        spare_count++;
    }
    ms_lock_release(MS_LOCK(FENCES));
    if (!keep) {
        event_destroy(event);
    }
}

/* Whose work an event is recorded for. */
struct work {
    enum { OF_STREAM, OF_CONTEXT, OF_GREEN } of;
    union {
        CUstream stream;
        CUgreenCtx green;
    };
};

static CUresult record_event(struct event *event, const struct work *work)
{
    switch (work->of) {
    case OF_CONTEXT:
        return ms_driver()->cuCtxRecordEvent(event->context->handle, event->handle);
    case OF_GREEN:
        return ms_driver()->cuGreenCtxRecordEvent(work->green, event->handle);
    default:
        return ms_driver()->cuEventRecord(event->handle, work->stream);
    }
}

/* Adds an event for this work to the fence. The context is current, and captures are held off.
 * Fails once a capture is announced: its thread waits for the hold-off to end. */
static CUresult add(struct fence *fence, struct ms_context *context, struct work work)
{
    struct event *event = ms_captures_running() ? NULL : event_get(context);
    if (!event) {
        return ms_captures_running() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                     : CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = record_event(event, &work);
    if (result != CUDA_SUCCESS) {
        /* It may be in another context, where this one was not made current. */
        event_destroy(event);
        return result;
    }
    event->next = fence->events;
    fence->events = event;
    return CUDA_SUCCESS;
}

static CUresult add_stream(struct fence *fence, struct ms_context *context, CUstream stream)
{
    return add(fence, context, (struct work){.of = OF_STREAM, .stream = stream});
}

/* *missed: one of the streams was destroyed meanwhile; the heir has its work. */
static CUresult record_each(struct fence *fence, const ms_stream_t *streams, size_t count,
                            bool *missed)
{
    CUresult result = CUDA_SUCCESS;
    *missed = false;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct ms_stream_use use;
        if (!ms_stream_enter(streams[i], &use)) {
            *missed = true;
            continue;
        }
        result = add_stream(fence, use.context, use.handle);
        ms_stream_leave(&use);
        if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT) {
            result = CUDA_SUCCESS; /* destroyed by a function that has no hook */
        }
    }
    return result;
}

static CUresult record_list(struct fence *fence, const struct ms_context *context, bool *missed)
{
    struct ms_stream_list streams;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (ms_stream_list_take(context, &streams)) {
        result = record_each(fence, streams.at, streams.count, missed);
    }
    ms_stream_list_drop(&streams);
    return result;
}

/* For a context that is about to be destroyed. */
static CUresult add_closing(struct fence *fence, struct ms_context *context)
{
    struct event *event = event_new(context);
    if (!event) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->next = fence->events;
    fence->events = event;
    return CUDA_SUCCESS;
}

struct green_fence {
    struct fence *fence;
    struct ms_context *primary;
};

static CUresult record_green(void *ctx, CUgreenCtx green)
{
    const struct green_fence *of = ctx;
    return add(of->fence, of->primary, (struct work){.of = OF_GREEN, .green = green});
}

/* Before CUDA 12.5 a context's events are recorded stream by stream. An event on the legacy stream
 * also covers the per-thread default streams, which synchronize with it (cuda.h,
 * CU_STREAM_PER_THREAD). Those of a green context can only be named where it is current: it gets
 * an event as a whole. */
static CUresult record_streams(struct fence *fence, struct ms_context *context)
{
    CUresult result = add_stream(fence, context, CU_STREAM_LEGACY);
    bool missed = true;
    while (result == CUDA_SUCCESS && missed) {
        result = record_list(fence, context, &missed);
        if (missed && atomic_load(&context->closers) != 0) {
            return add_closing(fence, context);
        }
    }
    return result == CUDA_SUCCESS
               ? ms_greens_each(context, record_green, &(struct green_fence){fence, context})
               : result;
}

static CUresult record_context(struct fence *fence, struct ms_context *context)
{
    struct ms_scope scope;
    if (!ms_scope_enter_context(context, &scope)) {
        return context->dead ? CUDA_SUCCESS : add_closing(fence, context);
    }
    CUresult result = ms_driver()->cuCtxRecordEvent
                          ? add(fence, context, (struct work){.of = OF_CONTEXT})
                          : record_streams(fence, context);
    ms_scope_leave(&scope);
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_SUCCESS : result;
}

/* Records for every live context of the process: a copy between devices needs no access to the
 * other device's memory (cuMemcpyPeerAsync, and any copy under unified addressing). */
static CUresult record_all(struct fence *fence)
{
    CUresult result = CUDA_SUCCESS;
    for (struct ms_context *c = ms_context_first(); c && result == CUDA_SUCCESS; c = c->next) {
        if (ms_context_hold_live(c)) {
            result = record_context(fence, c);
            ms_context_let(c);
        }
    }
    return result;
}

ms_status_t ms_fence_take(void *ctx, ms_stream_t stream, ms_fence_t *out)
{
    int cancellation = 0;
    if (!ms_capture_hold_off(&cancellation)) {
        return MS_ERR_NOT_SUPPORTED;
    }
    struct fence *fence = calloc(1, sizeof *fence);
    if (fence) {
        ms_lock_init(&fence->lock, MS_RANK_FENCE);
    }
    CUresult result = CUDA_SUCCESS;
    struct ms_stream_use use;
    if (!fence) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (stream != MS_STREAM_DEVICE && ms_stream_enter(stream, &use)) {
        result = add_stream(fence, use.context, use.handle);
        ms_stream_leave(&use);
    } else {
        result = record_all(fence);
    }
    ms_capture_let_on(cancellation);
    if (result != CUDA_SUCCESS) {
        if (fence) {
            ms_fence_release(ctx, (ms_fence_t)(uintptr_t)fence);
        }
        return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? MS_ERR_NOT_SUPPORTED
                                                               : ms_status_from(result);
    }
    *out = (ms_fence_t)(uintptr_t)fence;
    return MS_OK;
}

/* CUDA_SUCCESS also if the event's context has died: then its work is over. */
static CUresult ask(const struct event *event)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    if (ms_context_use(event->context)) {
        result = ms_driver()->cuEventQuery(event->handle);
        ms_context_leave(event->context);
    }
    return event->context->dead ? CUDA_SUCCESS : result;
}

static CUresult ask_and_drop(struct fence *m)
{
    struct event *event = m->events;
    CUresult result = ask(event);
    if (result == CUDA_SUCCESS) {
        m->events = event->next;
        event_put(event);
    }
    return result;
}

/* The fence's first event has no handle. Its context has died, lives on and gets one recorded now,
 * or is still being destroyed. */
static CUresult renew(struct fence *m)
{
    struct event *event = m->events;
    if (!event->context->dead && atomic_load(&event->context->closers) != 0) {
        return CUDA_ERROR_NOT_READY;
    }
    m->events = event->next;
    CUresult result = event->context->dead ? CUDA_SUCCESS : record_context(m, event->context);
    if (result == CUDA_SUCCESS) {
        event_put(event);
    } else {
        event->next = m->events;
        m->events = event;
    }
    return result;
}

/* The caller holds the fence's lock, and captures are held off. */
static CUresult drop_done(struct fence *m)
{
    while (m->events) {
        CUresult result = m->events->handle ? ask_and_drop(m) : renew(m);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

ms_status_t ms_fence_query(void *ctx, ms_fence_t fence)
{
    (void)ctx;
    struct fence *m = (struct fence *)(uintptr_t)fence;
    /* During a capture in global mode the driver refuses a query and invalidates the capture
     * (cuda.h, cuThreadExchangeStreamCaptureMode). */
    int cancellation = 0;
    if (!ms_capture_hold_off(&cancellation)) {
        return MS_ERR_NOT_READY;
    }
    ms_lock_acquire(&m->lock);
    CUresult result = drop_done(m);
    ms_lock_release(&m->lock);
    ms_capture_let_on(cancellation);
    return ms_status_from(result);
}

/* Polls, because the driver's own wait for an event has no limit. */
static ms_status_t wait_for(void *ctx, ms_fence_t fence, uint64_t timeout_ns)
{
    uint64_t start = ms_clock_ns();
    uint64_t nap_ns = FIRST_NAP_NS;
    for (;;) {
        ms_status_t status = ms_fence_query(ctx, fence);
        uint64_t waited = ms_clock_ns() - start;
        if (status != MS_ERR_NOT_READY || waited >= timeout_ns) {
            return status;
        }
        uint64_t rest = timeout_ns - waited;
        ms_nap(nap_ns < rest ? nap_ns : rest);
        nap_ns = nap_ns * 2 < LONGEST_NAP_NS ? nap_ns * 2 : LONGEST_NAP_NS;
    }
}

ms_status_t ms_fence_wait(void *ctx, ms_fence_t fence, uint64_t timeout_ns)
{
    const int cancellation = ms_cancel_hold();
    ms_status_t status = wait_for(ctx, fence, timeout_ns);
    ms_cancel_let(cancellation);
    return status;
}

/* Queues a wait for one event on the stream, which is in use. */
static CUresult wait_on(CUstream stream, const struct event *event)
{
    if (!event->handle || !ms_context_use(event->context)) {
        return event->context->dead ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    CUresult result = ms_driver()->cuStreamWaitEvent(stream, event->handle, CU_EVENT_WAIT_DEFAULT);
    ms_context_leave(event->context);
    return result;
}

ms_status_t ms_fence_stream_wait(void *ctx, ms_stream_t stream, ms_fence_t fence)
{
    (void)ctx;
    struct fence *m = (struct fence *)(uintptr_t)fence;
    struct ms_stream_use use;
    int cancellation = 0;
    if (!ms_capture_hold_off(&cancellation)) {
        return MS_ERR_NOT_SUPPORTED;
    }
    if (!ms_stream_enter(stream, &use)) {
        ms_capture_let_on(cancellation);
        return MS_ERR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    ms_lock_acquire(&m->lock);
    for (const struct event *e = m->events; e && result == CUDA_SUCCESS; e = e->next) {
        result = wait_on(use.handle, e);
    }
    ms_lock_release(&m->lock);
    ms_stream_leave(&use);
    ms_capture_let_on(cancellation);
    return ms_status_from(result);
}

static void drop_all(struct fence *fence)
{
    while (fence->events) {
        struct event *event = fence->events;
        fence->events = event->next;
        event_put(event);
    }
}

void ms_fence_release(void *ctx, ms_fence_t fence)
{
    (void)ctx;
    struct fence *m = (struct fence *)(uintptr_t)fence;
    drop_all(m);
    free(m);
}

/* --- what cudaFree does ----------------------------------------------------------------------- */

static bool has_unrecorded(const struct fence *fence)
{
    const struct event *event = fence->events;
    while (event && event->handle) {
        event = event->next;
    }
    return event != NULL;
}

/* The thread is in relaxed mode: during a capture it may query events, but not record one for a
 * whole context. An event that is not recorded then is not waited for. */
static CUresult check(struct fence *fence)
{
    if (!has_unrecorded(fence)) {
        return drop_done(fence);
    }
    int cancellation = 0;
    if (!ms_capture_hold_off(&cancellation)) {
        return CUDA_SUCCESS;
    }
    CUresult result = drop_done(fence);
    ms_capture_let_on(cancellation);
    return result;
}

static CUresult wait_until_done(struct fence *fence)
{
    uint64_t nap_ns = FIRST_NAP_NS;
    CUresult result = check(fence);
    for (unsigned i = 1; i < POLLS_AT_ONCE && result == CUDA_ERROR_NOT_READY; i++) {
        result = check(fence);
    }
    while (result == CUDA_ERROR_NOT_READY) {
        ms_nap(nap_ns);
        nap_ns = nap_ns * 2 < LONGEST_NAP_NS ? nap_ns * 2 : LONGEST_NAP_NS;
        result = check(fence);
    }
    return result;
}

/* The fence belongs to the calling thread alone, so its lock is not taken. */
static CUresult record_and_wait(const struct ms_device *device)
{
    struct fence fence = {.events = NULL};
    CUresult result = CUDA_SUCCESS;
    int cancellation = 0;
    if (!ms_capture_hold_off(&cancellation)) {
        return CUDA_SUCCESS;
    }
    for (struct ms_context *c = ms_context_first(); c && result == CUDA_SUCCESS; c = c->next) {
        if (c->device == device && ms_context_hold_live(c)) {
            result = record_context(&fence, c);
            /* a stream that another thread destroys meanwhile */
            result = result == CUDA_ERROR_INVALID_HANDLE ? CUDA_SUCCESS : result;
            ms_context_let(c);
        }
    }
    ms_capture_let_on(cancellation);
    if (result == CUDA_SUCCESS) {
        result = wait_until_done(&fence);
    } else if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && ms_captures_running()) {
        result = CUDA_SUCCESS; /* a capture begins: as if it had begun before */
    }
    drop_all(&fence);
    return result;
}

CUresult ms_fences_wait_for_work(const struct ms_device *device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = ms_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const int cancellation = ms_cancel_hold();
    result = record_and_wait(device);
    ms_cancel_let(cancellation);
    (void)ms_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* Querying an event is such a call, and has no other effect. */
CUresult ms_fences_ask_permission(struct ms_context *context)
{
    if (!ms_context_use(context)) {
        return CUDA_SUCCESS; /* about to be destroyed: the program's call gets the error itself */
    }
    const int cancellation = ms_cancel_hold();
    struct event *event = event_get(context);
    CUresult result = event ? ms_driver()->cuEventQuery(event->handle) : CUDA_ERROR_OUT_OF_MEMORY;
    ms_context_leave(context);
    if (event) {
        event_put(event);
    }
    ms_cancel_let(cancellation);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

void ms_fences_forget(const struct ms_context *context)
{
    ms_lock_acquire(MS_LOCK(FENCES));
    struct event **slot = &spare;
    while (*slot) {
        struct event *event = *slot;
        if (event->context == context) {
            *slot = event->next;
            spare_count--;
            event_free(event);
        } else {
            slot = &event->next;
        }
    }
    ms_lock_release(MS_LOCK(FENCES));
}
