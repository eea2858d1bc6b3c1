/* SPDX-License-Identifier: Apache-2.0 */
/* Streams. The stream's own thread carries out queued work in order; on an idle stream without
 * delay, the caller does so at once. A place in a stream's order is a position: work number n is
 * complete when stream->completed >= n. All waiting (for events, for the legacy default stream, by
 * the host) is waiting for positions. All under sim_lock. */
#ifndef SIMGPU_STREAM_H
#define SIMGPU_STREAM_H

#include "driver_api.h"
#include "object.h"
#include "schedule.h"
#include "work.h"

#include <pthread.h>
#include <stdbool.h>

struct sim_capture;
struct sim_device;
struct sim_operation;

struct CUstream_st {
    struct sim_object object;
    CUcontext context;
    CUstream next; /* in the context's list */
    uint64_t id;
    unsigned flags;
    int priority;
    bool legacy;
    bool destroyed;
    uint64_t thread; /* the thread whose per-thread default stream this is; 0: none */
    uint64_t submitted, completed;
    struct sim_clock clock; /* of other streams: the work before its own next work */
    bool running;
    bool has_worker;
    pthread_cond_t wake;
    struct sim_operation *first, *last;
    struct sim_capture *capture; /* NULL: not capturing */
    CUgraphNode *frontier;       /* nodes that the next captured node depends on */
    size_t frontier_count, frontier_capacity;
    CUstreamAttrValue attributes[8];
};

struct sim_dependency {
    CUstream stream;
    uint64_t position;
};

/* The stream that a handle denotes in the calling thread, for the current context: 0 and
 * CU_STREAM_LEGACY the legacy default stream, CU_STREAM_PER_THREAD the thread's own. NULL, with the
 * error in *status: not a stream, or no context. */
CUstream sim_stream_of(CUstream handle, CUresult *status);

#define SIM_STREAM(handle, variable)                               \
    CUresult variable##_status;                                    \
    CUstream variable = sim_stream_of(handle, &variable##_status); \
    if (!variable) {                                               \
        return variable##_status;                                  \
    }                                                              \
    _Static_assert(1, "")

/* The stream argument of the _ptsz variants. */
static inline CUstream sim_per_thread(CUstream handle)
{
    return handle ? handle : CU_STREAM_PER_THREAD;
}

/* A function with an argument hStream, and its variant in which 0 means the thread's own default
 * stream. Needs entry.h. */
#define SIM_STREAM_PAIR(symbol, parameters, ...) \
    CUresult symbol parameters                   \
    {                                            \
        SIM_ENTER(symbol);                       \
        return __VA_ARGS__;                      \
    }                                            \
    CUresult symbol##_ptsz parameters            \
    {                                            \
        SIM_ENTER(symbol##_ptsz);                \
        hStream = sim_per_thread(hStream);       \
        return __VA_ARGS__;                      \
    }                                            \
    _Static_assert(1, "")

/* Takes over *work, and adds it to the stream's order, or to its graph while the stream captures.
 * position may be NULL; it gets 0 if the work was captured. */
CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *position);

/* The same for work that also waits for a position of another stream; never captured. */
CUresult sim_submit_behind(CUstream stream, struct sim_work *work, struct sim_dependency behind,
                           uint64_t *position);

/* Releases sim_lock, and waits until the stream's queue has room for one more operation
 * (SIMGPU_QUEUE). For callers that note the next position before they submit. */
void sim_stream_wait_room(CUstream stream);

CUstream sim_stream_create(CUcontext context, unsigned flags, int priority);
void sim_stream_destroy(CUstream stream);
CUstream sim_stream_retain(CUstream stream);
void sim_stream_release(CUstream stream);

static inline bool sim_stream_is_blocking(const struct CUstream_st *stream)
{
    return !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* All of these release sim_lock while they wait. */
void sim_wait_position(CUstream stream, uint64_t position);
/* Waits for what was submitted to the stream; for the legacy stream also for the streams that it
 * waits for. */
void sim_wait_stream(CUstream stream);
void sim_wait_context(CUcontext context);
void sim_wait_device(const struct sim_device *device);

/* True: a copy or memset that is submitted now will run later. */
bool sim_stream_defers(const struct CUstream_st *stream);

/* True: all work submitted to the stream is complete (for the legacy stream also that of the
 * streams with which it synchronizes). */
bool sim_stream_is_idle(const struct CUstream_st *stream);

/* A number for the calling thread; never 0, never reused. */
uint64_t sim_thread_number(void);

#endif
