/* SPDX-License-Identifier: Apache-2.0 */
/* The capture of streams into graphs. See capture.h. */
#include "capture.h"

#include "context.h"
#include "device.h"
#include "entry.h"
#include "event.h"
#include "graph.h"
#include "memory.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

/* One capture sequence. It ends in cuStreamEndCapture of the stream that it began in. */
struct sim_capture {
    struct sim_capture *next; /* in the list of all captures */
    uint64_t id;
    CUgraph graph;   /* one reference */
    bool into_graph; /* the application's own graph, which stays when the capture fails */
    CUstreamCaptureMode mode;
    uint64_t thread; /* the thread that began it */
    CUstream origin;
    bool invalid;
};

static struct sim_capture *first_capture;
static uint64_t last_capture_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- calls that captures forbid -------------------------------------------------------------- */

static CUresult invalidate(struct sim_capture *capture, CUresult error)
{
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    capture->invalid = true;
    return error;
}

CUresult sim_capture_refuse(CUstream stream)
{
    return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult sim_capture_forbids_legacy(CUstream stream)
{
    if (!stream->legacy || stream->context->capturing_blocking == 0) {
        return CUDA_SUCCESS;
    }
    for (CUstream other = stream->context->streams; other; other = other->next) {
        if (other->capture && sim_stream_is_blocking(other)) {
            other->capture->invalid = true;
        }
    }
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/*
 * "If the local thread has an ongoing capture sequence that was not initiated with
 * CU_STREAM_CAPTURE_MODE_RELAXED [...], or if any other thread has a concurrent capture sequence
 * initiated with CU_STREAM_CAPTURE_MODE_GLOBAL, this thread is prohibited from potentially unsafe
 * API calls" - the global mode; thread-local ignores the others, relaxed all (cuda.h,
 * cuThreadExchangeStreamCaptureMode).
 */
static bool prohibits(const struct sim_capture *capture)
{
    if (capture->thread == sim_thread_number()) {
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_check_unsafe(void)
{
    CUresult status = CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    for (struct sim_capture *capture = first_capture; capture; capture = capture->next) {
        if (prohibits(capture)) {
            capture->invalid = true;
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return status;
}

static struct sim_capture *capture_of_id(uint64_t id)
{
    struct sim_capture *capture = first_capture;
    while (capture && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

CUresult sim_capture_check_event(CUevent event)
{
    if (event->capture_id == 0) {
        return CUDA_SUCCESS;
    }
    struct sim_capture *capture = capture_of_id(event->capture_id);
    if (capture) {
        capture->invalid = true;
    }
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sim_capture_invalidate_context(CUcontext context)
{
    CUresult status = CUDA_SUCCESS;
    for (CUcontext c = first_capture ? sim_first_context() : NULL; c; c = c->next) {
        for (CUstream s = sim_context_has(context, c) ? c->streams : NULL; s; s = s->next) {
            if (s->capture) {
                s->capture->invalid = true;
                status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
        }
    }
    return status;
}

/* ---- streams in a capture -----------------------------------------------------------------------
 */

static bool set_frontier(CUstream stream, const CUgraphNode *nodes, size_t count)
{
    if (count > stream->frontier_capacity) {
        CUgraphNode *longer = realloc(stream->frontier, count * sizeof *longer);
        if (!longer) {
            return false;
        }
        stream->frontier = longer;
        stream->frontier_capacity = count;
    }
    if (count) {
        memmove(stream->frontier, nodes, count * sizeof *nodes);
    }
    stream->frontier_count = count;
    return true;
}

static bool widen_frontier(CUstream stream, const CUgraphNode *nodes, size_t count)
{
    size_t before = stream->frontier_count, total = before;
    CUgraphNode *all = calloc(before + count + 1, sizeof *all);
    if (!all) {
        return false;
    }
    if (before) {
        memcpy(all, stream->frontier, before * sizeof *all);
    }
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < total && !known; j++) {
            known = all[j] == nodes[i];
        }
        if (!known) {
            all[total++] = nodes[i];
        }
    }
    bool done = set_frontier(stream, all, total);
    free(all);
    return done;
}

static void join(CUstream stream, struct sim_capture *capture)
{
    stream->capture = capture;
    stream->frontier_count = 0;
    stream->context->capturing_blocking += sim_stream_is_blocking(stream);
}

static void leave(CUstream stream)
{
    stream->context->capturing_blocking -= sim_stream_is_blocking(stream);
    stream->capture = NULL;
    stream->frontier_count = 0;
}

static void end(struct sim_capture *capture)
{
    for (CUcontext context = sim_first_context(); context; context = context->next) {
        for (CUstream stream = context->streams; stream; stream = stream->next) {
            if (stream->capture == capture) {
                leave(stream);
            }
        }
    }
    struct sim_capture **link = &first_capture;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    sim_graph_release(capture->graph);
    free(capture);
}

/* Without its origin stream a capture can no longer be ended. Any other stream just leaves it. */
void sim_capture_leave(CUstream stream)
{
    struct sim_capture *capture = stream->capture;
    if (capture->origin == stream) {
        end(capture);
    } else {
        capture->invalid = true; /* the stream's captured work stays unjoined */
        leave(stream);
    }
}

/* ---- nodes --------------------------------------------------------------------------------------
 */

static CUgraphNodeType type_of(enum sim_work_kind kind)
{
    switch (kind) {
    case SIM_WORK_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_WORK_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_WORK_SET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_WORK_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_WORK_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case SIM_WORK_WAIT:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case SIM_WORK_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case SIM_WORK_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    case SIM_WORK_WRITE_VALUE:
    case SIM_WORK_WAIT_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case SIM_WORK_CHILD:
        return CU_GRAPH_NODE_TYPE_GRAPH;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

/* A launch of an executable graph is captured as a child graph. */
static bool make_child(struct sim_work *work)
{
    struct sim_program *program = work->program;
    CUgraph child = sim_graph_clone(program->graph);
    if (!child) {
        return false;
    }
    sim_program_release(program);
    *work = (struct sim_work){.kind = SIM_WORK_CHILD, .graph = child};
    return true;
}

CUresult sim_capture_add(CUstream stream, struct sim_work *work)
{
    struct sim_capture *capture = stream->capture;
    if (capture->invalid) {
        sim_work_release(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (work->kind == SIM_WORK_GRAPH && !make_child(work)) {
        sim_work_release(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (work->kind == SIM_WORK_KERNEL) {
        work->launch.context = stream->context;
    }
    CUgraphNode node = sim_graph_add(capture->graph, type_of(work->kind), work, stream->frontier,
                                     stream->frontier_count);
    if (node && work->kind == SIM_WORK_CHILD) {
        work->graph->owner = node;
    }
    return node && set_frontier(stream, &node, 1) ? CUDA_SUCCESS
                                                  : invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult sim_capture_alloc(CUstream stream, size_t bytes, CUdeviceptr *address)
{
    struct sim_range *range;
    if (stream->capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    CUresult status = sim_graph_memory_new(stream->context->device, bytes, &range);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *address = (CUdeviceptr)range->address;
    struct sim_work work = {.kind = SIM_WORK_ALLOC,
                            .memory = {.address = *address, .range = range}};
    return sim_capture_add(stream, &work);
}

/* "must therefore be passed the address of a graph allocation" (cuda.h, cuMemFreeAsync). */
CUresult sim_capture_free(CUstream stream, struct sim_range *range)
{
    if (!range->graph_references) {
        return invalidate(stream->capture, CUDA_ERROR_INVALID_VALUE);
    }
    struct sim_work work = {.kind = SIM_WORK_FREE,
                            .memory = {.address = (CUdeviceptr)range->address}};
    return sim_capture_add(stream, &work);
}

/* ---- events
 * -------------------------------------------------------------------------------------- */

CUresult sim_capture_record(CUstream stream, CUevent event)
{
    struct sim_capture *capture = stream->capture;
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    CUgraphNode *frontier = calloc(stream->frontier_count + 1, sizeof *frontier);
    if (!frontier) {
        return invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (stream->frontier_count) {
        memcpy(frontier, stream->frontier, stream->frontier_count * sizeof *frontier);
    }
    free(event->frontier);
    event->frontier = frontier;
    event->frontier_count = stream->frontier_count;
    event->capture_id = capture->id;
    return CUDA_SUCCESS;
}

CUresult sim_capture_wait(CUstream stream, CUevent event)
{
    if (event->capture_id == 0) {
        /* "A dependency would have been created which crosses the capture sequence boundary" */
        return event->stream ? invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                             : CUDA_SUCCESS;
    }
    struct sim_capture *capture = capture_of_id(event->capture_id);
    if (!capture) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream->legacy) {
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = true;
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream->capture) {
        join(stream, capture);
    }
    return widen_frontier(stream, event->frontier, event->frontier_count)
               ? CUDA_SUCCESS
               : invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
}

/* ---- begin and end
 * -------------------------------------------------------------------------------- */

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph graph,
                      const CUgraphNode *dependencies, size_t count)
{
    SIM_STREAM(handle, stream);
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count && !dependencies)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->legacy) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream->capture) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    struct sim_capture *capture = calloc(1, sizeof *capture);
    CUgraph into = graph ? sim_graph_retain(graph) : sim_graph_new();
    if (!capture || !into || !set_frontier(stream, dependencies, count)) {
        if (into) {
            sim_graph_release(into);
        }
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct sim_capture){.next = first_capture,
                                    .id = ++last_capture_id,
                                    .graph = into,
                                    .into_graph = graph != NULL,
                                    .mode = mode,
                                    .thread = sim_thread_number(),
                                    .origin = stream};
    first_capture = capture;
    join(stream, capture);
    stream->frontier_count = count;
    return CUDA_SUCCESS;
}

static void mark_ancestors(CUgraphNode node)
{
    if (!node->mark) {
        node->mark = 1;
        for (size_t i = 0; i < node->dependency_count; i++) {
            mark_ancestors(node->dependencies[i]);
        }
    }
}

/* False: some stream's captured work does not lead back to the origin. */
static bool is_joined(const struct sim_capture *capture)
{
    for (CUgraphNode node = capture->graph->first; node; node = node->next) {
        node->mark = 0;
    }
    for (size_t i = 0; i < capture->origin->frontier_count; i++) {
        mark_ancestors(capture->origin->frontier[i]);
    }
    for (CUcontext context = sim_first_context(); context; context = context->next) {
        for (CUstream stream = context->streams; stream; stream = stream->next) {
            for (size_t i = 0; stream->capture == capture && i < stream->frontier_count; i++) {
                if (!stream->frontier[i]->mark) {
                    return false;
                }
            }
        }
    }
    return true;
}

static CUresult end_capture(CUstream handle, CUgraph *result)
{
    SIM_STREAM(handle, stream);
    struct sim_capture *capture = stream->capture;
    if (!capture) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (!result) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *result = NULL;
    if (capture->origin != stream) {
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread_number()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    CUresult status = capture->invalid     ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : is_joined(capture) ? CUDA_SUCCESS
                                           : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (status == CUDA_SUCCESS) {
        *result = capture->into_graph ? capture->graph : sim_graph_retain(capture->graph);
    }
    end(capture);
    return status;
}

SIM_STREAM_PAIR(cuStreamBeginCapture, (CUstream hStream),
                begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0));
SIM_STREAM_PAIR(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode),
                begin(hStream, mode, NULL, NULL, 0));
SIM_STREAM_PAIR(cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph),
                end_capture(hStream, phGraph));

static CUresult begin_into(CUgraph graph, CUstream stream, CUstreamCaptureMode mode,
                           const CUgraphNode *dependencies, size_t count)
{
    return sim_is_graph(graph) ? begin(stream, mode, graph, dependencies, count)
                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    SIM_JUDGE(hGraph, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuStreamBeginCaptureToGraph);
    return begin_into(hGraph, hStream, mode, dependencies, numDependencies);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode)
{
    SIM_JUDGE(hGraph, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuStreamBeginCaptureToGraph_ptsz);
    return begin_into(hGraph, sim_per_thread(hStream), mode, dependencies, numDependencies);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- status
 * --------------------------------------------------------------------------------------- */

struct capture_info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **dependencies;
    const CUgraphEdgeData **edges;
    size_t *count;
};

/* "If called on the legacy stream [...] while a blocking stream on the same context is capturing,
 * it returns CUDA_ERROR_STREAM_CAPTURE_IMPLICIT [...]. The blocking stream capture is not
 * invalidated." */
static CUresult get_info(CUstream handle, struct capture_info info)
{
    SIM_STREAM(handle, stream);
    if (!info.status) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->legacy && stream->context->capturing_blocking) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    const struct sim_capture *capture = stream->capture;
    *info.status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                   : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS; /* "All other data is only valid if the status is ACTIVE" */
    }
    if (info.id) {
        *info.id = capture->id;
    }
    if (info.graph) {
        *info.graph = capture->graph;
    }
    if (info.dependencies) {
        *info.dependencies = stream->frontier;
    }
    if (info.edges) {
        *info.edges = NULL; /* all edges are of the default kind */
    }
    if (info.count) {
        *info.count = stream->frontier_count;
    }
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus *captureStatus),
                get_info(hStream, (struct capture_info){.status = captureStatus}));
SIM_STREAM_PAIR(cuStreamGetCaptureInfo,
                (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
                get_info(hStream,
                         (struct capture_info){captureStatus_out, id_out, NULL, NULL, NULL, NULL}));
SIM_STREAM_PAIR(cuStreamGetCaptureInfo_v2,
                (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                 CUgraph *graph_out, const CUgraphNode **dependencies_out,
                 size_t *numDependencies_out),
                get_info(hStream,
                         (struct capture_info){captureStatus_out, id_out, graph_out,
                                               dependencies_out, NULL, numDependencies_out}));
SIM_STREAM_PAIR(cuStreamGetCaptureInfo_v3,
                (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                 CUgraph *graph_out, const CUgraphNode **dependencies_out,
                 const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out),
                get_info(hStream, (struct capture_info){captureStatus_out, id_out, graph_out,
                                                        dependencies_out, edgeData_out,
                                                        numDependencies_out}));

static CUresult update(CUstream handle, const CUgraphNode *nodes, size_t count, unsigned flags)
{
    SIM_STREAM(handle, stream);
    struct sim_capture *capture = stream->capture;
    if (!capture) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if ((count && !nodes) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!sim_is_node(nodes[i]) || nodes[i]->graph != capture->graph) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    bool done = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? set_frontier(stream, nodes, count)
                                                            : widen_frontier(stream, nodes, count);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_STREAM_PAIR(cuStreamUpdateCaptureDependencies,
                (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
                 unsigned int flags),
                update(hStream, dependencies, numDependencies, flags));
SIM_STREAM_PAIR(cuStreamUpdateCaptureDependencies_v2,
                (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                 size_t numDependencies, unsigned int flags),
                update(hStream, dependencies, numDependencies, flags));
