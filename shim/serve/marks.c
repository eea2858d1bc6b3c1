/* Marks: points in the order of a device's work, made of driver events.
 *
 * A mark holds one event for each stream or context that it has to wait for. Events are kept and
 * used again, each in the context that it was made in: the driver takes no event of another
 * context. An event of a dead context counts as done, and is never touched again. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "report/cancel.h"
#include "shim/serve/context.h"
#include "shim/serve/driver.h"
#include "shim/serve/driver_ops.h"
#include "shim/serve/stream.h"

#define SPARE_EVENTS_MAX 256u /* kept in all; more than that are destroyed */
#define STREAMS_FIRST    64u
#define FIRST_NAP_NS     10000u
#define LONGEST_NAP_NS   1000000u

struct event {
    struct event *next;
    struct ms_context *context; /* held */
    CUevent handle;
};

struct mark {
    pthread_mutex_t
        lock; /* of the list: one thread may wait for a mark while others ask about it */
    struct event *events; /* not yet seen to be done */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event *spare;
static unsigned spare_count;

static void event_free(struct event *event)
{
    ms_context_let(event->context);
    free(event);
}

/* The context of the event is current, and held. */
static struct event *event_get(struct ms_context *context)
{
    pthread_mutex_lock(&lock);
    struct event **slot = &spare;
    while (*slot && (*slot)->context != context) {
        slot = &(*slot)->next;
    }
    struct event *event = *slot;
    if (event) {
        *slot = event->next;
        spare_count--;
    }
    pthread_mutex_unlock(&lock);
    if (event) {
        return event;
    }
    event = calloc(1, sizeof *event);
    if (event) {
        event->context = context;
        ms_context_hold(context);
        if (ms_driver()->cuEventCreate(&event->handle, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            event_free(event);
            event = NULL;
        }
    }
    return event;
}

static void event_put(struct event *event)
{
    pthread_mutex_lock(&lock);
    bool dead = event->context->dead; /* if not so, ms_marks_forget is still to come */
    bool keep = !dead && spare_count < SPARE_EVENTS_MAX;
    if (keep) {
        event->next = spare;
        spare = event;
        spare_count++;
    }
    pthread_mutex_unlock(&lock);
    if (keep) {
        return;
    }
    if (!dead) {
        struct ms_scope scope;
        ms_scope_enter_context(event->context, &scope);
        (void)ms_driver()->cuEventDestroy_v2(event->handle);
        ms_scope_leave(&scope);
    }
    event_free(event);
}

/* One more event in the mark: recorded on the stream, or for the whole context where `whole`. The
 * context is current. */
static CUresult add(struct mark *mark, struct ms_context *context, CUstream stream, bool whole)
{
    struct event *event = event_get(context);
    if (!event) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = whole ? ms_driver()->cuCtxRecordEvent(context->handle, event->handle)
                            : ms_driver()->cuEventRecord(event->handle, stream);
    if (result != CUDA_SUCCESS) {
        event_put(event);
        return result;
    }
    event->next = mark->events;
    mark->events = event;
    return CUDA_SUCCESS;
}

/* Before CUDA 12.5 a context is marked stream by stream. An event on the legacy stream also covers
 * the per-thread default streams, which synchronize with it (cuda.h, CU_STREAM_PER_THREAD). */
static CUresult mark_streams(struct mark *mark, struct ms_context *context)
{
    CUstream few[STREAMS_FIRST];
    CUstream *streams = few;
    size_t room = STREAMS_FIRST;
    size_t count = ms_streams_of(context, streams, room);
    while (count > room) {
        if (streams != few) {
            free(streams);
        }
        room = count + STREAMS_FIRST;
        streams = calloc(room, sizeof(CUstream));
        if (!streams) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        count = ms_streams_of(context, streams, room);
    }
    CUresult result = add(mark, context, CU_STREAM_LEGACY, false);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = add(mark, context, streams[i], false);
        if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT) {
            result = CUDA_SUCCESS; /* destroyed meanwhile, after ms_pool_stream_gone marked it */
        }
    }
    if (streams != few) {
        free(streams);
    }
    return result;
}

static CUresult mark_context(struct mark *mark, struct ms_context *context)
{
    struct ms_scope scope;
    ms_scope_enter_context(context, &scope);
    CUresult result = ms_driver()->cuCtxRecordEvent ? add(mark, context, NULL, true)
                                                    : mark_streams(mark, context);
    ms_scope_leave(&scope);
    if (context->dead || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return CUDA_SUCCESS; /* its work is over */
    }
    return result;
}

/* All contexts whose work may touch the device's memory: its own, and those of devices with access
 * to it. */
static CUresult mark_device(struct mark *mark, struct ms_device *device)
{
    uint64_t reach = ms_device_reach(device);
    CUresult result = CUDA_SUCCESS;
    for (struct ms_context *c = ms_context_first(); c && result == CUDA_SUCCESS; c = c->next) {
        if (((reach >> c->device->ordinal) & 1) && ms_context_hold_live(c)) {
            result = mark_context(mark, c);
            ms_context_let(c);
        }
    }
    return result;
}

