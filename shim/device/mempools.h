/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's memory pools as the application sees them. Our pool serves a device's default pool,
 * and every pool that lives on a device and cannot be exported; each keeps accounts of its own. The
 * driver serves the others, and each is charged for what it holds reserved. */
#ifndef MEMSHIM_SHIM_DEVICE_MEMPOOLS_H
#define MEMSHIM_SHIM_DEVICE_MEMPOOLS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/device/addresses/ledger.h"
#include "shim/device/device.h"

/* The list is walked without a lock, so a record is never freed. A destroyed pool's record is used
 * again once none of its blocks is left and so many other pools were destroyed that no thread which
 * found it before can still be reading it. */
struct ms_mempool {
    struct ms_holder holder; /* of its blocks, if it is served; first, as in struct ms_context */
    _Atomic(CUmemoryPool) handle;
    struct ms_mempool *next;      /* never changes */
    _Atomic int ordinal;          /* of its device; -1: not on a device */
    _Atomic bool served;          /* by our pool, if its device has one */
    _Atomic bool destroyed;       /* set under `lock`, when no thread is asking the driver about the
                                     pool */
    uint64_t ended;               /* its number among the destroyed pools; 0: none. Guarded by the
                                     list's lock */
    _Atomic bool no_stream_waits; /* CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES is 0 */
    _Atomic uint64_t reserved_high_bytes;
    _Atomic uint64_t outside_blocks; /* of the driver's own pool: live ones that the ledger has */

    ms_lock_t lock;         /* of the next two */
    uint64_t asking_bytes;  /* charged for calls that the driver has not answered yet */
    uint64_t charged_bytes; /* in all, to MS_OWNER_FORWARDED */
};

/* The pool that cuMemAllocAsync on this device takes from now. An error is that of the query that
 * failed, or CUDA_ERROR_OUT_OF_MEMORY without host memory; *out is null then, and the error is not
 * kept. */
CUresult ms_mempool_current(struct ms_device *device, struct ms_mempool **out);

/* The pool of this handle; makes its record if there is none. Errors likewise. */
CUresult ms_mempool_of(CUmemoryPool handle, struct ms_mempool **out);

/* Before one of the driver's pools is asked for `bytes`: charges the most that it may take for
 * them, which *asked_bytes gets; nothing, where there is not that much and the cap is the device.
 * False: over the cap. */
bool ms_mempool_charge(struct ms_mempool *pool, uint64_t bytes, uint64_t *asked_bytes);

/* After the driver's answer, whatever it was: corrects the charge to what the driver's pool holds
 * reserved. asked_bytes: as charged before; 0 after a free or a trim. */
void ms_mempool_correct(struct ms_mempool *pool, uint64_t asked_bytes);

/* Corrects the charges of all of the driver's pools of the device: at a synchronization the driver
 * gives back what they hold beyond their thresholds. */
void ms_mempools_correct(const struct ms_device *device);

/* Gives back what the driver's pools of the device hold reserved and unused; returns how much. */
uint64_t ms_mempools_trim(const struct ms_device *device);

/* The record of this handle's pool; null if there is none. */
struct ms_mempool *ms_mempool_find(CUmemoryPool handle);

/* The record; makes it if there is none; null: no host memory. ordinal: of its device, -1: none. */
struct ms_mempool *ms_mempool_add(CUmemoryPool handle, int ordinal, bool served,
                                  uint64_t max_bytes);

/* The program may make another pool the current one of this device. */
void ms_mempool_forget_current(int ordinal);

/* The driver is about to be asked to destroy the pool. Afterwards it may give the handle to
 * another. */
void ms_mempool_going(struct ms_mempool *pool);

/* The pool is destroyed. Discharges what the driver's pool held, once none of its blocks is left:
 * until then "the resources associated with the pool" stay (cuda.h, cuMemPoolDestroy). */
void ms_mempool_end(struct ms_mempool *pool);

/* Of a served pool: what it holds reserved now, and the most that was in use. */
uint64_t ms_mempool_reserved_bytes(struct ms_mempool *pool);
uint64_t ms_mempool_used_high_bytes(struct ms_mempool *pool);

#endif
