/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of serve_job share: the device that they all use, and the scenarios, by file. */
#ifndef MEMSHIM_TESTS_PROCESS_SERVE_JOB_H
#define MEMSHIM_TESTS_PROCESS_SERVE_JOB_H

#include <cuda.h>

#include "say.h"
#include "simgpu.h"

/* Device 0, and its primary context, which is current when a scenario begins. */
extern CUdevice device;
extern CUcontext context;

/* As the driver says it: of the capped device. */
size_t free_bytes(void);

/* After it the device's pool holds nothing that it need not hold. */
void settle(void);

CUmemAllocationProp chunk_properties(void);

/* serve_charges.c */
void vmm(void);
void vmm_cap(void);
void told_free(void);
void loaded_late(void);
void graph_memory(void);
void race(void);
void injected(void);

/* serve_contexts.c */
void reset(void);
void destroyed_context(void);
void many_contexts(void);
void contexts_at_once(void);
void primary_at_once(void);
void reused_handle(void);
void capture(void);

/* serve_pools.c */
void pools(void);
void given_back(void);
void pool_destroyed_first(void);
void many_pools(void);
void pools_at_once(void);
void reuse_flags(void);

/* serve_memory.c */
void identity(void);
void not_mapped(void);
void spilled(void);
void arena(void);
void gpudirect(void);
void no_gpudirect(void);
void peers(void);
void peers_stream(void);
void peers_captured(void);
void peers_refused(void);

#endif
