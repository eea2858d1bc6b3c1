/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of instantiated graphs touch. The driver cannot be asked about an instantiated
 * graph, so its nodes are read when it is made, even before memory is short. New parameters of a
 * node replace its old ones. A node that is switched off touches nothing, except inside child
 * graphs. All is dropped with the graph. With MEMSHIM_SPILL=off nothing is read. */
#ifndef MEMSHIM_SHIM_POLICY_GRAPH_HEAT_H
#define MEMSHIM_SHIM_POLICY_GRAPH_HEAT_H

#include <stdbool.h>

#include "shim/driver/hook.h"

/* The program instantiated this graph. Reads its kernels, copies and memsets, also those of child
 * graphs. */
void ms_graph_heat_made(const void *exec, CUgraph graph);

/* The program updated the instantiated graph from this one, which has the same form. Its nodes keep
 * the names of the graph that it was made from, and stay on or off. */
void ms_graph_heat_updated(const void *exec, CUgraph graph);

/* The program gave one of its nodes these parameters. */
void ms_graph_heat_set(const void *exec, CUgraphNode node, const CUgraphNodeParams *params);

/* The program switched one of its nodes on or off. */
void ms_graph_heat_enabled(const void *exec, CUgraphNode node, bool on);

void ms_graph_heat_gone(const void *exec);

/* The program launched it. Only while heat is on. */
void ms_graph_heat_launched(const void *exec);

#endif
