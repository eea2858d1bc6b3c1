/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the application that graphs keep alive. See graph_user.h. */
#include "graph_user.h"

#include "context.h"
#include "entry.h"
#include "graph.h"
#include "graph_node.h"
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct sim_user_reference {
    struct sim_user_reference *next;
    CUuserObject user;
    uint64_t count;
};

/* ---- user objects ------------------------------------------------------------------------------
 */

struct destruction {
    CUhostFn function;
    void *pointer;
};

static void *destroy_user(void *argument)
{
    struct destruction destruction = *(struct destruction *)argument;
    free(argument);
    sim_call_host_function(destruction.function, destruction.pointer, false);
    return NULL;
}

/* "the destructor [...] will be executed [...] asynchronously" (in substance, cuda.h), on a thread
 * of the driver, because whoever drops the last reference holds the lock. */
static void drop(CUuserObject user, uint64_t count)
{
    user->count -= count;
    if (user->count) {
        return;
    }
    struct destruction *destruction = malloc(sizeof *destruction);
    pthread_t thread;
    if (destruction) {
        *destruction = (struct destruction){user->destroy, user->pointer};
        if (pthread_create(&thread, NULL, destroy_user, destruction) == 0) {
            pthread_detach(thread);
        } else {
            free(destruction);
        }
    }
    sim_object_free(&sim_users, user);
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags)
{
    SIM_ENTER(cuUserObjectCreate);
    if (!object_out || !destroy || initialRefcount == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUuserObject user = sim_object_new(&sim_users);
    if (!user) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    user->count = initialRefcount;
    user->destroy = destroy;
    user->pointer = ptr;
    *object_out = user;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SIM_ENTER(cuUserObjectRetain);
    if (!sim_object_is(&sim_users, object) || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    object->count += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SIM_ENTER(cuUserObjectRelease);
    if (!sim_object_is(&sim_users, object) || count == 0 || count > object->count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    drop(object, count);
    return CUDA_SUCCESS;
}

static bool add_reference(CUgraph graph, CUuserObject user, uint64_t count)
{
    struct sim_user_reference *reference = graph->users;
    while (reference && reference->user != user) {
        reference = reference->next;
    }
    if (!reference) {
        reference = calloc(1, sizeof *reference);
        if (!reference) {
            return false;
        }
        reference->user = user;
        reference->next = graph->users;
        graph->users = reference;
    }
    reference->count += count;
    return true;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    SIM_ENTER(cuGraphRetainUserObject);
    if (!sim_is_graph(graph) || !sim_object_is(&sim_users, object) || count == 0 ||
        (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!add_reference(graph, object, count)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* With the flag the caller's references become the graph's. */
    object->count += flags & CU_GRAPH_USER_OBJECT_MOVE ? 0 : count;
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SIM_ENTER(cuGraphReleaseUserObject);
    if (!sim_is_graph(graph) || !sim_object_is(&sim_users, object)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (struct sim_user_reference **link = &graph->users; *link; link = &(*link)->next) {
        struct sim_user_reference *reference = *link;
        if (reference->user == object && reference->count >= count) {
            reference->count -= count;
            if (reference->count == 0) {
                *link = reference->next;
                free(reference);
            }
            drop(object, count);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

bool sim_graph_copy_users(CUgraph to, CUgraph from)
{
    for (struct sim_user_reference *at = from->users; at; at = at->next) {
        if (!add_reference(to, at->user, at->count)) {
            return false;
        }
        at->user->count += at->count;
    }
    return true;
}

void sim_graph_release_users(CUgraph graph)
{
    while (graph->users) {
        struct sim_user_reference *reference = graph->users;
        graph->users = reference->next;
        drop(reference->user, reference->count);
        free(reference);
    }
}

/* ---- conditions -------------------------------------------------------------------------------
 */

struct sim_condition *sim_condition_find(CUgraph graph, CUgraphConditionalHandle handle)
{
    for (struct sim_condition *condition = graph->conditions; condition;
         condition = condition->next) {
        if (condition->id == handle) {
            return condition;
        }
    }
    return NULL;
}

void sim_condition_release(struct sim_condition *condition)
{
    if (--condition->references == 0) {
        free(condition);
    }
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags)
{
    SIM_ENTER(cuGraphConditionalHandleCreate);
    static uint64_t last_id;
    if (!pHandle_out || !sim_is_graph(hGraph) ||
        (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_condition *condition = calloc(1, sizeof *condition);
    if (!condition) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    condition->references = 1;
    condition->id = ++last_id;
    condition->value = flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? defaultLaunchValue : 0;
    condition->next = hGraph->conditions;
    hGraph->conditions = condition;
    *pHandle_out = condition->id;
    return CUDA_SUCCESS;
}

CUresult sim_add_conditional(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, CUDA_CONDITIONAL_NODE_PARAMS *parameters)
{
    struct sim_condition *condition = sim_condition_find(graph, parameters->handle);
    if (!condition || parameters->size == 0 || parameters->size > 64) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    CUgraph *bodies = calloc(parameters->size, sizeof *bodies);
    CUgraphNode node =
        bodies ? sim_graph_add(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL, &work, dependencies, count)
               : NULL;
    if (!node) {
        free(bodies);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->bodies = bodies;
    node->condition = condition;
    condition->references++;
    node->condition_type = parameters->type;
    for (; node->body_count < parameters->size; node->body_count++) {
        bodies[node->body_count] = sim_graph_new();
        if (!bodies[node->body_count]) {
            return CUDA_ERROR_OUT_OF_MEMORY; /* the node remains, with fewer bodies */
        }
        bodies[node->body_count]->owner = node;
    }
    parameters->phGraph_out = bodies;
    *result = node;
    return CUDA_SUCCESS;
}
