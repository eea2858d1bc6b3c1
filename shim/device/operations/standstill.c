/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a device to a standstill: the gate is closed and queued work drains, within a time limit.
 *
 * Most queued work drains while the gate is still open. Then the gate closes for a short time, in
 * which the rest ends. If it does not end, it may depend on a thread that waits at the gate. So the
 * gate opens again for about as long, and then closes for twice the time, because threads that
 * queue work all the time would never let it drain. */
#include "shim/device/operations/standstill.h"

#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/device/operations/fences.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/process/log.h"

#define COPIES_MOST 16u /* under way */
#define WAIT_TRIES  4u
#define NAP_NS      50000u

#define FIRST_OPEN_NS   10000000u
#define FIRST_CLOSED_NS 250000000u
#define MOST_CLOSED_NS  5000000000u
_Static_assert(FIRST_OPEN_NS + FIRST_CLOSED_NS == MS_HALT_LEAST_NS, "that is one try");

/* Of the present or the next standstill. Held from halt to resume. */
static int cancellation; /* the thread's state before; cancellation is off meanwhile, because no
                            other thread would open the gate */

/* Copies are queued in parts of this size, whose duration is long compared with the cost of
 * queueing them. The pool asks for access to memory meanwhile, and the driver grants it only
 * between two parts. (Seen on an H200: beside one copy of 256 MiB a cuMemSetAccess took 1 ms, a
 * fifth of that copy.) */
#define PART_BYTES ((uint64_t)4 << 20)

/* A stream of ours for each device, in whichever context is used. One stream is enough: a copy of
 * some MiB keeps the bus busy, and in one stream copies end in the order in which they are waited
 * for. */
static struct copier {
    struct ms_context *context; /* held */
    CUstream stream;
    CUevent events[COPIES_MOST]; /* recorded behind the copies under way, by their numbers */
    uint64_t queued, done;
    struct ms_scope scope;
    CUresult first_failure;
    bool busy; /* copies are under way, in this scope */
} copiers[MS_DEVICES_MAX];

static uint64_t left_ns(uint64_t end_ns)
{
    uint64_t now = ms_clock_ns();
    return now < end_ns ? end_ns - now : 0;
}

/* The time limits of a standstill. */
struct standstill_trial {
    uint64_t end_ns;       /* for all of it */
    uint64_t quiet_end_ns; /* unless some stream runs empty before */
    uint64_t quiet_ns;     /* from one stream that ran empty to the next */
    uint64_t phase_end_ns; /* for the present phase, with the gate open or closed */
};

static struct standstill_trial begin_trial(uint64_t timeout_ns)
{
    uint64_t now = ms_clock_ns();
    uint64_t quiet = ms_options()->wait_ns;
    quiet = quiet > MS_HALT_LEAST_NS ? quiet : MS_HALT_LEAST_NS;
    return (struct standstill_trial){
        .end_ns = now + timeout_ns, .quiet_end_ns = now + quiet, .quiet_ns = quiet};
}

static uint64_t trial_left_ns(const struct standstill_trial *trial)
{
    return left_ns(trial->quiet_end_ns < trial->end_ns ? trial->quiet_end_ns : trial->end_ns);
}

static uint64_t phase_left_ns(const struct standstill_trial *trial)
{
    uint64_t in_all = trial_left_ns(trial);
    uint64_t phase = left_ns(trial->phase_end_ns);
    return phase < in_all ? phase : in_all;
}

static bool lock_until(uint64_t end_ns) MS_TRY_ACQUIRE(true, *MS_LOCK(STANDSTILL))
{
    while (!ms_lock_try(MS_LOCK(STANDSTILL))) {
        if (left_ns(end_ns) == 0) {
            return false;
        }
        ms_nap(NAP_NS);
    }
    return true;
}

/* --- draining --------------------------------------------------------------------------------- */

/* A stream that is gone counts as empty, and so does one for which the driver returns another
 * error; the fence covers them. Nothing is asked during a capture, which the caller that closed the
 * gate checks for. */
static bool has_work(ms_stream_t stream)
{
    CUresult result = CUDA_SUCCESS;
    struct ms_stream_use use;
    int before = 0;
    if (!ms_capture_hold_off(&before)) {
        return false;
    }
    if (ms_stream_enter(stream, &use)) {
        result = ms_driver()->cuStreamQuery(use.handle);
        ms_stream_leave(&use);
    }
    ms_capture_let_on(before);
    return result == CUDA_ERROR_NOT_READY;
}

/* Waits for a stream, within the time limits. */
static bool stream_empty(ms_stream_t stream, struct standstill_trial *trial)
{
    bool waited = false;
    while (has_work(stream)) {
        if (phase_left_ns(trial) == 0) {
            return false;
        }
        ms_nap(NAP_NS);
        waited = true;
    }
    if (waited) {
        trial->quiet_end_ns = ms_clock_ns() + trial->quiet_ns;
    }
    return true;
}