ms_status_t ms_mark_take(void *ctx, ms_stream_t stream, ms_mark_t *out)
{
    if (!ms_capture_hold_off()) {
        return MS_ERR_NOT_SUPPORTED;
    }
    struct mark *mark = calloc(1, sizeof *mark);
    if (mark) {
        pthread_mutex_init(&mark->lock, NULL);
    }
    CUresult result = CUDA_SUCCESS;
    CUstream handle = NULL;
    struct ms_context *context = NULL;
    if (!mark) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (stream != MS_STREAM_DEVICE && ms_stream_handle(stream, &handle, &context)) {
        struct ms_scope scope;
        ms_scope_enter_context(context, &scope);
        result = add(mark, context, handle, false);
        ms_scope_leave(&scope);
        ms_context_let(context);
    } else {
        result = mark_device(mark, ctx);
    }
    ms_capture_let_on();
    if (result != CUDA_SUCCESS) {
        if (mark) {
            ms_mark_release(ctx, (ms_mark_t)(uintptr_t)mark);
        }
        return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? MS_ERR_NOT_SUPPORTED
                                                               : ms_status_from(result);
    }
    *out = (ms_mark_t)(uintptr_t)mark;
    return MS_OK;
}

/* The lock of the mark is held, and captures are held off. */
static CUresult drop_done(struct mark *m)
{
    while (m->events) {
        struct event *event = m->events;
        if (!event->context->dead) {
            CUresult result = ms_driver()->cuEventQuery(event->handle);
            if (result != CUDA_SUCCESS && !event->context->dead) {
                return result;
            }
        }
        m->events = event->next;
        event_put(event);
    }
    return CUDA_SUCCESS;
}

ms_status_t ms_mark_query(void *ctx, ms_mark_t mark)
{
    (void)ctx;
    struct mark *m = (struct mark *)(uintptr_t)mark;
    /* A query is refused, and harms the capture, under one in global mode (cuda.h,
     * cuThreadExchangeStreamCaptureMode). */
    if (!ms_capture_hold_off()) {
        return MS_ERR_NOT_READY;
    }
    pthread_mutex_lock(&m->lock);
    CUresult result = drop_done(m);
    pthread_mutex_unlock(&m->lock);
    ms_capture_let_on();
    return ms_status_from(result);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Polls: the driver's own wait for an event has no limit. */
static ms_status_t wait_for(void *ctx, ms_mark_t mark, uint64_t timeout_ns)
{
    uint64_t start = now_ns();
    uint64_t nap_ns = FIRST_NAP_NS;
    for (;;) {
        ms_status_t status = ms_mark_query(ctx, mark);
        uint64_t waited = now_ns() - start;
        if (status != MS_ERR_NOT_READY || waited >= timeout_ns) {
            return status;
        }
        uint64_t rest = timeout_ns - waited;
        struct timespec nap = {.tv_nsec = (long)(nap_ns < rest ? nap_ns : rest)};
        nanosleep(&nap, NULL);
        nap_ns = nap_ns * 2 < LONGEST_NAP_NS ? nap_ns * 2 : LONGEST_NAP_NS;
    }
}

ms_status_t ms_mark_wait(void *ctx, ms_mark_t mark, uint64_t timeout_ns)
{
    const int cancellation = ms_cancel_hold();
    ms_status_t status = wait_for(ctx, mark, timeout_ns);
    ms_cancel_let(cancellation);
    return status;
}

/* The context is held, and captures are held off. */
static ms_status_t stream_wait(struct mark *m, const struct ms_context *context, CUstream stream)
{
    struct ms_scope scope;
    CUresult result = CUDA_SUCCESS;
    ms_scope_enter_context(context, &scope);
    pthread_mutex_lock(&m->lock);
    for (const struct event *e = m->events; e && result == CUDA_SUCCESS; e = e->next) {
        if (!e->context->dead) {
            result = ms_driver()->cuStreamWaitEvent(stream, e->handle, CU_EVENT_WAIT_DEFAULT);
        }
    }
    pthread_mutex_unlock(&m->lock);
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

ms_status_t ms_mark_stream_wait(void *ctx, ms_stream_t stream, ms_mark_t mark)
{
    (void)ctx;
    CUstream handle = NULL;
    struct ms_context *context = NULL;
    if (!ms_stream_handle(stream, &handle, &context)) {
        return MS_ERR_NOT_SUPPORTED;
    }
    ms_status_t status = MS_ERR_NOT_SUPPORTED;
    if (ms_capture_hold_off()) {
        status = stream_wait((struct mark *)(uintptr_t)mark, context, handle);
        ms_capture_let_on();
    }
    ms_context_let(context);
    return status;
}

void ms_mark_release(void *ctx, ms_mark_t mark)
{
    (void)ctx;
    struct mark *m = (struct mark *)(uintptr_t)mark;
    while (m->events) {
        struct event *event = m->events;
        m->events = event->next;
        event_put(event);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void ms_marks_forget(const struct ms_context *context)
{
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
}

void ms_marks_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void ms_marks_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void ms_marks_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}
