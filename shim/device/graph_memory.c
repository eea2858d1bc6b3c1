/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a grant for each graph that allocates. */
#include "shim/device/graph_memory.h"

#include <stdlib.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/ledger.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/driver/driver.h"

#define LEVELS_MAX 8 /* of child graphs in child graphs */

static _Atomic bool any_allocates; /* on any device */
static _Atomic uint64_t changes_begun, changes_ended;

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
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        driver->cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS ||
        params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return 0;
    }
    struct ms_device *device = ms_device_get(params.poolProps.location.id);
    if (device != NULL) {
        atomic_store(&device->graphs_allocate, true);
        atomic_store(&any_allocates, true);
    }
    return params.poolProps.location.id == ordinal ? params.bytesize : 0;
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

/* False: the driver does not say. */
static bool ask(const struct ms_device *device, CUgraphMem_attribute attribute, uint64_t *bytes)
{
    cuuint64_t answer = 0;
    bool known = ms_driver()->cuDeviceGetGraphMemAttribute != NULL &&
                 ms_driver()->cuDeviceGetGraphMemAttribute(device->handle, attribute, &answer) ==
                     CUDA_SUCCESS;
    *bytes = answer;
    return known;
}

void ms_graph_memory_change_begins(void)
{
    atomic_fetch_add(&changes_begun, 1);
}

void ms_graph_memory_change_ends(void)
{
    atomic_fetch_add(&changes_ended, 1);
}

/* Those that have ended are read first: if it is as many, none was under way then. */
uint64_t ms_graph_memory_changes(bool *under_way)
{
    const uint64_t ended = atomic_load(&changes_ended);
    const uint64_t begun = atomic_load(&changes_begun);
    *under_way = begun != ended;
    return begun;
}

uint64_t ms_graph_memory_held(const struct ms_device *device)
{
    uint64_t bytes = 0;
    if (atomic_load_explicit(&device->graphs_allocate, memory_order_relaxed)) {
        (void)ask(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    }
    return bytes;
}

/* What the driver keeps for graphs, and no graph has mapped; 0 where it does not say. */
static uint64_t unused_bytes(const struct ms_device *device)
{
    uint64_t reserved = 0;
    uint64_t used = 0;
    bool known = ask(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
                 ask(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used);
    return known ? ms_less(reserved, used) : 0;
}

/* Finds the graph's grant; its device is in use since it was made. */
static bool find(CUgraphExec exec, struct ms_grant *grant)
{
    return __builtin_expect(atomic_load_explicit(&any_allocates, memory_order_relaxed), 0) &&
           ms_ledger_find(MS_SPACE_GRAPH, (uint64_t)(uintptr_t)exec, grant);
}

enum ms_graph_memory ms_graph_memory_of(CUgraphExec exec)
{
    struct ms_grant grant;
    if (!find(exec, &grant)) {
        return MS_GRAPH_MEMORY_NONE;
    }
    return grant.turn == atomic_load(&ms_device_get(grant.device)->graph_turn)
               ? MS_GRAPH_MEMORY_HAD
               : MS_GRAPH_MEMORY_LACKS;
}

struct ms_graph_room ms_graph_memory_expect(CUgraphExec exec)
{
    struct ms_graph_room room = {0};
    struct ms_grant grant;
    if (ms_captures_running() || !find(exec, &grant)) {
        return room;
    }
    struct ms_device *device = ms_device_get(grant.device);
    const uint64_t granule = device->granule_bytes != 0 ? device->granule_bytes : 1;
    const uint64_t bytes = ms_round_up(ms_less(grant.bytes, unused_bytes(device)), granule);
    room = (struct ms_graph_room){
        .device = device, .exec = exec, .turn = atomic_load(&device->graph_turn)};
    if (bytes != 0 && ms_device_set_aside(device, bytes)) {
        room.bytes = bytes;
    }
    return room;
}

void ms_graph_memory_came(const struct ms_graph_room *room, CUresult result)
{
    struct ms_grant grant;
    struct ms_grant displaced;
    if (room->bytes != 0) {
        ms_budget_release_earmark(&room->device->budget, room->bytes);
    }
    if (result == CUDA_SUCCESS && room->turn != 0 &&
        ms_ledger_take(MS_SPACE_GRAPH, (uint64_t)(uintptr_t)room->exec, &grant)) {
        grant.turn = room->turn;
        (void)ms_ledger_put(&grant, &displaced);
    }
}

void ms_graph_memory_trimmed(CUdevice device)
{
    struct ms_device *trimmed = ms_device_get(device);
    if (trimmed != NULL) {
        atomic_fetch_add(&trimmed->graph_turn, 1);
    }
}

static void charge(struct ms_device *device, uint64_t before, uint64_t now)
    MS_REQUIRES(device->measuring)
{
    if (now > before) {
        ms_budget_impose(&device->budget, MS_OWNER_FORWARDED, now - before);
        ms_device_note_charge(device, true, MS_OWNER_FORWARDED, MS_CHARGE_GRAPH, 0, now - before,
                              0);
    } else if (now < before) {
        /* Recorded first, as in ms_mempool_correct. */
        ms_device_note_charge(device, false, MS_OWNER_FORWARDED, MS_CHARGE_GRAPH, 0, before - now,
                              0);
        ms_budget_discharge(&device->budget, MS_OWNER_FORWARDED, before - now);
    }
}

/* One thread at a time: otherwise an older answer could be charged after a newer one, or given back
 * before it was charged. */
void ms_graph_memory_correct(struct ms_device *device)
{
    if (!atomic_load_explicit(&device->graphs_allocate, memory_order_relaxed) ||
        ms_captures_running()) {
        return;
    }
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(&device->measuring);
    uint64_t now = 0;
    if (ask(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now)) {
        charge(device, atomic_exchange(&device->graph_bytes, now), now);
    }
    ms_lock_release(&device->measuring);
    ms_cancel_let(cancellation);
    ms_device_check_thresholds(device);
}

CUresult ms_graph_memory_launched(CUresult result)
{
    for (int d = 0; d < MS_DEVICES_MAX && atomic_load(&any_allocates); d++) {
        struct ms_device *device = ms_device_get(d);
        if (device != NULL) {
            ms_graph_memory_correct(device);
        }
    }
    return result;
}
