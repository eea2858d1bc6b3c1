/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the pool that other processes open: their names, and for how long they stay.
 *
 * A block that was exported is pinned where it is. One that is freed while another process has it
 * open stays as it is until that one closes it, or ends: the program has freed it, and the pool has
 * not got it back yet. It goes back at the next call that allocates, frees or asks.
 *
 * The thread that answers other processes starts at the first export. It takes the lock of these
 * tables alone, which nobody holds while he waits. Thread-safe. */
#ifndef MEMSHIM_SHIM_SHARING_EXPORTS_H
#define MEMSHIM_SHIM_SHARING_EXPORTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/device/device.h"

/* The name of the live block of the device's pool that holds addr; always the same one for a block.
 * CUDA_ERROR_NOT_SUPPORTED: it cannot be shared. */
CUresult ms_exports_name(struct ms_device *device, CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out);

/* Whether the handle is of a block of this process. */
bool ms_exports_own(const CUipcMemHandle_v1 *handle);

/* The program frees the block: whether the pool gets it now. */
enum ms_exports_free {
    MS_EXPORTS_NOW,   /* yes; it has no name any more */
    MS_EXPORTS_LATER, /* no: another process has it open, and ms_exports_reap gives it back */
    MS_EXPORTS_TWICE  /* the program has freed it before */
};
extern _Atomic unsigned ms_exports_count; /* blocks that have names */
enum ms_exports_free ms_exports_freed_slowly(const struct ms_device *device, CUdeviceptr_v2 addr);
static inline enum ms_exports_free ms_exports_freed(const struct ms_device *device,
                                                    CUdeviceptr_v2 addr)
{
    return atomic_load_explicit(&ms_exports_count, memory_order_relaxed) == 0
               ? MS_EXPORTS_NOW
               : ms_exports_freed_slowly(device, addr);
}

/* Gives back what was freed and is open nowhere any more. No lock is held. */
extern _Atomic unsigned ms_exports_ripe;
void ms_exports_reap_slowly(void);
static inline void ms_exports_reap(void)
{
    if (__builtin_expect(atomic_load_explicit(&ms_exports_ripe, memory_order_relaxed) != 0, 0)) {
        ms_exports_reap_slowly();
    }
}

/* The process ends: others find it no more. */
void ms_exports_end(void);

/* Blocks of the device's pool have gone with their context: those have no names any more. */
void ms_exports_prune(struct ms_device *device);

#endif
