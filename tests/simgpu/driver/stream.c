/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the simulated driver. See stream.h. */
#include "stream.h"

#include "../simgpu.h"
#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "pool.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct sim_operation {
    struct sim_operation *next;
    uint64_t position;
    struct sim_work work;
    unsigned dependency_count;
    struct sim_dependency dependencies[];
};

#define WORKER_STACK_BYTES (1u << 20)

static uint64_t next_stream_id = 1;
static bool paused;
static uint32_t peer_busy; /* bit i: a copy between devices occupies device i */
static _Atomic uint64_t last_thread_number;
static _Thread_local uint64_t thread_number;

uint64_t sim_thread_number(void)
{
    if (!thread_number) {
        thread_number = atomic_fetch_add(&last_thread_number, 1) + 1;
    }
    return thread_number;
}

/* ---- life ---------------------------------------------------------------------------------- */

CUstream sim_stream_create(CUcontext context, unsigned flags, int priority)
{
    CUstream stream = sim_object_new(&sim_streams);
    if (!stream) {
        return NULL;
    }
    stream->context = sim_context_retain(context);
    stream->id = next_stream_id++;
    stream->flags = flags;
    stream->priority = priority;
    pthread_cond_init(&stream->wake, NULL);
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

CUstream sim_stream_retain(CUstream stream)
{
    stream->object.references++;
    return stream;
}

void sim_stream_release(CUstream stream)
{
    if (--stream->object.references) {
        return;
    }
    CUstream *link = &stream->context->streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    sim_context_release(stream->context);
    pthread_cond_destroy(&stream->wake);
    free(stream->frontier);
    sim_clock_free(&stream->clock);
    sim_object_free(&sim_streams, stream);
}

/* "the function will return immediately and the resources [...] will be released automatically once
 * the device has completed all work" (cuda.h, cuStreamDestroy): the stream's thread holds a
 * reference. */
void sim_stream_destroy(CUstream stream)
{
    stream->destroyed = true;
    sim_object_destroy(&stream->object);
    pthread_cond_signal(&stream->wake);
    sim_stream_release(stream);
}

static CUstream per_thread_stream(CUcontext context)
{
    uint64_t thread = sim_thread_number();
    for (CUstream stream = context->streams; stream; stream = stream->next) {
        if (stream->thread == thread && !stream->destroyed) {
            return stream;
        }
    }
    CUstream stream = sim_stream_create(context, CU_STREAM_DEFAULT, 0);
    if (stream) {
        stream->thread = thread;
    }
    return stream;
}

CUstream sim_stream_of(CUstream handle, CUresult *status)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUcontext context = sim_current_of_streams();
        *status = sim_current_check();
        if (*status != CUDA_SUCCESS) {
            return NULL;
        }
        CUstream found =
            handle == CU_STREAM_PER_THREAD ? per_thread_stream(context) : context->legacy;
        *status = found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        return found;
    }
    if (!sim_object_is(&sim_streams, handle)) {
        *status = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    *status = handle->context->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return *status == CUDA_SUCCESS ? handle : NULL;
}

/* ---- carrying out -------------------------------------------------------------------------- */

static bool is_complete(struct sim_dependency dependency)
{
    return dependency.stream->completed >= dependency.position;
}

static void complete(CUstream stream, uint64_t position)
{
    stream->completed = position;
    if (stream->completed == stream->submitted) {
        stream->context->busy_streams--;
    }
    sim_announce_progress();
}

/* A copy between two devices excludes other such copies from both. */
static void begin_peer_copy(const struct sim_work *work)
{
    uint32_t devices = sim_work_peer_devices(work);
    while (devices & peer_busy) {
        sim_wait_progress();
    }
    peer_busy |= devices;
}

static void end_peer_copy(const struct sim_work *work)
{
    peer_busy &= ~sim_work_peer_devices(work);
}

static void run_work(CUstream stream, struct sim_work *work, bool delayed)
{
    if (delayed || sim_work_has_unlocked_part(work)) {
        sim_unlock();
        if (delayed && sim_work_takes_time(work)) {
            sim_delay();
            sim_sleep_us(sim_work_peer_devices(work) ? sim_settings.peer_us : 0);
        }
        sim_work_run_unlocked(work);
        sim_lock();
    }
    sim_work_run_locked(work, stream);
}

static void wait_until_ready(const struct sim_operation *operation)
{
    for (unsigned i = 0; i < operation->dependency_count; i++) {
        while (!is_complete(operation->dependencies[i])) {
            sim_wait_progress();
        }
        sim_stream_release(operation->dependencies[i].stream);
    }
    while (paused) {
        sim_wait_progress();
    }
    while (!sim_work_is_ready(&operation->work)) {
        sim_unlock();
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        sim_lock();
    }
}

