/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: made, changed, launched. */
#include "capture.h"
#include "context.h"
#include "copy.h"
#include "device.h"
#include "entry.h"
#include "event.h"
#include "graph.h"
#include "graph_node.h"
#include "memory.h"
#include "pool.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- programs -------------------------------------------------------------------------------- */

static bool needs_marks(CUgraph graph)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->work.kind == SIM_WORK_RECORD || node->work.kind == SIM_WORK_ALLOC ||
            node->work.kind == SIM_WORK_FREE ||
            (node->work.kind == SIM_WORK_CHILD && needs_marks(node->work.graph))) {
            return true;
        }
    }
    return false;
}

/* Takes over the graph. NULL: a cycle, or out of memory. */
static struct sim_program *program_of(CUgraph graph)
{
    struct sim_program *program = graph ? calloc(1, sizeof *program) : NULL;
    CUgraphNode *order = program ? sim_graph_order(graph) : NULL;
    if (!order) {
        free(program);
        if (graph) {
            sim_graph_release(graph);
        }
        return NULL;
    }
    program->references = 1;
    program->graph = graph;
    program->order = order;
    program->count = graph->node_count;
    program->needs_marks = needs_marks(graph);
    return program;
}

struct sim_program *sim_program_retain(struct sim_program *program)
{
    program->references++;
    return program;
}

void sim_program_release(struct sim_program *program)
{
    if (--program->references == 0) {
        sim_graph_release(program->graph);
        free(program->order);
        free(program);
    }
}

static void run_graph(CUgraph graph);

static void run_bodies(CUgraphNode node)
{
    unsigned value = node->condition->value;
    unsigned body = node->condition_type == CU_GRAPH_COND_TYPE_IF      ? (value ? 0 : 1)
                    : node->condition_type == CU_GRAPH_COND_TYPE_WHILE ? (value ? 0 : UINT32_MAX)
                                                                       : value;
    /* No kernel changes the condition, and a loop would never end, so a body runs once. */
    if (body < node->body_count) {
        run_graph(node->bodies[body]);
    }
}

static void run_node(CUgraphNode node)
{
    if (node->disabled) {
        return;
    }
    if (node->condition) {
        run_bodies(node);
        return;
    }
    if (node->work.kind == SIM_WORK_CHILD) {
        run_graph(node->work.graph);
        return;
    }
    if (sim_work_takes_time(&node->work)) {
        sim_delay();
    }
    sim_work_run_unlocked(&node->work);
    sim_lock();
    while (node->work.kind == SIM_WORK_WAIT && !sim_event_is_complete(node->work.event.event)) {
        sim_wait_progress();
    }
    while (!sim_work_is_ready(&node->work)) {
        sim_unlock();
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        sim_lock();
    }
    if (node->work.kind == SIM_WORK_RECORD) {
        sim_event_reached(node->work.event.event, node->work.event.event->version);
    } else {
        sim_work_run_locked(&node->work, NULL);
    }
    sim_unlock();
}

/* Child graphs and bodies are ordered when they run: they are small and few. */
static void run_graph(CUgraph graph)
{
    sim_lock();
    CUgraphNode *order = sim_graph_order(graph);
    size_t count = graph->node_count;
    sim_unlock();
    for (size_t i = 0; order && i < count; i++) {
        run_node(order[i]);
    }
    free(order);
}

