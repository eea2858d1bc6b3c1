/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a grant for each graph that allocates and has not been launched. */
#include "shim/device/graph_memory.h"

#include <stdlib.h>

#include "allocator/base/arithmetic.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/device/ledger.h"
#include "shim/driver/driver.h"

#define LEVELS_MAX 8 /* of child graphs in child graphs */

static uint64_t asked_by_graph(CUgraph graph, int ordinal, int level);

static uint64_t asked_by_node(CUgraphNode node, int ordinal, int level)
{
    const struct ms_driver_functions *driver = ms_driver();
    CUDA_MEM_ALLOC_NODE_PARAMS params = {0};
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUgraph child = NULL;
    if (driver->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
        return 0;
    }
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && level < LEVELS_MAX &&
        driver->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        return asked_by_graph(child, ordinal, level + 1);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        driver->cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS &&
        params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        params.poolProps.location.id == ordinal) {
        return params.bytesize;
    }
    return 0;
}

static uint64_t asked_by_graph(CUgraph graph, int ordinal, int level)
{
    uint64_t bytes = 0;
    size_t count = 0;
    CUgraphNode *nodes = ms_driver_graph_nodes(graph, &count);
    for (size_t i = 0; nodes != NULL && i < count; i++) {
        bytes += asked_by_node(nodes[i], ordinal, level);
    }
    free(nodes);
    return bytes;
}

void ms_graph_memory_made(CUgraphExec exec, CUgraph graph)
{
    struct ms_context *context = ms_context_current();
    struct ms_grant displaced;
    if (context == NULL || ms_driver()->cuGraphMemAllocNodeGetParams == NULL) {
        return;
    }
    struct ms_grant grant = {.name = (uint64_t)(uintptr_t)exec,
                             .bytes = asked_by_graph(graph, context->device->ordinal, 0),
                             .holder = context,
                             .space = MS_SPACE_GRAPH,
                             .kind = MS_GRANT_OVERHEAD,
                             .device = context->device->ordinal};
    if (grant.bytes != 0) {
        (void)ms_ledger_put(&grant, &displaced);
    }
}

void ms_graph_memory_gone(CUgraphExec exec)
{
    (void)ms_ledger_take(MS_SPACE_GRAPH, (uint64_t)(uintptr_t)exec, NULL);
}

/* What the driver keeps for graphs, and no graph has mapped. */
static uint64_t unused_bytes(const struct ms_device *device)
{
    const struct ms_driver_functions *driver = ms_driver();
    cuuint64_t reserved = 0;
    cuuint64_t used = 0;
    if (driver->cuDeviceGetGraphMemAttribute == NULL ||
        driver->cuDeviceGetGraphMemAttribute(device->handle, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                             &reserved) != CUDA_SUCCESS ||
        driver->cuDeviceGetGraphMemAttribute(device->handle, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                                             &used) != CUDA_SUCCESS) {
        return 0;
    }
    return reserved > used ? reserved - used : 0;
}

struct ms_graph_room ms_graph_memory_expect(CUgraphExec exec)
{
    struct ms_graph_room room = {0};
    struct ms_grant grant;
    if (ms_captures_running() ||
        !ms_ledger_find(MS_SPACE_GRAPH, (uint64_t)(uintptr_t)exec, &grant)) {
        return room;
    }
    struct ms_device *device = ms_device_get(grant.device);
    const uint64_t granule = device->granule_bytes != 0 ? device->granule_bytes : 1;
    const uint64_t bytes = ms_round_up(ms_less(grant.bytes, unused_bytes(device)), granule);
    if (bytes != 0 && ms_device_set_aside(device, bytes)) {
        room = (struct ms_graph_room){device, bytes};
    }
    return room;
}

void ms_graph_memory_came(CUgraphExec exec, CUresult result, const struct ms_graph_room *room)
{
    if (room->bytes != 0) {
        ms_budget_release_earmark(&room->device->budget, room->bytes);
    }
    if (result == CUDA_SUCCESS) {
        ms_graph_memory_gone(exec);
    }
}
