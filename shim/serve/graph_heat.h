/* What the nodes of instantiated graphs touch. An instantiated graph cannot be asked, so that its
 * nodes are read when it is made, which is also before memory is short; and what is known of it is
 * dropped with it. What copies, memsets and child graphs in it are given later by themselves
 * (cuGraphExecMemcpyNodeSetParams and the like, cuGraphExecNodeSetParams) is not seen: they count
 * as touching what they did when it was made. Nothing with MEMSHIM_SPILL=off. */
#ifndef MEMSHIM_SHIM_SERVE_GRAPH_HEAT_H
#define MEMSHIM_SHIM_SERVE_GRAPH_HEAT_H

#include "shim/hook.h"

/* It was made from this graph, or now does what this graph says: kernels, copies and memsets, those
 * of child graphs too. */
void ms_graph_heat_made(const void *exec, CUgraph graph);

/* One of its kernel nodes has these parameters now; what it had before counts as touched still. */
void ms_graph_heat_kernel(const void *exec, const CUDA_KERNEL_NODE_PARAMS_v2 *node);

void ms_graph_heat_gone(const void *exec);

/* It was launched. Only while heat is on. */
void ms_graph_heat_launched(const void *exec);

#endif