static void *stream_thread(void *argument)
{
    CUstream stream = argument;
    sim_lock();
    while (stream->first || !stream->destroyed) {
        struct sim_operation *operation = stream->first;
        if (!operation || stream->running) {
            pthread_cond_wait(&stream->wake, sim_mutex());
            continue;
        }
        stream->running = true;
        wait_until_ready(operation);
        begin_peer_copy(&operation->work);
        run_work(stream, &operation->work, true);
        end_peer_copy(&operation->work);
        sim_work_release(&operation->work);
        stream->running = false;
        stream->first = operation->next;
        complete(stream, operation->position);
        free(operation);
    }
    sim_stream_release(stream);
    sim_unlock();
    return NULL;
}

/* The stream's thread must not get the application's signals, except a fault, which must kill the
 * process. */
static bool start_worker(CUstream stream)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    bool started = pthread_create(&thread, &attributes, stream_thread, stream) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        stream->has_worker = true;
        sim_stream_retain(stream);
    }
    return started;
}

/* ---- submitting ---------------------------------------------------------------------------- */

/*
 * "The legacy default stream is an implicit stream which synchronizes with all other streams in the
 * same CUcontext except for non-blocking streams" (cuda.h, stream synchronization behavior).
 * Returns the number of incomplete positions to wait for; stores them where `list` is not NULL.
 */
static unsigned implicit_dependencies(CUstream stream, struct sim_dependency *list)
{
    CUcontext context = stream->context;
    unsigned count = 0;
    if (context->busy_streams == 0) {
        return 0;
    }
    for (CUstream other = context->streams; other; other = other->next) {
        bool related = (stream->legacy && sim_stream_is_blocking(other)) ||
                       (other->legacy && sim_stream_is_blocking(stream));
        if (related && other->completed < other->submitted) {
            if (list) {
                list[count] = (struct sim_dependency){sim_stream_retain(other), other->submitted};
            }
            count++;
        }
    }
    return count;
}

