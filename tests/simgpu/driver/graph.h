/*
 * Graphs, executable graphs, and the capture of streams into graphs. All under sim_lock, except for
 * the run of an executable graph.
 */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "driver_api.h"
#include "object.h"
#include "work.h"

#include <stdbool.h>

struct sim_range;

struct CUgraphNode_st {
    struct sim_object object;
    CUgraph graph;
    CUgraphNode next;   /* in the graph, in the order of creation */
    CUgraphNode origin; /* in the graph that this one was cloned from, else NULL */
    uint64_t id;
    CUgraphNodeType type;
    struct sim_work work;
    CUgraphNode *dependencies;
    size_t dependency_count, dependency_capacity;
    unsigned mark; /* scratch of walks */
    CUlaunchAttributeValue attributes[16];
    struct sim_batch *batch; /* owned parameters of a batch of memory operations */
};

struct CUgraph_st {
    struct sim_object object;
    CUgraphNode first, last;
    size_t node_count;
    uint64_t next_node_id;
    bool destroyed;
    bool owns_memory; /* some allocation node is its own */
};

/* An executable graph: copies of the work of all nodes, in an order that respects dependencies. */
struct sim_step {
    CUgraphNode node; /* of the graph it came from; compared, never followed */
    bool enabled;
    CUgraphNodeType type;
    struct sim_work work;
};

struct CUgraphExec_st {
    struct sim_object object;
    bool destroyed;
    struct sim_device *device; /* charged for it */
    CUcontext context;
    unsigned long long flags;
    CUgraph graph; /* a clone: what GetNodes and Update compare with */
    struct sim_step *steps;
    size_t step_count;
};

CUgraph sim_graph_new(void);
CUgraph sim_graph_clone(CUgraph graph);
void sim_graph_release(CUgraph graph);

/* Takes over *work. NULL: out of memory, and the work is released. */
CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work,
                          const CUgraphNode *dependencies, size_t count);
bool sim_graph_add_dependency(CUgraphNode node, CUgraphNode on);

CUgraphExec sim_graph_exec_retain(CUgraphExec exec);
void sim_graph_exec_release(CUgraphExec exec);
/* All steps in order, with delays. Without sim_lock. */
void sim_graph_exec_run_unlocked(CUgraphExec exec);

/* ---- capture -------------------------------------------------------------------------------- */

/* Work of a capturing stream becomes a node behind the stream's frontier. Takes over *work. */
CUresult sim_capture_add(CUstream stream, struct sim_work *work, CUgraphNode *node);

/* For calls that a capturing stream does not allow: the capture is invalidated, and the error is
 * the one to return. */
CUresult sim_capture_refuse(CUstream stream);

/* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and the captures are invalidated, where `stream` is a legacy
 * stream with blocking streams of its context under capture; else CUDA_SUCCESS. */
CUresult sim_capture_forbids_legacy(CUstream stream);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and captures are invalidated, where the calling thread may
 * not make potentially unsafe calls now (cuThreadExchangeStreamCaptureMode). */
CUresult sim_capture_check_unsafe(void);

/* CUDA_ERROR_CAPTURED_EVENT, and the capture is invalidated, where the event's latest record was
 * captured. */
CUresult sim_capture_check_event(CUevent event);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures are invalidated, where a stream of the
 * context is under capture. */
CUresult sim_capture_invalidate_context(CUcontext context);

/* An event recorded in, or waited for by, a capturing stream. */
CUresult sim_capture_record(CUstream stream, CUevent event);
CUresult sim_capture_wait(CUstream stream, CUevent event);

/* cuMemAllocAsync and cuMemFreeAsync on a capturing stream: nodes. */
CUresult sim_capture_alloc(CUstream stream, size_t bytes, CUdeviceptr *address);
CUresult sim_capture_free(CUstream stream, struct sim_range *range);

/* cuMemFreeAsync outside capture of what a graph's launch has allocated. */
CUresult sim_graph_memory_free(struct sim_range *range, CUstream stream);

/* A capturing stream is destroyed. */
void sim_capture_leave(CUstream stream);

/* The graph that the stream is captured into; NULL: not capturing. */
CUgraph sim_capture_graph(CUstream stream);

#endif
