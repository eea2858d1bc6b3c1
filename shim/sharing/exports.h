/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pool that other processes open: its names, and how long it stays. A name is of a
 * block, or of neighbouring pages that the program maps and unmaps by itself.
 *
 * What has a name is pinned in place. If the program frees or unmaps it while another process has
 * it open, it stays as it is until that process closes it or ends. It goes back to the pool at the
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

struct ms_export_page {
    void *page; /* the caller's */
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    bool taken; /* it has its first name, and is let go once it is unmapped and open nowhere */
};

struct ms_export_pages {
    struct ms_export_page *list; /* in the order of addresses, without a gap */
    size_t count;
    /* Pins a page and visits its chunks. They stay behind it until it is let go. MS_ERR_NOT_OURS:
     * it is not mapped any more. */
    ms_status_t (*visit)(void *page, const struct ms_chunk_visitor *visitor);
    void (*let)(void *page); /* called without a lock */
};

/* The name of pages of the device's pool, which the caller keeps alive; the same pages have the
 * same name. Says in the list which pages are taken. CUDA_ERROR_INVALID_VALUE: a page is not mapped
 * any more. */
CUresult ms_exports_name_pages(struct ms_device *device, const struct ms_export_pages *pages,
                               CUipcMemHandle_v1 *out);

/* The name of `count` pages from addr on, if they have one; false: they have none. */
bool ms_exports_find_pages(CUdeviceptr_v2 addr, size_t count, CUipcMemHandle_v1 *out);

/* Whether the handle names memory of this process. */
bool ms_exports_own(const CUipcMemHandle_v1 *handle);

/* The program frees the block. Returns whether the pool may take it now. */
enum ms_exports_free {
    MS_EXPORTS_NOW,   /* yes; it has no name any more */
    MS_EXPORTS_LATER, /* no: another process has it open; ms_exports_reap gives it back */
    MS_EXPORTS_TWICE  /* the program has freed it already */
};
extern _Atomic unsigned ms_exports_count; /* number of names */
enum ms_exports_free ms_exports_freed_slowly(const struct ms_device *device, CUdeviceptr_v2 addr);
static inline enum ms_exports_free ms_exports_freed(const struct ms_device *device,
                                                    CUdeviceptr_v2 addr)
{
    return atomic_load_explicit(&ms_exports_count, memory_order_relaxed) == 0
               ? MS_EXPORTS_NOW
               : ms_exports_freed_slowly(device, addr);
}

/* The program has unmapped all pages of the range. Names that covered them are of the others from
 * now on, and end with the last. The caller holds no lock. */
void ms_exports_unmapped_slowly(CUdeviceptr_v2 addr, uint64_t bytes);
static inline void ms_exports_unmapped(CUdeviceptr_v2 addr, uint64_t bytes)
{
    if (atomic_load_explicit(&ms_exports_count, memory_order_relaxed) != 0) {
        ms_exports_unmapped_slowly(addr, bytes);
    }
}

/* Whether the program has freed the block at addr, which stays because another process has it
 * open. */
extern _Atomic unsigned ms_exports_kept; /* number of names that have ended so */
bool ms_exports_keep_slowly(const struct ms_device *device, CUdeviceptr_v2 addr);
static inline bool ms_exports_keep(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    return __builtin_expect(atomic_load_explicit(&ms_exports_kept, memory_order_relaxed) != 0, 0) &&
           ms_exports_keep_slowly(device, addr);
}

/* Gives freed blocks and unmapped pages that are no longer open anywhere back to the pool. The
 * caller holds no lock. */
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
