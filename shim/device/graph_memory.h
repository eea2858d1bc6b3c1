/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of graphs' allocation nodes. It is the driver's, and comes with the first upload or
 * launch: "Physical memory cannot be allocated or mapped during graph instantiation [...] Mapping
 * is done instead during graph launch" (CUDA programming guide, graph memory nodes). The driver
 * says how much it holds for all graphs of a device; that is charged. Here room is made beforehand.
 *
 * How much comes is not known, only how much at most: what the nodes ask for, less what the driver
 * keeps for graphs already. Allocations whose lifetimes do not overlap share memory, and so do
 * graphs. So a launch is never refused for lack of that much room. */
#ifndef MEMSHIM_SHIM_DEVICE_GRAPH_MEMORY_H
#define MEMSHIM_SHIM_DEVICE_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/hook.h"

struct ms_device;

/* The program instantiated this graph. Notes what its nodes, also those of child graphs, ask for on
 * the current context's device. */
void ms_graph_memory_made(CUgraphExec exec, CUgraph graph);
void ms_graph_memory_gone(CUgraphExec exec);

struct ms_graph_room {
    struct ms_device *device;
    uint64_t bytes; /* set aside; 0: nothing is expected, or there is no room */
};

/* The graph is about to be uploaded, or launched for the first time: makes room for what it takes
 * at most, and sets it aside. The caller holds no lock. */
struct ms_graph_room ms_graph_memory_expect(CUgraphExec exec);

/* It was, and what it took is charged, or it failed: releases what was set aside. */
void ms_graph_memory_came(const struct ms_graph_room *room);

/* Whether the graph allocates: every launch may take more, such as on another stream, or after the
 * program trimmed. Lock-free where no graph does. */
bool ms_graph_memory_allocates(CUgraphExec exec);

/* Corrects the charge to what the driver holds for graphs now. Not while a stream captures: what
 * came then is charged the next time. */
void ms_graph_memory_correct(struct ms_device *device);

/* The same for all devices, after the driver's answer to a launch or upload, which it returns. */
CUresult ms_graph_memory_launched(CUresult result);

#endif
