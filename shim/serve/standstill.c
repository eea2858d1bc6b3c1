/* Standing still: the gate is closed, what was queued before drains, and nothing waits longer than
 * it was given: what cannot end before a thread goes on that is held here never would. */
#include "shim/serve/standstill.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "report/cancel.h"
#include "shim/gate.h"
#include "shim/log.h"
#include "shim/serve/context.h"
#include "shim/serve/device.h"
#include "shim/serve/driver.h"
#include "shim/serve/driver_ops.h"
#include "shim/serve/stream.h"

#define COPY_STREAMS 4u
#define WAIT_TRIES   4u
#define STREAMS_FEW  64u
#define NAP_NS       50000u

/* Of the standstill that is, or of the next. Held from halt to resume. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int cancellation; /* as it was; held off as long, since nobody else would open the gate */

/* Streams of ours, one set for each device, in its context of the time. */
static struct copier {
    struct ms_context *context; /* held */
    CUstream streams[COPY_STREAMS];
    unsigned next;
    CUresult first_failure;
} copiers[MS_DEVICES_MAX];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t left_ns(uint64_t end_ns)
{
    uint64_t now = now_ns();
    return now < end_ns ? end_ns - now : 0;
}

static bool lock_until(uint64_t end_ns)
{
    while (pthread_mutex_trylock(&lock) != 0) {
        if (left_ns(end_ns) == 0) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return true;
}

/* --- draining --------------------------------------------------------------------------------- */

static CUresult query(const struct ms_context *context, CUstream stream)
{
    struct ms_scope scope;
    ms_scope_enter_context(context, &scope);
    CUresult result = ms_driver()->cuStreamQuery(stream);
    ms_scope_leave(&scope);
    return result;
}

/* Waits for a stream, within the limit. What it answers besides that it is not ready is left to the
 * mark. */
static bool stream_empty(const struct ms_context *context, CUstream stream, uint64_t end_ns)
{
    while (!context->dead && query(context, stream) == CUDA_ERROR_NOT_READY) {
        if (left_ns(end_ns) == 0) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return true;
}

/* A mark is work too, and a driver whose queue is full makes its caller wait for the device. So the
 * streams that are known are asked first, which never waits, until they are empty. */
static bool streams_empty(const struct ms_context *context, uint64_t end_ns)
{
    CUstream few[STREAMS_FEW];
    CUstream *streams = few;
    size_t count = ms_streams_of(context, few, STREAMS_FEW);
    if (count > STREAMS_FEW) {
        size_t room = count;
        streams = calloc(room, sizeof(CUstream));
        count = streams != NULL ? ms_streams_of(context, streams, room) : 0;
        count = count < room ? count : room; /* others have come, with nothing in them */
    }
    bool empty = stream_empty(context, CU_STREAM_LEGACY, end_ns);
    for (size_t i = 0; i < count && empty; i++) {
        empty = stream_empty(context, streams[i], end_ns);
    }
    if (streams != few) {
        free(streams);
    }
    return empty;
}

static ms_status_t drain(struct ms_device *device, uint64_t end_ns)
{
    uint64_t reach = ms_device_reach(device);
    for (struct ms_context *c = ms_context_first(); c != NULL; c = c->next) {
        if (((reach >> c->device->ordinal) & 1) && ms_context_hold_live(c)) {
            bool empty = streams_empty(c, end_ns);
            ms_context_let(c);
            if (!empty) {
                return MS_ERR_NOT_READY;
            }
        }
    }
    ms_mark_t mark = 0;
    ms_status_t status = ms_mark_take(device, MS_STREAM_DEVICE, &mark);
    if (status != MS_OK) {
        return status;
    }
    status = ms_mark_wait(device, mark, left_ns(end_ns));
    ms_mark_release(device, mark);
    return status;
}

/* --- halt and resume -------------------------------------------------------------------------- */

static bool refused(void)
{
    const char *why = ms_gate_refusal();
    if (why != NULL) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "%s; so nothing is moved to host memory to make room in this process", why);
    }
    return why != NULL;
}