void sim_program_run(const struct sim_program *program)
{
    for (size_t i = 0; i < program->count; i++) {
        run_node(program->order[i]);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool is_exec(CUgraphExec exec)
{
    return sim_object_is(&sim_graph_execs, exec);
}

static CUresult instantiate(CUgraphExec *result, CUgraph graph, unsigned long long flags)
{
    const unsigned long long known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    SIM_CURRENT(context);
    if (!result || !sim_is_graph(graph) || (flags & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = sim_account_charge(context->device->index, sim_settings.graph_bytes);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_program *program = program_of(sim_graph_clone(graph));
    CUgraphExec exec = program ? sim_object_new(&sim_graph_execs) : NULL;
    if (!exec) {
        if (program) {
            sim_program_release(program);
        }
        sim_account_uncharge(context->device->index, sim_settings.graph_bytes);
        return program ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    exec->device = context->device;
    exec->flags = flags;
    exec->program = program;
    *result = exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize)
{
    SIM_ENTER(cuGraphInstantiate);
    if (logBuffer && bufferSize) {
        *logBuffer = '\0';
    }
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    SIM_ENTER(cuGraphInstantiate_v2);
    if (logBuffer && bufferSize) {
        *logBuffer = '\0';
    }
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags)
{
    SIM_ENTER(cuGraphInstantiateWithFlags);
    return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? CUDA_ERROR_INVALID_VALUE
                                                      : instantiate(phGraphExec, hGraph, flags);
}

static void destroy(CUgraphExec exec)
{
    sim_program_release(exec->program);
    sim_account_uncharge(exec->device->index, sim_settings.graph_bytes);
    sim_object_free(&sim_graph_execs, exec);
}

/* "Any executable graph launch [...] still executing [...] are not affected": launches hold the
 * program. */
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    SIM_ENTER(cuGraphExecDestroy);
    if (!is_exec(hGraphExec)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    destroy(hGraphExec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    SIM_ENTER(cuGraphExecGetFlags);
    if (!is_exec(hGraphExec) || !flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = hGraphExec->flags;
    return CUDA_SUCCESS;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* What a launch changes at once, when it is called: the events that it records, and which memory is
 * live after it. Allocations come before the nodes that free them. */
static void mark_launch(CUgraph graph, CUstream stream)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->work.kind == SIM_WORK_RECORD) {
            sim_event_new_version(node->work.event.event);
            sim_event_mark(node->work.event.event, stream, stream->submitted + 1);
        } else if (node->work.kind == SIM_WORK_ALLOC) {
            node->work.memory.range->graph_live = true;
        } else if (node->work.kind == SIM_WORK_FREE) {
            struct sim_range *range = sim_range_at(node->work.memory.address);
            if (range) {
                range->graph_live = false;
            }
        } else if (node->work.kind == SIM_WORK_CHILD) {
            mark_launch(node->work.graph, stream);
        }
    }
}

/* How much the graph's allocations on the device need that no upload or launch has given memory. */
static uint64_t lacking_bytes(CUgraph graph, const struct sim_device *device)
{
    uint64_t bytes = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        const struct sim_work *work = &node->work;
        if (work->kind == SIM_WORK_CHILD) {
            bytes += lacking_bytes(work->graph, device);
        } else if (work->kind == SIM_WORK_ALLOC && work->memory.range->device == device &&
                   !work->memory.range->graph_backed) {
            bytes += work->memory.range->occupied;
        }
    }
    return bytes;
}

static void back(CUgraph graph)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->work.kind == SIM_WORK_CHILD) {
            back(node->work.graph);
        } else if (node->work.kind == SIM_WORK_ALLOC) {
            sim_pool_back(node->work.memory.range);
        }
    }
}

/* "Physical memory cannot be allocated or mapped during graph instantiation [...] Mapping is done
 * instead during graph launch. Calling cudaGraphUpload can separate out the cost of allocation from
 * the launch by performing all mappings for that graph immediately" (CUDA programming guide, graph
 * memory nodes). */
static CUresult take_memory(CUgraph graph)
{
    for (int i = 0; i < (int)sim_settings.devices; i++) {
        uint64_t bytes = lacking_bytes(graph, &sim_devices[i]);
        CUresult status = bytes ? sim_pool_provide(sim_devices[i].graph_pool, bytes) : CUDA_SUCCESS;
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    back(graph);
    return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (!is_exec(exec)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!stream->capture) {
        CUresult status = sim_capture_forbids_legacy(stream);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        if (exec->program->needs_marks) {
            status = take_memory(exec->program->graph);
            if (status != CUDA_SUCCESS) {
                return status;
            }
            mark_launch(exec->program->graph, stream);
        }
    }
    struct sim_work work = {.kind = SIM_WORK_GRAPH, .program = sim_program_retain(exec->program)};
    return sim_submit(stream, &work, NULL);
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ENTER(cuGraphLaunch);
    return launch(hGraphExec, hStream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ENTER(cuGraphLaunch_ptsz);
    return launch(hGraphExec, sim_per_thread(hStream));
}

static CUresult upload(CUgraphExec exec, CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (!is_exec(exec)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture) {
        return sim_capture_refuse(stream);
    }
    CUresult status = take_memory(exec->program->graph);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    return sim_submit(stream, &work, NULL);
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ENTER(cuGraphUpload);
    return upload(hGraphExec, hStream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    SIM_ENTER(cuGraphUpload_ptsz);
    return upload(hGraphExec, sim_per_thread(hStream));
}

static CUresult instantiate_with(CUgraphExec *result, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *parameters, CUstream stream)
{
    CUresult status = instantiate(result, graph, parameters->flags);
    if (status == CUDA_SUCCESS && parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
        status = upload(*result, stream);
        if (status != CUDA_SUCCESS) {
            destroy(*result);
        }
    }
    parameters->hErrNode_out = NULL;
    parameters->result_out =
        status == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return status;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    SIM_JUDGE(instantiateParams, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphInstantiateWithParams);
    return instantiate_with(phGraphExec, hGraph, instantiateParams,
                            instantiateParams->hUploadStream);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    SIM_JUDGE(instantiateParams, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphInstantiateWithParams_ptsz);
    return instantiate_with(phGraphExec, hGraph, instantiateParams,
                            sim_per_thread(instantiateParams->hUploadStream));
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The clone's nodes get the origins of the program's own nodes. */
static void adopt_origins(CUgraph clone)
{
    for (CUgraphNode node = clone->first; node; node = node->next) {
        node->origin = node->origin->origin;
        if (node->work.kind == SIM_WORK_CHILD) {
            adopt_origins(node->work.graph);
        }
        for (unsigned i = 0; i < node->body_count; i++) {
            adopt_origins(node->bodies[i]);
        }
    }
}

/* The program's own node for a node of the original graph, in a program that no launch holds. */
static CUresult writable_node(CUgraphExec exec, CUgraphNode node, CUgraphNode *result)
{
    if (!is_exec(exec) || !sim_is_node(node)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNode own = sim_graph_find(exec->program->graph, node);
    if (!own) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (exec->program->references > 1) {
        CUgraph clone = sim_graph_clone(exec->program->graph);
        CUgraphNode copy = clone ? sim_graph_find(clone, own) : NULL;
        if (clone) {
            adopt_origins(clone);
        }
        struct sim_program *program = program_of(clone);
        if (!program) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        sim_program_release(exec->program);
        exec->program = program;
        own = copy;
    }
    *result = own;
    return CUDA_SUCCESS;
}

CUresult sim_exec_set_work(CUgraphExec exec, CUgraphNode node, struct sim_work *work)
{
    CUgraphNode own;
    CUresult status = writable_node(exec, node, &own);
    if (status == CUDA_SUCCESS && own->work.kind != work->kind) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status != CUDA_SUCCESS) {
        sim_work_release(work);
        return status;
    }
    sim_work_release(&own->work);
    own->work = *work;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    SIM_JUDGE(hGraphExec, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuGraphNodeSetEnabled);
    CUgraphNode own;
    CUresult status = writable_node(hGraphExec, hNode, &own);
    /* "Currently only kernel, memset and memcpy nodes are supported." (cuda.h) */
    if (status == CUDA_SUCCESS && own->type > CU_GRAPH_NODE_TYPE_MEMSET) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        own->disabled = !isEnabled;
    }
    return status;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    SIM_ENTER(cuGraphNodeGetEnabled);
    CUgraphNode own =
        is_exec(hGraphExec) ? sim_graph_find(hGraphExec->program->graph, hNode) : NULL;
    if (!own || !isEnabled) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *isEnabled = !own->disabled;
    return CUDA_SUCCESS;
}

static CUgraphExecUpdateResult compare(CUgraph own, CUgraph other, CUgraphNode *different)
{
    CUgraphNode a = own->first, b = other->first;
    for (; a && b; a = a->next, b = b->next) {
        *different = b;
        if (a->type != b->type) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        }
        if (a->dependency_count != b->dependency_count) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
    }
    *different = b;
    return a || b ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphNode *different,
                       CUgraphExecUpdateResult *result)
{
    *different = NULL;
    *result = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (!is_exec(exec) || !sim_is_graph(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *result = compare(exec->program->graph, graph, different);
    if (*result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    struct sim_program *program = program_of(sim_graph_clone(graph));
    if (!program) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* The application knows the handles of the graph that was instantiated. */
    for (CUgraphNode a = exec->program->graph->first, b = program->graph->first; a && b;
         a = a->next, b = b->next) {
        b->origin = a->origin;
    }
    sim_program_release(exec->program);
    exec->program = program;
    *different = NULL;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    SIM_ENTER(cuGraphExecUpdate);
    CUgraphNode different;
    CUgraphExecUpdateResult result;
    CUresult status = update(hGraphExec, hGraph, &different, &result);
    if (hErrorNode_out) {
        *hErrorNode_out = different;
    }
    if (updateResult_out) {
        *updateResult_out = result;
    }
    return status;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo)
{
    SIM_ENTER(cuGraphExecUpdate_v2);
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    CUresult status = update(hGraphExec, hGraph, &info.errorNode, &info.result);
    if (resultInfo) {
        *resultInfo = info;
    }
    return status;
}
