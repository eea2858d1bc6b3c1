/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and executable graphs of the simulated driver. See graph.h. */
#include "graph.h"

#include "device.h"
#include "entry.h"
#include "memory.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sim_is_graph(CUgraph graph)
{
    return sim_object_is(&sim_graphs, graph);
}

bool sim_is_node(CUgraphNode node)
{
    return sim_object_is(&sim_graph_nodes, node);
}

/* ---- life ------------------------------------------------------------------------------------ */

CUgraph sim_graph_new(void)
{
    return sim_object_new(&sim_graphs);
}

CUgraph sim_graph_retain(CUgraph graph)
{
    graph->object.references++;
    return graph;
}

static void free_node(CUgraphNode node)
{
    sim_work_release(&node->work);
    for (unsigned i = 0; i < node->body_count; i++) {
        sim_graph_release(node->bodies[i]);
    }
    if (node->condition) {
        sim_condition_release(node->condition);
    }
    free(node->bodies);
    free(node->attributes);
    free(node->dependencies);
    sim_object_free(&sim_graph_nodes, node);
}

void sim_graph_release(CUgraph graph)
{
    if (--graph->object.references) {
        return;
    }
    for (CUgraphNode node = graph->first, next; node; node = next) {
        next = node->next;
        free_node(node);
    }
    while (graph->conditions) {
        struct sim_condition *condition = graph->conditions;
        graph->conditions = condition->next;
        sim_condition_release(condition);
    }
    sim_graph_release_users(graph);
    sim_object_free(&sim_graphs, graph);
}

bool sim_graph_add_dependency(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->dependency_count; i++) {
        if (node->dependencies[i] == on) {
            return true;
        }
    }
    if (node->dependency_count == node->dependency_capacity) {
        size_t capacity = node->dependency_capacity ? node->dependency_capacity * 2 : 2;
        CUgraphNode *longer = realloc(node->dependencies, capacity * sizeof *longer);
        if (!longer) {
            return false;
        }
        node->dependencies = longer;
        node->dependency_capacity = capacity;
    }
    node->dependencies[node->dependency_count++] = on;
    return true;
}

CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work,
                          const CUgraphNode *dependencies, size_t count)
{
    CUgraphNode node = sim_object_new(&sim_graph_nodes);
    if (!node) {
        sim_work_release(work);
        return NULL;
    }
    node->graph = graph;
    node->type = type;
    node->work = *work;
    for (size_t i = 0; i < count; i++) {
        if (!sim_graph_add_dependency(node, dependencies[i])) {
            free_node(node);
            return NULL;
        }
    }
    if (graph->last) {
        graph->last->next = node;
    } else {
        graph->first = node;
    }
    graph->last = node;
    graph->node_count++;
    return node;
}

/* ---- clones ---------------------------------------------------------------------------------- */

static bool clone_attributes(CUgraphNode to, const struct CUgraphNode_st *from)
{
    if (!from->attributes) {
        return true;
    }
    to->attributes = calloc(SIM_NODE_ATTRIBUTES, sizeof *to->attributes);
    if (to->attributes) {
        memcpy(to->attributes, from->attributes, SIM_NODE_ATTRIBUTES * sizeof *to->attributes);
    }
    return to->attributes != NULL;
}

static bool clone_bodies(CUgraphNode to, const struct CUgraphNode_st *from)
{
    if (!from->condition) {
        return true;
    }
    to->condition = from->condition;
    to->condition->references++;
    to->condition_type = from->condition_type;
    to->bodies = calloc(from->body_count, sizeof *to->bodies);
    for (; to->bodies && to->body_count < from->body_count; to->body_count++) {
        to->bodies[to->body_count] = sim_graph_clone(from->bodies[to->body_count]);
        if (!to->bodies[to->body_count]) {
            return false;
        }
    }
    return to->bodies != NULL;
}

