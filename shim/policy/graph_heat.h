/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of instantiated graphs touch. An instantiated graph cannot be asked, so that its
 * nodes are read when it is made, which is also before memory is short; what a node is given later
 * takes the place of what it had; nodes that are switched off touch nothing meanwhile, but those
 * inside child graphs; and all is dropped with the graph. Nothing with MEMSHIM_SPILL=off. */
#ifndef MEMSHIM_SHIM_POLICY_GRAPH_HEAT_H
#define MEMSHIM_SHIM_POLICY_GRAPH_HEAT_H

#include <stdbool.h>

#include "shim/driver/hook.h"

/* It was made from this graph: kernels, copies and memsets, those of child graphs too. */
void ms_graph_heat_made(const void *exec, CUgraph graph);

/* It now does what this graph says, which is of the same form; its nodes still go by the names of
 * the graph that it was made from, and are on or off as they were. */
void ms_graph_heat_updated(const void *exec, CUgraph graph);

/* One of its nodes has these parameters now. */
void ms_graph_heat_set(const void *exec, CUgraphNode node, const CUgraphNodeParams *params);

/* One of its nodes is switched on or off. */
void ms_graph_heat_enabled(const void *exec, CUgraphNode node, bool on);

void ms_graph_heat_gone(const void *exec);

/* It was launched. Only while heat is on. */
void ms_graph_heat_launched(const void *exec);

#endif
