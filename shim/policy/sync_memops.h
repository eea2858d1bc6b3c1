/* SPDX-License-Identifier: Apache-2.0 */
/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of blocks, which libraries set before a network card may reach
 * them: copies and memsets of the functions that name no stream are done when these return, where
 * the driver by itself may only have queued them (cuda.h, "API synchronization behavior").
 *
 * The driver has this for what cuMemAlloc gives and refuses it for mapped memory
 * (CUDA_ERROR_NOT_SUPPORTED), which the pool's blocks are to it. So their mark is the pool's, and
 * its guarantee is kept here. Nothing is checked before a block was first marked; then for good. */
#ifndef MEMSHIM_SHIM_POLICY_SYNC_MEMOPS_H
#define MEMSHIM_SHIM_POLICY_SYNC_MEMOPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/hook.h"

/* The program sets the attribute at addr, and this was the driver's answer. The answer for the
 * program: success for a block of the pool's, or of another process's that is open here. It is
 * marked, or not any more, and synchronous work from before is done. */
CUresult ms_sync_memops_set(CUdeviceptr_v2 addr, bool on, CUresult result);

extern _Atomic bool ms_sync_memops_on;

static inline bool ms_sync_memops_are_on(void)
{
    return __builtin_expect(atomic_load_explicit(&ms_sync_memops_on, memory_order_relaxed), 0);
}

/* While they are on: a copy or a memset was queued on the default stream of this flavour, with this
 * result. Waits for it where any of the values is an address in a marked block. The result for the
 * program. */
CUresult ms_sync_memops_complete(CUresult result, bool per_thread, const uint64_t *values,
                                 size_t count);

#endif