/* During cloning, an original's mark is its index, and `copies` maps that to its clone. */
static bool clone_nodes(CUgraph to, CUgraph from, CUgraphNode *copies)
{
    unsigned number = 0;
    for (CUgraphNode node = from->first; node; node = node->next) {
        struct sim_work work;
        if (sim_work_copy(&work, &node->work) != CUDA_SUCCESS) {
            return false;
        }
        CUgraphNode copy = sim_graph_add(to, node->type, &work, NULL, 0);
        if (!copy) {
            return false;
        }
        copy->origin = node;
        copy->disabled = node->disabled;
        node->mark = number;
        copies[number++] = copy;
        if (!clone_attributes(copy, node) || !clone_bodies(copy, node)) {
            return false;
        }
    }
    for (CUgraphNode node = from->first; node; node = node->next) {
        for (size_t i = 0; i < node->dependency_count; i++) {
            if (!sim_graph_add_dependency(copies[node->mark],
                                          copies[node->dependencies[i]->mark])) {
                return false;
            }
        }
    }
    return true;
}

CUgraph sim_graph_clone(CUgraph graph)
{
    CUgraph clone = sim_graph_new();
    CUgraphNode *copies = calloc(graph->node_count + 1, sizeof(CUgraphNode));
    if (clone &&
        (!copies || !clone_nodes(clone, graph, copies) || !sim_graph_copy_users(clone, graph))) {
        sim_graph_release(clone);
        clone = NULL;
    }
    free(copies);
    return clone;
}

CUgraphNode sim_graph_find(CUgraph clone, CUgraphNode node)
{
    for (CUgraphNode at = clone->first; at; at = at->next) {
        if (at->origin == node) {
            return at;
        }
        CUgraphNode inner = NULL;
        if (at->work.kind == SIM_WORK_CHILD) {
            inner = sim_graph_find(at->work.graph, node);
        }
        for (unsigned i = 0; i < at->body_count && !inner; i++) {
            inner = sim_graph_find(at->bodies[i], node);
        }
        if (inner) {
            return inner;
        }
    }
    return NULL;
}

/* ---- order: Kahn's algorithm; marks count the dependencies that are not placed yet --------------
 */

CUgraphNode *sim_graph_order(CUgraph graph)
{
    CUgraphNode *order = calloc(graph->node_count + 1, sizeof *order);
    CUgraphNode *dependents = NULL;
    size_t edges = 0, placed = 0, count = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        edges += node->dependency_count;
        node->mark = (unsigned)count++;
    }
    /* The edges, grouped by the node at which they start. */
    size_t *start = calloc(graph->node_count + 2, sizeof *start);
    unsigned *waiting = calloc(graph->node_count + 1, sizeof *waiting);
    dependents = calloc(edges + 1, sizeof *dependents);
    if (!order || !start || !waiting || !dependents) {
        free(order);
        order = NULL;
    }
    for (CUgraphNode node = order ? graph->first : NULL; node; node = node->next) {
        for (size_t i = 0; i < node->dependency_count; i++) {
            start[node->dependencies[i]->mark + 2]++;
        }
        waiting[node->mark] = (unsigned)node->dependency_count;
        if (node->dependency_count == 0) {
            order[placed++] = node;
        }
    }
    for (size_t i = 2; order && i < graph->node_count + 2; i++) {
        start[i] += start[i - 1];
    }
    for (CUgraphNode node = order ? graph->first : NULL; node; node = node->next) {
        for (size_t i = 0; i < node->dependency_count; i++) {
            dependents[start[node->dependencies[i]->mark + 1]++] = node;
        }
    }
    for (size_t at = 0; order && at < placed; at++) {
        unsigned from = order[at]->mark;
        for (size_t i = start[from]; i < start[from + 1]; i++) {
            if (--waiting[dependents[i]->mark] == 0) {
                order[placed++] = dependents[i];
            }
        }
    }
    free(start);
    free(waiting);
    free(dependents);
    if (order && placed != graph->node_count) {
        free(order);
        return NULL;
    }
    return order;
}

/* ---- memory ---------------------------------------------------------------------------------- */

CUresult sim_graph_memory_new(struct sim_device *device, size_t bytes, struct sim_range **result)
{
    CUmemoryPool pool = sim_pool_graph(device);
    CUresult status = pool ? sim_pool_alloc(pool, bytes, NULL, result) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) {
        (*result)->graph_references = 1;
    }
    return status;
}

