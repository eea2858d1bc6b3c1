/* SPDX-License-Identifier: Apache-2.0 */
/* Events. A record is a position in a stream; an event is complete when its last record is. An
 * event recorded while its stream captures stands for nodes of that graph instead. All under
 * sim_lock. */
#ifndef SIMGPU_EVENT_H
#define SIMGPU_EVENT_H

#include "driver_api.h"
#include "object.h"
#include "schedule.h"

#include <stdbool.h>

struct sim_ipc_event;

struct CUevent_st {
    struct sim_object object;
    CUcontext context;
    CUevent next, *link; /* in the context's list, until it is destroyed */
    unsigned flags;
    CUstream stream; /* of the last record, referenced; NULL: never recorded */
    uint64_t position;
    struct sim_clock clock; /* the work before its last record */
    uint64_t version;       /* number of records */
    uint64_t time_ns;       /* when the last record completed, if timing is on */
    uint64_t capture_id;    /* of the capture that recorded it last; 0: none */
    CUgraphNode *frontier;
    size_t frontier_count;
    struct sim_ipc_event *shared; /* of interprocess events, else NULL */
    bool imported;
};

/* CUDA_ERROR_INVALID_HANDLE if it is no event. */
CUresult sim_event_check(CUevent event);

/* A new event of the context; NULL: out of memory. */
CUevent sim_event_new(CUcontext context);
/* Drops the application's reference: at cuEventDestroy, or with the context. */
void sim_event_destroy(CUevent event);
CUevent sim_event_retain(CUevent event);
void sim_event_release(CUevent event);

bool sim_event_is_complete(const struct CUevent_st *event);

/* The part of recording that happens when the stream reaches the record. */
void sim_event_reached(CUevent event, uint64_t version);

/* The number for a record that is about to be made. */
uint64_t sim_event_new_version(CUevent event);

/* Makes that position of the stream the event's latest record. */
void sim_event_mark(CUevent event, CUstream stream, uint64_t position);

/* Waits in a stream of the current context, as cuStreamWaitEvent does outside capture. */
CUresult sim_event_wait_in(CUstream stream, CUevent event);

#endif
