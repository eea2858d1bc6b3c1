/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps, for each instantiated graph, the pool addresses that its nodes name, by node, and a list
 * of all of them without duplicates, which a launch uses. */
#include "shim/policy/graph_heat.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/containers/chains.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/reach.h"
#include "shim/driver/driver.h"
#include "shim/policy/heat.h"
#include "shim/policy/parameters.h"
#include "shim/tables/options.h"

#define FIRST_ROOM  64u
#define TOUCHES_MAX ((size_t)1 << 16) /* of one graph */
#define LEVELS_MAX  8                 /* of child graphs in child graphs */

/* An address that a node touches. `node` is its index in the graph; what a child graph touches
 * counts for its node. */
struct touch {
    size_t node;
    uint64_t value;
};

struct touches {
    struct touch *at;
    size_t count, room;
};

struct graph_node {
    CUgraphNode name; /* as the program calls it */
    bool off;
};

struct graph {
    struct ms_link by_exec;
    struct graph_node *nodes;
    size_t node_count;
    struct touches touches;
    uint64_t *values; /* without duplicates, ascending; made from the touches at a launch */
    size_t value_count;
    bool stale; /* the touches, or which nodes are off, have changed since */
};

static struct ms_chains graphs = {.offset = offsetof(struct graph, by_exec)};

/* ---- touches */

/* The node whose touches are being read. */
struct touch_reading {
    struct touches *touches;
    size_t node;
};

static void add(void *ctx, uint64_t value)
{
    const struct touch_reading *reading = ctx;
    struct touches *touches = reading->touches;
    if (!ms_reach_may_hold(value) || touches->count == TOUCHES_MAX) {
        return;
    }
    if (touches->count == touches->room) {
        size_t room = touches->room != 0 ? touches->room * 2 : FIRST_ROOM;
        struct touch *wider = realloc(touches->at, room * sizeof *wider);
        if (wider == NULL) {
            return;
        }
        touches->at = wider;
        touches->room = room;
    }
    touches->at[touches->count++] = (struct touch){reading->node, value};
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Without host memory for the new list, launches go on with the list from before the change. */
static void make_values(struct graph *graph)
{
    const struct touches *touches = &graph->touches;
    uint64_t *values = malloc((touches->count + 1) * sizeof *values);
    size_t count = 0;
    size_t kept = 0;
    if (values == NULL) {
        return;
    }
    for (size_t i = 0; i < touches->count; i++) {
        values[count] = touches->at[i].value;
        count += !graph->nodes[touches->at[i].node].off;
    }
    qsort(values, count, sizeof *values, compare);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || values[kept - 1] != values[i]) {
            values[kept++] = values[i];
        }
    }
    free(graph->values);
    graph->values = values;
    graph->value_count = kept;
    graph->stale = false;
}

/* ---- nodes */

static void add_graph(struct touch_reading *reading, CUgraph graph, int level);

static void add_params(struct touch_reading *reading, const CUgraphNodeParams *params, int level)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (kernel->func == NULL && kernel->kern != NULL) {
            ms_parameters_note_kernel(kernel->kern);
        }
        ms_parameters_each(kernel->func != NULL ? (const void *)kernel->func : kernel->kern,
                           kernel->kernelParams, kernel->extra, add, reading);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        add(reading, params->memcpy.copyParams.dstDevice);
        add(reading, params->memcpy.copyParams.srcDevice);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        add(reading, params->memset.dst);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (level < LEVELS_MAX) {
            add_graph(reading, params->graph.graph, level + 1);
        }
        break;
    default:
        break;
    }
}

/* Skips what the driver does not let us read. */
static void add_node(struct touch_reading *reading, CUgraphNode node, int level)
{
    const struct ms_driver_functions *driver = ms_driver();
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUDA_KERNEL_NODE_PARAMS_v2 kernel = {0};
    CUDA_MEMSET_NODE_PARAMS_v1 set = {0};
    CUresult result = driver->cuGraphNodeGetType(node, &params.type);
    if (result != CUDA_SUCCESS) {
        return;
    }
    if (params.type == CU_GRAPH_NODE_TYPE_KERNEL && driver->cuGraphKernelNodeGetParams_v2 != NULL) {
        result = driver->cuGraphKernelNodeGetParams_v2(node, &kernel);
        memcpy(&params.kernel, &kernel, sizeof kernel); /* each version of the struct begins with
                                                           the one before */
    } else if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        result = driver->cuGraphMemcpyNodeGetParams(node, &params.memcpy.copyParams);
    } else if (params.type == CU_GRAPH_NODE_TYPE_MEMSET) {
        result = driver->cuGraphMemsetNodeGetParams(node, &set);
        params.memset.dst = set.dst;
    } else if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        result = driver->cuGraphChildGraphNodeGetGraph(node, &params.graph.graph);
    } else {
        return;
    }
    if (result == CUDA_SUCCESS) {
        add_params(reading, &params, level);
    }
}

