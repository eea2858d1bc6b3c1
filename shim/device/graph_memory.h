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

/* What is known of a graph's memory. */
enum ms_graph_memory {
    MS_GRAPH_MEMORY_NONE, /* the graph allocates nothing */
    MS_GRAPH_MEMORY_HAD,  /* it was uploaded or launched, and nothing was trimmed since; it may need
                             more, such as on another stream */
    MS_GRAPH_MEMORY_LACKS
};

/* Lock-free where no graph allocates. */
enum ms_graph_memory ms_graph_memory_of(CUgraphExec exec);

struct ms_graph_room {
    struct ms_device *device;
    uint64_t bytes; /* set aside; 0: nothing is expected, or there is no room */
    CUgraphExec exec;
    uint32_t turn; /* of the device's graph_turn; 0: while a stream captures nothing is set aside */
};

/* The graph is about to be uploaded or launched, and lacks its memory: makes room for what it takes
 * at most, and sets it aside. The caller holds no lock. */
struct ms_graph_room ms_graph_memory_expect(CUgraphExec exec);

/* It was, and what it took is charged, or it failed: releases what was set aside. */
void ms_graph_memory_came(const struct ms_graph_room *room, CUresult result);

/* The program trimmed what the driver holds for graphs on this device: "Blocks which are not in use
 * by a graph that is either currently executing or scheduled to execute are freed" (cuda.h,
 * cuDeviceGraphMemTrim). */
void ms_graph_memory_trimmed(CUdevice device);

/* Around each call of the program that may change what the driver holds for graphs: a launch or an
 * upload of a graph that allocates, a graph's end, or a trim. Lock-free. */
void ms_graph_memory_change_begins(void);
void ms_graph_memory_change_ends(void);

/* How many of these calls have begun. *under_way: whether one of them has not ended. Lock-free. */
uint64_t ms_graph_memory_changes(bool *under_way);

/* What the driver holds for graphs now; 0 where it does not say, or no graph of the program
 * allocates. */
uint64_t ms_graph_memory_held(const struct ms_device *device);

/* Corrects the charge to what the driver holds for graphs now. Not while a stream captures: what
 * came then is charged the next time. */
void ms_graph_memory_correct(struct ms_device *device);

/* The same for all devices, after the driver's answer to a launch or upload, which it returns. */
CUresult ms_graph_memory_launched(CUresult result);

#endif
