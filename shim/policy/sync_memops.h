/* SPDX-License-Identifier: Apache-2.0 */
/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of blocks, which libraries set before a network card may access
 * them. Copies and memsets without a stream argument must then be done when they return; normally
 * the driver may only have queued them (cuda.h, "API synchronization behavior").
 *
 * The driver supports the attribute for memory of cuMemAlloc and refuses it for mapped memory
 * (CUDA_ERROR_NOT_SUPPORTED), which the pool's blocks are. So the pool keeps the mark, and this
 * module keeps the guarantee. Nothing is checked until a block is first marked; from then on
 * always. */
#ifndef MEMSHIM_SHIM_POLICY_SYNC_MEMOPS_H
#define MEMSHIM_SHIM_POLICY_SYNC_MEMOPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/hook.h"

/* The program sets the attribute at addr, and `result` was the driver's answer. Marks or unmarks
 * the block, and on marking waits for earlier synchronous operations. Returns the answer for the
 * program: success for a block of the pool, or of another process that is open here. */
CUresult ms_sync_memops_set(CUdeviceptr_v2 addr, bool on, CUresult result);

extern _Atomic bool ms_sync_memops_on;

static inline bool ms_sync_memops_are_on(void)
{
    return __builtin_expect(atomic_load_explicit(&ms_sync_memops_on, memory_order_relaxed), 0);
}

/* To be called while they are on, after a copy or memset was queued on the default stream of this
 * flavour with this result. Waits for it if any of the values is an address in a marked block.
 * Returns the result for the program. */
CUresult ms_sync_memops_complete(CUresult result, bool per_thread, const uint64_t *values,
                                 size_t count);

#endif