/* Adds what a child graph touches. */
static void add_graph(struct touch_reading *reading, CUgraph graph, int level)
{
    size_t count;
    CUgraphNode *nodes = ms_driver_graph_nodes(graph, &count);
    for (size_t i = 0; nodes != NULL && i < count; i++) {
        add_node(reading, nodes[i], level);
    }
    free(nodes);
}

/* ---- graphs */

static void delete_graph(struct graph *graph)
{
    if (graph != NULL) {
        free(graph->nodes);
        free(graph->touches.at);
        free(graph->values);
        free(graph);
    }
}

/* Null if nothing can be read. */
static struct graph *read_graph(CUgraph from)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        return NULL;
    }
    CUgraphNode *names = ms_driver_graph_nodes(from, &graph->node_count);
    graph->nodes = names != NULL ? calloc(graph->node_count, sizeof *graph->nodes) : NULL;
    if (graph->nodes == NULL) {
        free(names);
        free(graph);
        return NULL;
    }
    graph->stale = true;
    for (size_t i = 0; i < graph->node_count; i++) {
        graph->nodes[i].name = names[i];
        add_node(&(struct touch_reading){&graph->touches, i}, names[i], 0);
    }
    free(names);
    return graph;
}

static struct graph *find(const void *exec)
{
    return ms_chains_find(&graphs, (uintptr_t)exec);
}

/* Stores what is known of the graph. Returns what was stored before, which the caller frees. */
static struct graph *exchange(const void *exec, struct graph *graph)
{
    ms_lock_acquire(MS_LOCK(GRAPH_HEAT));
    struct graph *before = find(exec);
    if (before != NULL) {
        ms_chains_remove(&graphs, before);
    }
    if (graph != NULL) {
        ms_chains_enter(&graphs, graph, (uintptr_t)exec);
    }
    ms_lock_release(MS_LOCK(GRAPH_HEAT));
    return before;
}

void ms_graph_heat_gone(const void *exec)
{
    delete_graph(exchange(exec, NULL));
}

void ms_graph_heat_made(const void *exec, CUgraph graph)
{
    if (ms_options()->spill) {
        delete_graph(exchange(exec, read_graph(graph)));
    }
}

void ms_graph_heat_updated(const void *exec, CUgraph graph)
{
    struct graph *now = ms_options()->spill ? read_graph(graph) : NULL;
    struct graph *before = exchange(exec, NULL);
    if (now != NULL && before != NULL && now->node_count <= before->node_count) {
        struct graph_node *nodes = before->nodes;
        before->nodes = now->nodes;
        now->nodes = nodes;
        now->node_count = before->node_count;
    }
    delete_graph(before);
    delete_graph(exchange(exec, now));
}

/* The index of a node in the graph; a new one for a node inside a child graph. SIZE_MAX: no
 * memory. */
static size_t place_of_node(struct graph *graph, CUgraphNode node)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].name == node) {
            return i;
        }
    }
    struct graph_node *more = realloc(graph->nodes, (graph->node_count + 1) * sizeof *more);
    if (more == NULL) {
        return SIZE_MAX;
    }
    graph->nodes = more;
    graph->nodes[graph->node_count] = (struct graph_node){.name = node};
    return graph->node_count++;
}

void ms_graph_heat_set(const void *exec, CUgraphNode node, const CUgraphNodeParams *params)
{
    if (!ms_options()->spill) {
        return;
    }
    struct touches fresh = {0};
    add_params(&(struct touch_reading){&fresh, 0}, params, 0);
    ms_lock_acquire(MS_LOCK(GRAPH_HEAT));
    struct graph *graph = find(exec);
    size_t place = graph != NULL ? place_of_node(graph, node) : SIZE_MAX;
    if (place != SIZE_MAX) {
        struct touches *touches = &graph->touches;
        size_t kept = 0;
        for (size_t i = 0; i < touches->count; i++) {
            if (touches->at[i].node != place) {
                touches->at[kept++] = touches->at[i];
            }
        }
        touches->count = kept;
        for (size_t i = 0; i < fresh.count; i++) {
            add(&(struct touch_reading){touches, place}, fresh.at[i].value);
        }
        graph->stale = true;
    }
    ms_lock_release(MS_LOCK(GRAPH_HEAT));
    free(fresh.at);
}

void ms_graph_heat_enabled(const void *exec, CUgraphNode node, bool on)
{
    ms_lock_acquire(MS_LOCK(GRAPH_HEAT));
    struct graph *graph = find(exec);
    size_t place = graph != NULL ? place_of_node(graph, node) : SIZE_MAX;
    if (place != SIZE_MAX) {
        graph->nodes[place].off = !on;
        graph->stale = true;
    }
    ms_lock_release(MS_LOCK(GRAPH_HEAT));
}

void ms_graph_heat_launched(const void *exec)
{
    ms_lock_acquire(MS_LOCK(GRAPH_HEAT));
    struct graph *graph = find(exec);
    if (graph != NULL) {
        if (graph->stale) {
            make_values(graph);
        }
        ms_heat_touch_each(graph->values, graph->value_count);
    }
    ms_lock_release(MS_LOCK(GRAPH_HEAT));
}
