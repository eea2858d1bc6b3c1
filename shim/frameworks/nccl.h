/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL is told where memory of PyTorch's consists of several chunks.
 *
 * While a CUDA graph is captured, NCCL registers the buffers of its collectives with their peers
 * (NCCL_GRAPH_REGISTER, on by default). From 2.24.3, the first with that road, to 2.31.2 it maps
 * one chunk of a buffer that has several, or counts from the wrong one, and the graph hangs
 * (nccl#1820; mended by nccl#2362, of August 2026, which no release before 2.31.3 has). */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NCCL_H
#define MEMSHIM_SHIM_FRAMEWORKS_NCCL_H

#include <stdbool.h>

#define MS_NCCL_GRAPH_VARIABLE "NCCL_GRAPH_REGISTER"

/* Whether the NCCL around that address of code is one of these; null: the libnccl.so.2 that is
 * loaded. True, too, where its version cannot be found out. */
bool ms_nccl_takes_one_chunk(const void *code);

/* What getenv answers where the variable is not set and memshim switched expandable segments on:
 * "0" to a NCCL of these versions, which is said once; null to everybody else. */
char *ms_nccl_graph_register(const void *caller);

#endif