void sim_graph_memory_retain(struct sim_range *range)
{
    range->graph_references++;
}

/* "Graph destruction will not automatically free any live graph-allocated memory" (CUDA programming
 * guide, graph memory nodes): it becomes ordinary memory of its pool. */
void sim_graph_memory_release(struct sim_range *range)
{
    if (--range->graph_references == 0 && !range->graph_live) {
        sim_pool_free_now(range);
    }
}

/* ---- the graph functions of the driver API -----------------------------------------------------
 */

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    SIM_ENTER(cuGraphCreate);
    if (!phGraph || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phGraph = sim_graph_new();
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    SIM_ENTER(cuGraphDestroy);
    if (!sim_is_graph(hGraph) || hGraph->owner) {
        return CUDA_ERROR_INVALID_VALUE; /* child graphs and bodies belong to their node */
    }
    sim_object_destroy(&hGraph->object);
    sim_graph_release(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    SIM_ENTER(cuGraphClone);
    if (!phGraphClone || !sim_is_graph(originalGraph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phGraphClone = sim_graph_clone(originalGraph);
    return *phGraphClone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph)
{
    SIM_ENTER(cuGraphNodeFindInClone);
    if (!phNode || !sim_is_node(hOriginalNode) || !sim_is_graph(hClonedGraph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phNode = sim_graph_find(hClonedGraph, hOriginalNode);
    return *phNode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The common part of the listing functions: "nodes may be NULL, in which case this function will
 * return the number of nodes in numNodes. [...] If numNodes is higher than the actual number of
 * nodes, the remaining entries in nodes will be set to NULL, and the number [...] will be returned"
 * (cuda.h). */
struct listing {
    CUgraphNode *nodes;
    size_t capacity, count;
};

static void list_node(struct listing *listing, CUgraphNode node)
{
    if (listing->nodes && listing->count < listing->capacity) {
        listing->nodes[listing->count] = node;
    }
    listing->count++;
}

static CUresult end_listing(struct listing *listing, size_t *count)
{
    for (size_t i = listing->count; listing->nodes && i < listing->capacity; i++) {
        listing->nodes[i] = NULL;
    }
    *count =
        listing->nodes && listing->count > listing->capacity ? listing->capacity : listing->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    SIM_ENTER(cuGraphGetNodes);
    if (!sim_is_graph(hGraph) || !numNodes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct listing listing = {nodes, *numNodes, 0};
    for (CUgraphNode node = hGraph->first; node; node = node->next) {
        list_node(&listing, node);
    }
    return end_listing(&listing, numNodes);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    SIM_ENTER(cuGraphGetRootNodes);
    if (!sim_is_graph(hGraph) || !numRootNodes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct listing listing = {rootNodes, *numRootNodes, 0};
    for (CUgraphNode node = hGraph->first; node; node = node->next) {
        if (node->dependency_count == 0) {
            list_node(&listing, node);
        }
    }
    return end_listing(&listing, numRootNodes);
}

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                          size_t *count)
{
    if (!sim_is_graph(graph) || !count || !from != !to) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct listing sources = {from, *count, 0}, targets = {to, *count, 0};
    for (CUgraphNode node = graph->first; node; node = node->next) {
        for (size_t i = 0; i < node->dependency_count; i++) {
            list_node(&sources, node->dependencies[i]);
            list_node(&targets, node);
        }
    }
    if (data) {
        memset(data, 0, *count * sizeof *data);
    }
    size_t unused = *count;
    end_listing(&targets, &unused);
    return end_listing(&sources, count);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    SIM_ENTER(cuGraphGetEdges);
    return get_edges(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges)
{
    SIM_ENTER(cuGraphGetEdges_v2);
    return get_edges(hGraph, from, to, edgeData, numEdges);
}

static CUresult get_dependencies(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                 size_t *count)
{
    if (!sim_is_node(node) || !count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct listing listing = {nodes, *count, 0};
    for (size_t i = 0; i < node->dependency_count; i++) {
        list_node(&listing, node->dependencies[i]);
    }
    if (data) {
        memset(data, 0, *count * sizeof *data);
    }
    return end_listing(&listing, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies)
{
    SIM_ENTER(cuGraphNodeGetDependencies);
    return get_dependencies(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    SIM_ENTER(cuGraphNodeGetDependencies_v2);
    return get_dependencies(hNode, dependencies, edgeData, numDependencies);
}

static CUresult get_dependents(CUgraphNode of, CUgraphNode *nodes, CUgraphEdgeData *data,
                               size_t *count)
{
    if (!sim_is_node(of) || !count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct listing listing = {nodes, *count, 0};
    for (CUgraphNode node = of->graph->first; node; node = node->next) {
        for (size_t i = 0; i < node->dependency_count; i++) {
            if (node->dependencies[i] == of) {
                list_node(&listing, node);
            }
        }
    }
    if (data) {
        memset(data, 0, *count * sizeof *data);
    }
    return end_listing(&listing, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes)
{
    SIM_ENTER(cuGraphNodeGetDependentNodes);
    return get_dependents(hNode, dependentNodes, NULL, numDependentNodes);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    SIM_ENTER(cuGraphNodeGetDependentNodes_v2);
    return get_dependents(hNode, dependentNodes, edgeData, numDependentNodes);
}

static bool remove_dependency(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->dependency_count; i++) {
        if (node->dependencies[i] == on) {
            node->dependencies[i] = node->dependencies[--node->dependency_count];
            return true;
        }
    }
    return false;
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                             size_t count, bool add)
{
    if (!sim_is_graph(graph) || (count && (!from || !to))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!sim_is_node(from[i]) || !sim_is_node(to[i]) || from[i]->graph != graph ||
            to[i]->graph != graph || from[i] == to[i]) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (add && !sim_graph_add_dependency(to[i], from[i])) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (!add && !remove_dependency(to[i], from[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies)
{
    SIM_ENTER(cuGraphAddDependencies);
    return change_edges(hGraph, from, to, numDependencies, true);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    SIM_ENTER(cuGraphAddDependencies_v2);
    return change_edges(hGraph, from, to, numDependencies, true);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    SIM_ENTER(cuGraphRemoveDependencies);
    return change_edges(hGraph, from, to, numDependencies, false);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies)
{
    SIM_ENTER(cuGraphRemoveDependencies_v2);
    return change_edges(hGraph, from, to, numDependencies, false);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    SIM_ENTER(cuGraphDestroyNode);
    if (!sim_is_node(hNode)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* "Memory allocation and free nodes [...] cannot be removed" (in substance, cuda.h). */
    if (hNode->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || hNode->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUgraph graph = hNode->graph;
    CUgraphNode before = NULL;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        remove_dependency(node, hNode);
        before = node->next == hNode ? node : before;
    }
    if (before) {
        before->next = hNode->next;
    } else {
        graph->first = hNode->next;
    }
    graph->last = graph->last == hNode ? before : graph->last;
    graph->node_count--;
    free_node(hNode);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    SIM_ENTER(cuGraphNodeGetType);
    if (!sim_is_node(hNode) || !type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *type = hNode->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    SIM_ENTER(cuGraphDebugDotPrint);
    FILE *file = sim_is_graph(hGraph) && path ? fopen(path, "we") : NULL;
    if (!file) {
        return sim_is_graph(hGraph) && path ? CUDA_ERROR_OPERATING_SYSTEM
                                            : CUDA_ERROR_INVALID_VALUE;
    }
    fprintf(file, "digraph simgpu {\n");
    for (CUgraphNode node = hGraph->first; node; node = node->next) {
        fprintf(file, "  \"%p\" [label=\"type %d\"];\n", (void *)node, (int)node->type);
        for (size_t i = 0; i < node->dependency_count; i++) {
            fprintf(file, "  \"%p\" -> \"%p\";\n", (void *)node->dependencies[i], (void *)node);
        }
    }
    fprintf(file, "}\n");
    return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
