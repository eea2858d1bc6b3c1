/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and executable graphs. All under sim_lock, except running a program. */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "driver_api.h"
#include "object.h"
#include "work.h"

#include <stdbool.h>

#define SIM_NODE_ATTRIBUTES 32

struct sim_device;
struct sim_range;

/* The value that a conditional node checks when it runs. */
struct sim_condition {
    struct sim_condition *next; /* in its graph */
    unsigned references;
    uint64_t id;
    unsigned value;
};

struct CUgraphNode_st {
    struct sim_object object;
    CUgraph graph;
    CUgraphNode next;   /* in the graph, in the order of creation */
    CUgraphNode origin; /* the node that this one was cloned from, or NULL */
    CUgraphNodeType type;
    bool disabled;
    struct sim_work work;
    CUgraphNode *dependencies;
    size_t dependency_count, dependency_capacity;
    unsigned mark;                      /* scratch for walks */
    CUlaunchAttributeValue *attributes; /* an array of SIM_NODE_ATTRIBUTES, or NULL */
    struct sim_condition *condition;    /* of conditional nodes; referenced */
    CUgraphConditionalNodeType condition_type;
    unsigned body_count;
    CUgraph *bodies; /* owned */
};

struct sim_user_reference;

struct CUgraph_st {
    struct sim_object object;
    CUgraphNode first, last;
    size_t node_count;
    struct sim_condition *conditions;
    struct sim_user_reference *users;
    CUgraphNode owner; /* the node to which this graph belongs, or NULL */
};

/* What an executable graph runs: a clone of the graph it was made from, and the order of its nodes.
 * Launches that wait in a stream hold the program as it was when they were submitted; a change
 * makes a new one. */
struct sim_program {
    unsigned references;
    CUgraph graph;
    CUgraphNode *order;
    size_t count;
    bool needs_marks; /* some node records an event, or allocates or frees memory */
};

struct CUgraphExec_st {
    struct sim_object object;
    struct sim_device *device; /* the device that is charged for it */
    unsigned long long flags;
    struct sim_program *program;
};

/* ---- graph.c ----------------------------------------------------------------------------------
 */

bool sim_is_graph(CUgraph graph);
bool sim_is_node(CUgraphNode node);

CUgraph sim_graph_new(void);
CUgraph sim_graph_clone(CUgraph graph);
CUgraph sim_graph_retain(CUgraph graph);
void sim_graph_release(CUgraph graph);

/* Adds a node. Takes over *work, and releases it on failure. NULL: out of memory. */
CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work,
                          const CUgraphNode *dependencies, size_t count);
bool sim_graph_add_dependency(CUgraphNode node, CUgraphNode on);

/* The nodes in an order that respects dependencies; the caller frees it. NULL: a cycle, or out of
 * memory. */
CUgraphNode *sim_graph_order(CUgraph graph);

/* The clone of `node`, also in child graphs and bodies. */
CUgraphNode sim_graph_find(CUgraph clone, CUgraphNode node);

/* ---- graph_exec.c -----------------------------------------------------------------------------
 */

struct sim_program *sim_program_retain(struct sim_program *program);
void sim_program_release(struct sim_program *program);
/* Runs all nodes in order, with delays. Without sim_lock. */
void sim_program_run(const struct sim_program *program);

/* ---- graph_user.c: conditions and user objects -------------------------------------------------
 */

struct sim_condition *sim_condition_find(CUgraph graph, CUgraphConditionalHandle handle);
void sim_condition_release(struct sim_condition *condition);
/* The clone holds the same user objects as its original. False: out of memory. */
bool sim_graph_copy_users(CUgraph to, CUgraph from);
void sim_graph_release_users(CUgraph graph);

/* ---- memory of graphs: a range lives while some node that allocates it does. At first it is an
 * address alone ("CUDA assigns virtual addresses for the graph allocation at node creation time",
 * CUDA programming guide, graph memory nodes); an upload or a launch gives it memory. -------------
 */

CUresult sim_graph_memory_new(struct sim_device *device, size_t bytes, struct sim_range **result);
void sim_graph_memory_retain(struct sim_range *range);
void sim_graph_memory_release(struct sim_range *range);

#endif