/* Recording a fence queues work, too, and if a queue is full the driver makes the caller wait for
 * the device. So this first asks the known streams, which never waits, until they are empty. */
static bool streams_empty(const struct ms_context *context, struct standstill_trial *trial)
{
    struct ms_stream_list streams;
    bool empty = stream_empty(context->legacy_stream, trial);
    (void)ms_stream_list_take(context, &streams);
    for (size_t i = 0; i < streams.count && empty; i++) {
        empty = stream_empty(streams.at[i], trial);
    }
    ms_stream_list_drop(&streams);
    return empty;
}

static bool contexts_empty(struct standstill_trial *trial)
{
    bool empty = true;
    for (struct ms_context *c = ms_context_first(); c != NULL && empty; c = c->next) {
        if (ms_context_hold_live(c)) {
            empty = streams_empty(c, trial);
            ms_context_let(c);
        }
    }
    return empty;
}

/* Called with the gate closed. */
static ms_status_t drain(struct ms_device *device, struct standstill_trial *trial)
{
    ms_fence_t fence = 0;
    if (!contexts_empty(trial)) {
        return MS_ERR_NOT_READY;
    }
    ms_status_t status = ms_fence_take(device, MS_STREAM_DEVICE, &fence);
    if (status != MS_OK) {
        return status;
    }
    status = ms_fence_wait(device, fence, phase_left_ns(trial));
    ms_fence_release(device, fence);
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

static ms_status_t halt_locked(struct ms_device *device, struct standstill_trial *trial)
{
    if (!ms_gate_close(phase_left_ns(trial))) {
        return refused() ? MS_ERR_NOT_SUPPORTED : MS_ERR_NOT_READY;
    }
    /* A thread that was about to begin a capture has begun it by now, and no other can. */
    ms_status_t status = ms_captures_running() ? MS_ERR_NOT_SUPPORTED : drain(device, trial);
    if (status == MS_OK) {
        return MS_OK;
    }
    ms_gate_open();
    /* Any other answer of the driver's means, too, that nothing can move now: a host function may
     * not call it, or the device has failed. */
    return status == MS_ERR_NOT_READY ? MS_ERR_NOT_READY : MS_ERR_NOT_SUPPORTED;
}

/* On MS_OK the lock is held, which Clang cannot tell by a status. */
static ms_status_t halt_once(struct ms_device *device, struct standstill_trial *trial,
                             uint64_t closed_ns) MS_NO_THREAD_SAFETY
{
    if (!lock_until(trial->end_ns)) {
        return MS_ERR_NOT_READY;
    }
    trial->phase_end_ns = ms_clock_ns() + closed_ns;
    ms_status_t status = halt_locked(device, trial);
    if (status != MS_OK) {
        ms_lock_release(MS_LOCK(STANDSTILL));
    }
    return status;
}

/* From half as long to one and a half times as long, at random: the ranks of a job do this
 * together. */
static uint64_t about(uint64_t ns)
{
    uint64_t draw = (ms_clock_ns() ^ (uint64_t)getpid() << 32) * 0x9e3779b97f4a7c15u >> 54;
    return ns / 2 + ns / 1024 * draw;
}

static ms_status_t halt(struct ms_device *device, struct standstill_trial *trial)
{
    uint64_t open_ns = FIRST_OPEN_NS;
    uint64_t closed_ns = FIRST_CLOSED_NS;
    for (;;) {
        trial->phase_end_ns = ms_clock_ns() + open_ns;
        (void)contexts_empty(trial);
        ms_status_t status = halt_once(device, trial, closed_ns);
        if (status != MS_ERR_NOT_READY || trial_left_ns(trial) == 0) {
            return status;
        }
        open_ns = about(closed_ns);
        closed_ns = closed_ns * 2 < MOST_CLOSED_NS ? closed_ns * 2 : MOST_CLOSED_NS;
    }
}

ms_status_t ms_standstill_halt(void *ctx, uint64_t timeout_ns)
{
    struct standstill_trial trial = begin_trial(timeout_ns);
    if (atomic_load_explicit(&ms_gate_thread.calls, memory_order_relaxed) != 0 ||
        ms_captures_running() || refused()) {
        return MS_ERR_NOT_SUPPORTED;
    }
    const int before = ms_cancel_hold();
    ms_status_t status = halt(ctx, &trial);
    if (status == MS_OK) {
        cancellation = before;
    } else {
        ms_cancel_let(before);
    }
    return status;
}

/* Releases what ms_standstill_halt took. */
void ms_standstill_resume(void *ctx) MS_NO_THREAD_SAFETY
{
    const int before = cancellation;
    (void)ctx;
    ms_gate_open();
    ms_lock_release(MS_LOCK(STANDSTILL));
    ms_cancel_let(before);
}

/* --- copies ----------------------------------------------------------------------------------- */

static void note(struct copier *copier, CUresult result)
{
    if (copier->first_failure == CUDA_SUCCESS) {
        copier->first_failure = result;
    }
}

/* Makes the stream and events for another context. The driver freed the old ones if their context
 * died. The context is current. */
static CUresult prepare(struct copier *copier, struct ms_context *context)
{
    if (copier->context == context) {
        return CUDA_SUCCESS;
    }
    if (copier->context != NULL) {
        ms_context_let(copier->context);
    }
    *copier = (struct copier){.context = NULL};
    CUresult result = MS_REAL(cuStreamCreate)(&copier->stream, CU_STREAM_NON_BLOCKING);
    unsigned events = 0;
    while (result == CUDA_SUCCESS && events < COPIES_MOST) {
        result = ms_driver()->cuEventCreate(&copier->events[events], CU_EVENT_DISABLE_TIMING);
        events += result == CUDA_SUCCESS ? 1 : 0;
    }
    if (result != CUDA_SUCCESS) {
        while (events-- > 0) {
            (void)ms_driver()->cuEventDestroy_v2(copier->events[events]);
        }
        if (copier->stream != NULL) {
            (void)MS_REAL(cuStreamDestroy_v2)(copier->stream);
        }
        return result;
    }
    ms_context_hold(context);
    copier->context = context;
    return CUDA_SUCCESS;
}

/* From the first copy until the last wait, by the same thread, the context is current and in
 * use. */
static CUresult begin_copies(struct copier *copier, const struct ms_device *device)
{
    struct ms_context *context = ms_context_any_awaited(device);
    if (context == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct ms_scope scope;
    bool entered = ms_scope_enter_context(context, &scope);
    ms_context_leave(context);
    CUresult result = entered ? prepare(copier, context) : CUDA_ERROR_NOT_SUPPORTED;
    copier->busy = result == CUDA_SUCCESS;
    if (copier->busy) {
        copier->scope = scope;
        copier->queued = 0;
        copier->done = 0;
    } else if (entered) {
        ms_scope_leave(&scope);
    }
    return result;
}

/* Waits without a limit: the stream has nothing but these copies. If a wait failed it may not have
 * waited, and memory that a copy still reads or writes must not be unmapped. Only a lost device
 * fails every time. */
static void wait_for_oldest(struct copier *copier)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned tries = 0; result != CUDA_SUCCESS && tries < WAIT_TRIES; tries++) {
        result = ms_driver()->cuEventSynchronize(copier->events[copier->done % COPIES_MOST]);
    }
    note(copier, result);
    copier->done++;
}

