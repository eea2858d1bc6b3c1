/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim tells NCCL when PyTorch's memory consists of several chunks.
 *
 * While a CUDA graph is captured, NCCL registers the buffers of its collectives with their peers
 * (NCCL_GRAPH_REGISTER, on by default). From 2.24.3, the first version that does so, to 2.31.2, it
 * maps only one chunk of a buffer that has several, or counts from the wrong one, and the graph
 * hangs (nccl#1820; fixed by nccl#2362, of August 2026, which no release before 2.31.3
 * contains). */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NCCL_H
#define MEMSHIM_SHIM_FRAMEWORKS_NCCL_H

#include <stdbool.h>

#define MS_NCCL_GRAPH_VARIABLE "NCCL_GRAPH_REGISTER"

/* Whether the NCCL around that code address is one of these versions; null: the loaded
 * libnccl.so.2. True also if its version cannot be found out. */
bool ms_nccl_takes_one_chunk(const void *code);

/* getenv's answer when the variable is not set and memshim switched expandable segments on: "0" for
 * an NCCL of these versions, which is logged once; null for all other callers. */
char *ms_nccl_graph_register(const void *caller);

#endif
