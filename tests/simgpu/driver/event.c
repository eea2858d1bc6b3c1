/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the simulated driver. See event.h. */
#include "event.h"

#include "../simgpu.h"
#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "ipc.h"
#include "pool.h"
#include "stream.h"

#include <stdlib.h>

CUresult sim_event_check(CUevent event)
{
    return sim_object_is(&sim_events, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUevent sim_event_new(CUcontext context)
{
    CUevent event = sim_object_new(&sim_events);
    if (event) {
        event->context = sim_context_retain(context);
        event->link = &context->events;
        event->next = context->events;
        if (event->next) {
            event->next->link = &event->next;
        }
        context->events = event;
    }
    return event;
}

void sim_event_destroy(CUevent event)
{
    sim_object_destroy(&event->object);
    *event->link = event->next;
    if (event->next) {
        event->next->link = event->link;
    }
    sim_event_release(event);
}

CUevent sim_event_retain(CUevent event)
{
    event->object.references++;
    return event;
}

void sim_event_release(CUevent event)
{
    if (--event->object.references) {
        return;
    }
    if (event->stream) {
        sim_stream_release(event->stream);
    }
    if (event->shared) {
        sim_ipc_event_close(event);
    }
    free(event->frontier);
    sim_clock_free(&event->clock);
    sim_context_release(event->context);
    sim_object_free(&sim_events, event);
}

bool sim_event_is_complete(const struct CUevent_st *event)
{
    if (event->shared) {
        return sim_ipc_event_reached_version(event->shared, sim_ipc_event_latest(event->shared));
    }
    return !event->stream || event->stream->completed >= event->position;
}

static _Atomic uint64_t passed_ns; /* beside the clock's, by simgpu_pass_ns */

void simgpu_pass_ns(uint64_t ns)
{
    passed_ns += ns;
}

void sim_event_reached(CUevent event, uint64_t version)
{
    if (event->version == version) {
        event->time_ns = sim_now_ns() + passed_ns;
    }
    if (event->shared) {
        sim_ipc_event_reached(event->shared, version);
    }
}

uint64_t sim_event_new_version(CUevent event)
{
    event->version = event->shared ? sim_ipc_event_recorded(event->shared) : event->version + 1;
    return event->version;
}

void sim_event_mark(CUevent event, CUstream stream, uint64_t position)
{
    sim_stream_retain(stream);
    if (event->stream) {
        sim_stream_release(event->stream);
    }
    event->stream = stream;
    event->position = position;
    event->capture_id = 0;
}

/* ---- the event functions of the driver API -------------------------------------------------- */

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    SIM_ENTER(cuEventCreate);
    SIM_CURRENT(context);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    /* "CU_EVENT_INTERPROCESS must be set along with CU_EVENT_DISABLE_TIMING" (cuda.h). */
    if (!phEvent || (Flags & ~known) ||
        ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUevent event = sim_event_new(context);
    if (!event) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->flags = Flags;
    if ((Flags & CU_EVENT_INTERPROCESS) && !sim_ipc_event_open(event)) {
        sim_event_destroy(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phEvent = event;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event)
{
    CUresult status = sim_event_check(event);
    if (status == CUDA_SUCCESS) {
        sim_event_destroy(event);
    }
    return status;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    SIM_ENTER(cuEventDestroy);
    return destroy(hEvent);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    SIM_ENTER(cuEventDestroy_v2);
    return destroy(hEvent);
}

static CUresult record(CUevent event, CUstream handle, unsigned flags)
{
    SIM_STREAM(handle, stream);
    CUresult status = sim_event_check(event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* "hEvent and hStream must be from the same context" (cuda.h, cuEventRecord). */
    if (!sim_context_has(event->context, stream->context)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture && !(flags & CU_EVENT_RECORD_EXTERNAL)) {
        return sim_capture_record(stream, event);
    }
    if (!stream->capture) {
        status = sim_capture_forbids_legacy(stream);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    struct sim_work work = {.kind = SIM_WORK_RECORD, .event = {sim_event_retain(event), 0}};
    if (stream->capture) {
        return sim_submit(stream, &work, NULL);
    }
    sim_stream_wait_room(stream);
    work.event.version = sim_event_new_version(event);
    /* Marked first, because on an idle stream the record happens inside sim_submit. */
    sim_event_mark(event, stream, stream->submitted + 1);
    sim_schedule_record(event);
    return sim_submit(stream, &work, NULL);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    SIM_ENTER(cuEventRecord);
    return record(hEvent, hStream, 0);
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
    SIM_ENTER(cuEventRecord_ptsz);
    return record(hEvent, sim_per_thread(hStream), 0);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    SIM_ENTER(cuEventRecordWithFlags);
    return record(hEvent, hStream, flags);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    SIM_ENTER(cuEventRecordWithFlags_ptsz);
    return record(hEvent, sim_per_thread(hStream), flags);
}

CUresult cuEventQuery(CUevent hEvent)
{
    SIM_ENTER(cuEventQuery);
    CUresult status = sim_event_check(hEvent);
    if (status == CUDA_SUCCESS) {
        status = sim_capture_check_event(hEvent);
    }
    if (status == CUDA_SUCCESS) {
        status = sim_capture_check_unsafe();
    }
    if (status == CUDA_SUCCESS &&
        !(sim_event_is_complete(hEvent) && sim_schedule_shows_event(hEvent))) {
        status = CUDA_ERROR_NOT_READY;
    }
    return status;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    SIM_ENTER(cuEventSynchronize);
    CUresult status = sim_event_check(hEvent);
    if (status == CUDA_SUCCESS) {
        status = sim_capture_check_event(hEvent);
    }
    if (status == CUDA_SUCCESS) {
        status = sim_capture_check_unsafe();
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    sim_event_retain(hEvent);
    /* The record that counts is the latest one at the time of the call. */
    if (hEvent->stream) {
        sim_wait_position(hEvent->stream, hEvent->position);
    }
    uint64_t latest = hEvent->shared ? sim_ipc_event_latest(hEvent->shared) : 0;
    while (hEvent->shared && !sim_ipc_event_reached_version(hEvent->shared, latest)) {
        sim_wait_progress();
    }
    sim_schedule_seen_event(hEvent);
    struct sim_device *device = hEvent->context->device;
    sim_event_release(hEvent);
    sim_pools_at_synchronize(device);
    return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
    if (!milliseconds) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_event_check(start) != CUDA_SUCCESS || sim_event_check(end) != CUDA_SUCCESS ||
        !start->stream || !end->stream || start->context->device != end->context->device ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!sim_event_is_complete(start) || !sim_event_is_complete(end)) {
        return CUDA_ERROR_NOT_READY;
    }
    *milliseconds = (float)((double)(int64_t)(end->time_ns - start->time_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    SIM_ENTER(cuEventElapsedTime);
    return elapsed(pMilliseconds, hStart, hEnd);
}

#if CUDA_VERSION >= 12080
CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    SIM_ENTER(cuEventElapsedTime_v2);
    return elapsed(pMilliseconds, hStart, hEnd);
}
#endif

CUresult sim_event_wait_in(CUstream stream, CUevent event)
{
    if (!event->stream && !event->shared) {
        return CUDA_SUCCESS;
    }
    sim_stream_wait_room(stream);
    sim_schedule_wait(stream, event);
    struct sim_work work = {.kind = SIM_WORK_WAIT, .event = {.event = sim_event_retain(event)}};
    if (event->shared) {
        work.event.version = sim_ipc_event_latest(event->shared);
    }
    if (!event->stream) {
        return sim_submit(stream, &work, NULL);
    }
    struct sim_dependency behind = {event->stream, event->position};
    return sim_submit_behind(stream, &work, behind, NULL);
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags)
{
    SIM_STREAM(handle, stream);
    CUresult status = sim_event_check(event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture && (flags & CU_EVENT_WAIT_EXTERNAL)) {
        struct sim_work work = {.kind = SIM_WORK_WAIT, .event = {sim_event_retain(event), 0}};
        return sim_submit(stream, &work, NULL);
    }
    if (stream->capture || event->capture_id) {
        return sim_capture_wait(stream, event);
    }
    status = sim_capture_forbids_legacy(stream);
    return status == CUDA_SUCCESS ? sim_event_wait_in(stream, event) : status;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    SIM_ENTER(cuStreamWaitEvent);
    return wait_event(hStream, hEvent, Flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    SIM_ENTER(cuStreamWaitEvent_ptsz);
    return wait_event(sim_per_thread(hStream), hEvent, Flags);
}

static CUresult collect(CUstream collector, CUcontext context)
{
    CUresult status = CUDA_SUCCESS;
    for (CUstream s = context->streams; s && status == CUDA_SUCCESS; s = s->next) {
        struct sim_work wait = {.kind = SIM_WORK_EMPTY};
        if (s != collector && s->completed < s->submitted) {
            struct sim_dependency behind = {s, s->submitted};
            status = sim_submit_behind(collector, &wait, behind, NULL);
        }
    }
    return status;
}

/* "Captures in hEvent all the activities of the green context", whose primary one the event is of
 * (cuda.h). */
CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    SIM_ENTER(cuGreenCtxRecordEvent);
    CUresult status = sim_green_check(hCtx);
    if (status == CUDA_SUCCESS) {
        status = sim_event_check(hEvent);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!sim_context_has(hEvent->context, hCtx->context)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    status = sim_capture_invalidate_context(hCtx->context);
    CUstream collector = status == CUDA_SUCCESS ? sim_context_collector(hEvent->context) : NULL;
    if (!collector) {
        return status == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    status = collect(collector, hCtx->context);
    return status == CUDA_SUCCESS ? record(hEvent, collector, 0) : status;
}

#if CUDA_VERSION >= 12050
/* "Captures in hEvent all the activities of the context hCtx at the time of this call", for a
 * primary context including its green contexts (cuda.h). Implemented as a record in a stream behind
 * all of their streams. */
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    SIM_ENTER(cuCtxRecordEvent);
    CUresult status = sim_context_check(hCtx);
    if (status == CUDA_SUCCESS) {
        status = sim_event_check(hEvent);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (hEvent->context != hCtx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    status = sim_capture_invalidate_context(hCtx);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUstream collector = sim_context_collector(hCtx);
    if (!collector) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (CUcontext c = sim_first_context(); c && status == CUDA_SUCCESS; c = c->next) {
        if (sim_context_has(hCtx, c)) {
            status = collect(collector, c);
        }
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return record(hEvent, collector, 0);
}

/* "Make a context wait on an event": all later work of all its streams. */
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    SIM_ENTER(cuCtxWaitEvent);
    CUresult status = sim_context_check(hCtx);
    if (status == CUDA_SUCCESS) {
        status = sim_event_check(hEvent);
    }
    if (status == CUDA_SUCCESS) {
        status = sim_capture_invalidate_context(hCtx);
    }
    if (status == CUDA_SUCCESS && hEvent->capture_id) {
        status = CUDA_ERROR_CAPTURED_EVENT;
    }
    for (CUstream stream = status == CUDA_SUCCESS ? hCtx->streams : NULL;
         stream && status == CUDA_SUCCESS; stream = stream->next) {
        status = stream->destroyed ? CUDA_SUCCESS : sim_event_wait_in(stream, hEvent);
    }
    return status;
}
#endif
