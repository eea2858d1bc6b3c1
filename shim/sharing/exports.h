/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the pool that other processes open: their names, and how long they stay.
 *
 * An exported block is pinned in place. If the program frees it while another process has it open,
 * the block stays as it is until that process closes it or ends. It goes back to the pool at the
 * next call that allocates, frees or asks.
 *
 * A thread that answers other processes starts at the first export. It takes only the lock of these
 * tables, which nobody holds while waiting. Thread-safe. */
#ifndef MEMSHIM_SHIM_SHARING_EXPORTS_H
#define MEMSHIM_SHIM_SHARING_EXPORTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/device/device.h"

/* The name of the live block of the device's pool that holds addr; a block keeps its name.
 * CUDA_ERROR_NOT_SUPPORTED: it cannot be shared. */
CUresult ms_exports_name(struct ms_device *device, CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out);

/* Whether the handle names a block of this process. */
bool ms_exports_own(const CUipcMemHandle_v1 *handle);

/* The program frees the block. Returns whether the pool may take it now. */
enum ms_exports_free {
    MS_EXPORTS_NOW,   /* yes; it has no name any more */
    MS_EXPORTS_LATER, /* no: another process has it open; ms_exports_reap gives it back */
    MS_EXPORTS_TWICE  /* the program has freed it already */
};
extern _Atomic unsigned ms_exports_count; /* number of named blocks */
enum ms_exports_free ms_exports_freed_slowly(const struct ms_device *device, CUdeviceptr_v2 addr);
static inline enum ms_exports_free ms_exports_freed(const struct ms_device *device,
                                                    CUdeviceptr_v2 addr)
{
    return atomic_load_explicit(&ms_exports_count, memory_order_relaxed) == 0
               ? MS_EXPORTS_NOW
               : ms_exports_freed_slowly(device, addr);
}

/* Whether the program has freed the block at addr, which stays because another process has it
 * open. */
extern _Atomic unsigned ms_exports_kept; /* number of such blocks */
bool ms_exports_keep_slowly(const struct ms_device *device, CUdeviceptr_v2 addr);
static inline bool ms_exports_keep(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    return __builtin_expect(atomic_load_explicit(&ms_exports_kept, memory_order_relaxed) != 0, 0) &&
           ms_exports_keep_slowly(device, addr);
}

/* Gives freed blocks that are no longer open anywhere back to the pool. The caller holds no
 * lock. */
extern _Atomic unsigned ms_exports_ripe;
void ms_exports_reap_slowly(void);
static inline void ms_exports_reap(void)
{
    if (__builtin_expect(atomic_load_explicit(&ms_exports_ripe, memory_order_relaxed) != 0, 0)) {
        ms_exports_reap_slowly();
    }
}

/* The process ends: other processes find it no more. */
void ms_exports_end(void);

/* Blocks of the device's pool went with their context: drops their names. */
void ms_exports_prune(struct ms_device *device);

#endif