static CUresult enqueue(CUstream stream, struct sim_work *work, const struct sim_dependency *behind,
                        unsigned implicit)
{
    unsigned count = implicit + (behind ? 1 : 0);
    struct sim_operation *operation =
        calloc(1, sizeof *operation + count * sizeof(struct sim_dependency));
    if (!operation || (!stream->has_worker && !start_worker(stream))) {
        free(operation);
        sim_work_release(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    implicit_dependencies(stream, operation->dependencies);
    if (behind) {
        operation->dependencies[implicit] = *behind;
        sim_stream_retain(behind->stream);
    }
    operation->dependency_count = count;
    operation->work = *work;
    if (stream->completed == stream->submitted) {
        stream->context->busy_streams++;
    }
    operation->position = ++stream->submitted;
    if (stream->first) {
        stream->last->next = operation;
    } else {
        stream->first = operation;
        pthread_cond_signal(&stream->wake);
    }
    stream->last = operation;
    return CUDA_SUCCESS;
}

static void run_inline(CUstream stream, struct sim_work *work)
{
    uint64_t position = ++stream->submitted;
    stream->context->busy_streams++;
    stream->running = true;
    sim_stream_retain(stream);
    run_work(stream, work, false);
    sim_work_release(work);
    stream->running = false;
    if (stream->first) { /* another thread queued work behind this while the lock was free */
        stream->completed = position;
        sim_announce_progress();
        pthread_cond_signal(&stream->wake);
    } else {
        complete(stream, position);
    }
    sim_stream_release(stream);
}

void sim_stream_wait_room(CUstream stream)
{
    sim_stream_retain(stream);
    while (sim_settings.queue && stream->submitted - stream->completed >= sim_settings.queue) {
        sim_wait_progress();
    }
    sim_stream_release(stream);
}

static CUresult submit(CUstream stream, struct sim_work *work, const struct sim_dependency *behind,
                       uint64_t *position)
{
    sim_schedule_went_on();
    if (sim_work_takes_time(work)) {
        sim_stream_wait_room(stream);
    }
    if (behind && is_complete(*behind)) {
        behind = NULL;
    }
    if (work->kind == SIM_WORK_KERNEL) {
        work->launch.context = stream->context;
    }
    unsigned implicit = implicit_dependencies(stream, NULL);
    bool idle = stream->completed == stream->submitted && !behind && implicit == 0;
    bool quick = (sim_settings.delay_high_us == 0 || !sim_work_takes_time(work)) &&
                 sim_work_peer_devices(work) == 0;
    if (idle && quick && !paused && sim_work_runs_inline(work)) {
        if (position) {
            *position = stream->submitted + 1;
        }
        run_inline(stream, work);
        return CUDA_SUCCESS;
    }
    CUresult status = enqueue(stream, work, behind, implicit);
    if (position) {
        *position = stream->submitted;
    }
    return status;
}

CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *position)
{
    if (stream->capture) {
        if (position) {
            *position = 0;
        }
        return sim_capture_add(stream, work);
    }
    CUresult status = sim_capture_forbids_legacy(stream);
    if (status != CUDA_SUCCESS) {
        sim_work_release(work);
        return status;
    }
    return submit(stream, work, NULL, position);
}

CUresult sim_submit_behind(CUstream stream, struct sim_work *work, struct sim_dependency behind,
                           uint64_t *position)
{
    return submit(stream, work, &behind, position);
}

/* ---- waiting ------------------------------------------------------------------------------- */

bool sim_stream_is_idle(const struct CUstream_st *stream)
{
    if (stream->completed < stream->submitted) {
        return false;
    }
    for (CUstream other = stream->context->streams; stream->legacy && other; other = other->next) {
        if (sim_stream_is_blocking(other) && other->completed < other->submitted) {
            return false;
        }
    }
    return true;
}

bool sim_stream_defers(const struct CUstream_st *stream)
{
    return paused || sim_settings.delay_high_us != 0 || !sim_stream_is_idle(stream);
}

void sim_wait_position(CUstream stream, uint64_t position)
{
    sim_stream_retain(stream);
    while (stream->completed < position) {
        sim_wait_progress();
    }
    sim_stream_release(stream);
}

/* Waits for what has been submitted so far to the streams for which `wanted` returns true. */
static void wait_streams(bool (*wanted)(const struct CUstream_st *, const void *),
                         const void *argument)
{
    size_t count = 0, capacity = 0;
    struct sim_dependency *list = NULL;
    for (CUcontext context = sim_first_context(); context; context = context->next) {
        for (CUstream stream = context->streams; stream; stream = stream->next) {
            if (!wanted(stream, argument)) {
                continue;
            }
            sim_schedule_seen(stream);
            if (stream->completed == stream->submitted) {
                continue;
            }
            if (count == capacity) {
                capacity = capacity ? capacity * 2 : 16;
                struct sim_dependency *longer = realloc(list, capacity * sizeof *list);
                if (!longer) {
                    abort(); /* returning without waiting would be worse */
                }
                list = longer;
            }
            list[count++] = (struct sim_dependency){sim_stream_retain(stream), stream->submitted};
        }
    }
    for (size_t i = 0; i < count; i++) {
        sim_wait_position(list[i].stream, list[i].position);
        sim_stream_release(list[i].stream);
    }
    free(list);
}

static bool in_context(const struct CUstream_st *stream, const void *context)
{
    return sim_context_has(context, stream->context);
}

static bool on_device(const struct CUstream_st *stream, const void *device)
{
    return stream->context->device == device;
}

static bool before_legacy(const struct CUstream_st *stream, const void *legacy)
{
    return stream == legacy || (stream->context == ((const struct CUstream_st *)legacy)->context &&
                                sim_stream_is_blocking(stream));
}

void sim_wait_context(CUcontext context)
{
    wait_streams(in_context, context);
}

void sim_wait_device(const struct sim_device *device)
{
    wait_streams(on_device, device);
}

void sim_wait_stream(CUstream stream)
{
    if (stream->legacy) {
        wait_streams(before_legacy, stream);
    } else {
        sim_schedule_seen(stream);
        sim_wait_position(stream, stream->submitted);
    }
}

void simgpu_pause(void)
{
    sim_lock();
    paused = true;
    sim_unlock();
}

void simgpu_resume(void)
{
    sim_lock();
    paused = false;
    sim_announce_progress();
    sim_unlock();
}

/* ---- the stream functions of the driver API ------------------------------------------------ */

#define PRIORITY_LEAST    0
#define PRIORITY_GREATEST (-5)

static CUresult create(CUstream *result, unsigned flags, int priority)
{
    SIM_CURRENT(context);
    context = sim_current_of_streams();
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* "If the specified priority is outside the numerical range [...], it will automatically be
     * clamped" (cuda.h, cuStreamCreateWithPriority). */
    priority = priority > PRIORITY_LEAST ? PRIORITY_LEAST : priority;
    priority = priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    *result = sim_stream_create(context, flags, priority);
    return *result ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    SIM_JUDGE(phStream, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuStreamCreate);
    return create(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    SIM_JUDGE(phStream, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuStreamCreateWithPriority);
    return create(phStream, flags, priority);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    SIM_ENTER(cuCtxGetStreamPriorityRange);
    SIM_CURRENT(context);
    (void)context;
    if (leastPriority) {
        *leastPriority = PRIORITY_LEAST;
    }
    if (greatestPriority) {
        *greatestPriority = PRIORITY_GREATEST;
    }
    return CUDA_SUCCESS;
}

static CUresult destroy(CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (stream->legacy || stream->thread) {
        return CUDA_ERROR_INVALID_HANDLE; /* the application cannot destroy the default streams */
    }
    if (stream->capture) {
        sim_capture_leave(stream);
    }
    sim_stream_destroy(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream)
{
    SIM_JUDGE(hStream, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuStreamDestroy);
    return destroy(hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    SIM_JUDGE(hStream, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuStreamDestroy_v2);
    return destroy(hStream);
}

static CUresult synchronize(CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (stream->capture) {
        return sim_capture_refuse(stream);
    }
    CUresult status = sim_capture_forbids_legacy(stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_device *device = stream->context->device;
    sim_wait_stream(stream);
    sim_pools_at_synchronize(device);
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamSynchronize, (CUstream hStream), synchronize(hStream));

static CUresult query(CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (stream->capture) {
        return sim_capture_refuse(stream);
    }
    CUresult status = sim_capture_forbids_legacy(stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return sim_stream_is_idle(stream) && sim_schedule_shows(stream) ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_NOT_READY;
}

SIM_STREAM_PAIR(cuStreamQuery, (CUstream hStream), query(hStream));

static CUresult get_priority(CUstream handle, int *priority)
{
    SIM_STREAM(handle, stream);
    if (!priority) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetPriority, (CUstream hStream, int *priority),
                get_priority(hStream, priority));

static CUresult get_flags(CUstream handle, unsigned *flags)
{
    SIM_STREAM(handle, stream);
    if (!flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetFlags, (CUstream hStream, unsigned int *flags),
                get_flags(hStream, flags));

static CUresult get_id(CUstream handle, unsigned long long *id)
{
    SIM_STREAM(handle, stream);
    if (!id) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *id = stream->id;
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetId, (CUstream hStream, unsigned long long *streamId),
                get_id(hStream, streamId));

static CUresult get_context(CUstream handle, CUcontext *context)
{
    SIM_STREAM(handle, stream);
    if (!context) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *context = stream->context;
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetCtx, (CUstream hStream, CUcontext *pctx), get_context(hStream, pctx));

#if CUDA_VERSION >= 12050
static CUresult get_contexts(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
    CUresult status = get_context(handle, context);
    if (status == CUDA_SUCCESS && green) {
        *green = (*context)->green;
    }
    if (status == CUDA_SUCCESS && (*context)->base) {
        *context = (*context)->base;
    }
    return status;
}

SIM_STREAM_PAIR(cuStreamGetCtx_v2, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx),
                get_contexts(hStream, pCtx, pGreenCtx));
#endif

#if CUDA_VERSION >= 12080
static CUresult get_device(CUstream handle, CUdevice *device)
{
    SIM_STREAM(handle, stream);
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = stream->context->device->index;
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetDevice, (CUstream hStream, CUdevice *device),
                get_device(hStream, device));
#endif

static _Thread_local bool launches_as_kernel;

int simgpu_launch_as_kernel(int now)
{
    int before = launches_as_kernel;
    launches_as_kernel = now != 0;
    return before;
}

static CUresult host_function(CUstream handle, CUhostFn function, void *argument)
{
    SIM_STREAM(handle, stream);
    if (!function) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_work work = {
        .kind = SIM_WORK_HOST,
        .host = {.function = function, .argument = argument, .as_kernel = launches_as_kernel}};
    return sim_submit(stream, &work, NULL);
}

SIM_STREAM_PAIR(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData),
                host_function(hStream, fn, userData));

static CUresult add_callback(CUstream handle, CUstreamCallback function, void *argument,
                             unsigned flags)
{
    SIM_STREAM(handle, stream);
    if (!function || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture) {
        return sim_capture_refuse(stream);
    }
    struct sim_work work = {
        .kind = SIM_WORK_CALLBACK,
        .callback = {.function = function, .argument = argument, .stream = handle}};
    return sim_submit(stream, &work, NULL);
}

SIM_STREAM_PAIR(cuStreamAddCallback,
                (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
                add_callback(hStream, callback, userData, flags));