static ms_status_t halt_locked(struct ms_device *device, uint64_t end_ns)
{
    if (!ms_gate_close(left_ns(end_ns))) {
        return refused() ? MS_ERR_NOT_SUPPORTED : MS_ERR_NOT_READY;
    }
    /* Whoever was about to begin a capture has begun it, and nobody can any more. */
    ms_status_t status = ms_captures_running() ? MS_ERR_NOT_SUPPORTED : drain(device, end_ns);
    if (status == MS_OK) {
        return MS_OK;
    }
    ms_gate_open();
    /* What else the driver answers (a host function may not call it, a device that failed) is no
     * moment for it either. */
    return status == MS_ERR_NOT_READY ? MS_ERR_NOT_READY : MS_ERR_NOT_SUPPORTED;
}

ms_status_t ms_standstill_halt(void *ctx, uint64_t timeout_ns)
{
    const uint64_t end_ns = now_ns() + timeout_ns;
    if (atomic_load_explicit(&ms_gate_thread.calls, memory_order_relaxed) != 0 ||
        ms_captures_running() || refused()) {
        return MS_ERR_NOT_SUPPORTED;
    }
    const int before = ms_cancel_hold();
    if (!lock_until(end_ns)) {
        ms_cancel_let(before);
        return MS_ERR_NOT_READY;
    }
    ms_status_t status = halt_locked(ctx, end_ns);
    if (status == MS_OK) {
        cancellation = before;
    } else {
        pthread_mutex_unlock(&lock);
        ms_cancel_let(before);
    }
    return status;
}

void ms_standstill_resume(void *ctx)
{
    const int before = cancellation;
    (void)ctx;
    ms_gate_open();
    pthread_mutex_unlock(&lock);
    ms_cancel_let(before);
}

/* --- copies ----------------------------------------------------------------------------------- */

static void note(struct copier *copier, CUresult result)
{
    if (copier->first_failure == CUDA_SUCCESS) {
        copier->first_failure = result;
    }
}

/* The streams of a context that died went with it. The context is current. */
static CUresult prepare(struct copier *copier, struct ms_context *context)
{
    if (copier->context == context) {
        return CUDA_SUCCESS;
    }
    if (copier->context != NULL) {
        ms_context_let(copier->context);
    }
    *copier = (struct copier){.context = NULL};
    for (unsigned i = 0; i < COPY_STREAMS; i++) {
        CUresult result = MS_REAL(cuStreamCreate)(&copier->streams[i], CU_STREAM_NON_BLOCKING);
        if (result != CUDA_SUCCESS) {
            while (i-- > 0) {
                (void)MS_REAL(cuStreamDestroy_v2)(copier->streams[i]);
            }
            return result;
        }
    }
    ms_context_hold(context);
    copier->context = context;
    return CUDA_SUCCESS;
}

ms_status_t ms_standstill_copy(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    const struct ms_device *device = ctx;
    struct copier *copier = &copiers[device->ordinal];
    struct ms_context *context = ms_context_any(device);
    if (context == NULL) {
        return MS_ERR_NOT_SUPPORTED;
    }
    struct ms_scope scope;
    ms_scope_enter_context(context, &scope);
    CUresult result = prepare(copier, context);
    if (result == CUDA_SUCCESS) {
        CUstream stream = copier->streams[copier->next++ % COPY_STREAMS];
        result = MS_REAL(cuMemcpyAsync)(to, from, bytes, stream);
        note(copier, result);
    }
    ms_scope_leave(&scope);
    return ms_status_from(result);
}

/* A wait that failed may not have waited, and what a copy still reads or writes must not be
 * unmapped: only a device that is lost fails every time. */
static CUresult wait_for(CUstream stream)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned tries = 0; result != CUDA_SUCCESS && tries < WAIT_TRIES; tries++) {
        result = ms_driver()->cuStreamSynchronize(stream);
    }
    return result;
}

/* Waits as long as it takes: nothing but these copies is in the streams. */
ms_status_t ms_standstill_copy_wait(void *ctx)
{
    const struct ms_device *device = ctx;
    struct copier *copier = &copiers[device->ordinal];
    if (copier->context == NULL) {
        return MS_OK;
    }
    struct ms_scope scope;
    ms_scope_enter_context(copier->context, &scope);
    for (unsigned i = 0; i < COPY_STREAMS; i++) {
        note(copier, wait_for(copier->streams[i]));
    }
    ms_scope_leave(&scope);
    CUresult result = copier->first_failure;
    copier->first_failure = CUDA_SUCCESS;
    return ms_status_from(result);
}
