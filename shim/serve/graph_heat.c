/* For each instantiated graph the addresses of the pool's that its nodes name, each once. */
#include "shim/serve/graph_heat.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/options.h"
#include "shim/serve/driver.h"
#include "shim/serve/heat.h"
#include "shim/serve/parameters.h"

#define BUCKETS    64u
#define FIRST_ROOM 64u
#define VALUES_MAX ((size_t)1 << 16) /* of one graph */
#define LEVELS_MAX 8                 /* of child graphs in child graphs */

struct values {
    uint64_t *at;
    size_t count, room;
};

struct graph {
    const void *exec;
    struct graph *next;
    struct values values;
};

static struct graph *graphs[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- values */

static void add(void *ctx, uint64_t value)
{
    struct values *values = ctx;
    if (!ms_heat_may_hold(value) || values->count == VALUES_MAX) {
        return;
    }
    if (values->count == values->room) {
        size_t room = values->room != 0 ? values->room * 2 : FIRST_ROOM;
        uint64_t *wider = realloc(values->at, room * sizeof *wider);
        if (wider == NULL) {
            return;
        }
        values->at = wider;
        values->room = room;
    }
    values->at[values->count++] = value;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void keep_each_once(struct values *values)
{
    size_t kept = 0;
    if (values->count > 1) {
        qsort(values->at, values->count, sizeof *values->at, compare);
    }
    for (size_t i = 0; i < values->count; i++) {
        if (kept == 0 || values->at[kept - 1] != values->at[i]) {
            values->at[kept++] = values->at[i];
        }
    }
    values->count = kept;
}

/* ---- nodes */

static void add_kernel(struct values *values, const CUDA_KERNEL_NODE_PARAMS_v2 *node)
{
    if (node->func == NULL && node->kern != NULL) {
        ms_parameters_note_kernel(node->kern);
    }
    ms_parameters_each(node->func != NULL ? (const void *)node->func : node->kern,
                       node->kernelParams, node->extra, add, values);
}

static void add_graph(struct values *values, CUgraph graph, int level);

/* What cannot be read is not read. */
static void add_node(struct values *values, CUgraphNode node, int level)
{
    const struct ms_driver_functions *driver = ms_driver();
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUDA_KERNEL_NODE_PARAMS_v2 kernel = {0};
    CUDA_MEMCPY3D_v2 copy = {0};
    CUDA_MEMSET_NODE_PARAMS_v1 set = {0};
    CUgraph child = NULL;
    if (driver->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
        return;
    }
    if (type == CU_GRAPH_NODE_TYPE_KERNEL && driver->cuGraphKernelNodeGetParams_v2 != NULL &&
        driver->cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_SUCCESS) {
        add_kernel(values, &kernel);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY &&
               driver->cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS) {
        add(values, copy.dstDevice);
        add(values, copy.srcDevice);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET &&
               driver->cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS) {
        add(values, set.dst);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && level < LEVELS_MAX &&
               driver->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        add_graph(values, child, level + 1);
    }
}

static void add_graph(struct values *values, CUgraph graph, int level)
{
    const struct ms_driver_functions *driver = ms_driver();
    size_t count = 0;
    if (driver->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0) {
        return;
    }
    CUgraphNode *nodes = calloc(count, sizeof(CUgraphNode));
    if (nodes != NULL && driver->cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count; i++) {
            add_node(values, nodes[i], level);
        }
    }
    free(nodes);
}

/* ---- graphs */

static struct graph **place_of(const void *exec)
{
    uint64_t hash = (uint64_t)(uintptr_t)exec * UINT64_C(0x9e3779b97f4a7c15);
    struct graph **place = &graphs[(hash >> 32) % BUCKETS];
    while (*place != NULL && (*place)->exec != exec) {
        place = &(*place)->next;
    }
    return place;
}

void ms_graph_heat_gone(const void *exec)
{
    pthread_mutex_lock(&lock);
    struct graph **place = place_of(exec);
    struct graph *gone = *place;
    if (gone != NULL) {
        *place = gone->next;
    }
    pthread_mutex_unlock(&lock);
    if (gone != NULL) {
        free(gone->values.at);
        free(gone);
    }
}

void ms_graph_heat_made(const void *exec, CUgraph graph)
{
    if (!ms_options()->spill) {
        return;
    }
    struct values values = {0};
    ms_graph_heat_gone(exec);
    add_graph(&values, graph, 0);
    keep_each_once(&values);
    struct graph *made = values.count != 0 ? malloc(sizeof *made) : NULL;
    if (made == NULL) {
        free(values.at);
        return;
    }
    *made = (struct graph){.exec = exec, .values = values};
    pthread_mutex_lock(&lock);
    struct graph **place = place_of(exec);
    made->next = *place;
    *place = made;
    pthread_mutex_unlock(&lock);
}

void ms_graph_heat_kernel(const void *exec, const CUDA_KERNEL_NODE_PARAMS_v2 *node)
{
    pthread_mutex_lock(&lock);
    struct graph *graph = *place_of(exec);
    if (graph != NULL) {
        add_kernel(&graph->values, node);
        keep_each_once(&graph->values);
    }
    pthread_mutex_unlock(&lock);
}

void ms_graph_heat_launched(const void *exec)
{
    pthread_mutex_lock(&lock);
    const struct graph *graph = *place_of(exec);
    if (graph != NULL) {
        ms_heat_look_at_each(graph->values.at, graph->values.count);
    }
    pthread_mutex_unlock(&lock);
}
