/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes from the application's parameters. All under sim_lock. */
#ifndef SIMGPU_GRAPH_NODE_H
#define SIMGPU_GRAPH_NODE_H

#include "graph.h"

/* Replaces the work of the executable graph's clone of `node`; the kind must be the same. Takes
 * over *work. */
CUresult sim_exec_set_work(CUgraphExec exec, CUgraphNode node, struct sim_work *work);

/* Makes a conditional node, and fills in the bodies. */
CUresult sim_add_conditional(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, CUDA_CONDITIONAL_NODE_PARAMS *parameters);

#endif