static void wait_for_all(struct copier *copier)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned tries = 0; result != CUDA_SUCCESS && tries < WAIT_TRIES; tries++) {
        result = ms_driver()->cuStreamSynchronize(copier->stream);
    }
    note(copier, result);
    copier->done = copier->queued;
}

static CUresult queue_parts(const struct copier *copier, ms_addr_t to, ms_addr_t from,
                            uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += PART_BYTES) {
        uint64_t part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        result = MS_REAL(cuMemcpyAsync)(to + at, from + at, part, copier->stream);
    }
    return result;
}

/* If a part of the copy is not queued, or its event not recorded, this waits for the whole
 * stream. */
static CUresult copy(struct copier *copier, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    if (copier->queued - copier->done == COPIES_MOST) {
        wait_for_oldest(copier);
    }
    CUresult result = queue_parts(copier, to, from, bytes);
    if (result == CUDA_SUCCESS) {
        result = ms_driver()->cuEventRecord(copier->events[copier->queued % COPIES_MOST],
                                            copier->stream);
    }
    if (result != CUDA_SUCCESS) {
        wait_for_all(copier);
        return result;
    }
    copier->queued++;
    return CUDA_SUCCESS;
}

ms_status_t ms_standstill_copy(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    const struct ms_device *device = ctx;
    struct copier *copier = &copiers[device->ordinal];
    CUresult result = copier->busy ? CUDA_SUCCESS : begin_copies(copier, device);
    return ms_status_from(result == CUDA_SUCCESS ? copy(copier, to, from, bytes) : result);
}

ms_status_t ms_standstill_copy_wait(void *ctx, uint64_t left)
{
    const struct ms_device *device = ctx;
    struct copier *copier = &copiers[device->ordinal];
    if (!copier->busy) {
        return MS_OK;
    }
    while (left > 0 && copier->queued - copier->done > left) {
        wait_for_oldest(copier);
    }
    if (left == 0) {
        wait_for_all(copier);
        ms_scope_leave(&copier->scope);
        copier->busy = false;
    }
    CUresult result = copier->first_failure;
    copier->first_failure = CUDA_SUCCESS;
    return ms_status_from(result);
}
