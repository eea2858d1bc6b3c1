/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's memory pools as the application sees them. A device's default pool, and every pool
 * that lives on a device and cannot be exported, is served from our pool and keeps its own
 * accounts; the others are the driver's, charged by what they hold reserved. */
#ifndef MEMSHIM_SHIM_DEVICE_MEMPOOLS_H
#define MEMSHIM_SHIM_DEVICE_MEMPOOLS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/device/device.h"
#include "shim/device/ledger.h"

/* Never freed: the list is walked without a lock. The record of a destroyed pool becomes another's
 * once none of its blocks is left, and so many others were destroyed since that nobody who found it
 * before is still about to look at it. */
struct ms_mempool {
    struct ms_holder holder; /* of its blocks, where it is served; first, as in struct ms_context */
    _Atomic(CUmemoryPool) handle;
    struct ms_mempool *next;      /* never changes */
    _Atomic int ordinal;          /* of its device; -1: not on a device */
    _Atomic bool served;          /* from our pool, where its device has one */
    _Atomic bool destroyed;       /* set under `lock`: nobody is asking the driver about it then */
    uint64_t ended;               /* its number among the destroyed; 0: none. The list's lock */
    _Atomic bool no_stream_waits; /* CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES is 0 */
    _Atomic uint64_t reserved_high_bytes;

    ms_lock_t lock;         /* of the two below */
    uint64_t asking_bytes;  /* charged for calls that the driver has not answered yet */
    uint64_t charged_bytes; /* in all, to MS_OWNER_FORWARDED */
};

/* The pool that cuMemAllocAsync on this device takes from at present. An error is that of the query
 * that failed, or CUDA_ERROR_OUT_OF_MEMORY where the host has none; *out is null then, and nothing
 * is remembered. */
CUresult ms_mempool_current(struct ms_device *device, struct ms_mempool **out);

/* The pool of this handle, its record made where there is none. Errors likewise. */
CUresult ms_mempool_of(CUmemoryPool handle, struct ms_mempool **out);

/* Before a pool of the driver's is asked for so many bytes: reserves the most that it may take for
 * them; *asked_bytes gets how much that is. False: over the cap. */
bool ms_mempool_charge(struct ms_mempool *pool, uint64_t bytes, uint64_t *asked_bytes);

/* After the answer, whatever it was: the charge becomes what the driver's pool holds reserved.
 * asked_bytes: of the charge; 0 after a free or a trim. */
void ms_mempool_correct(struct ms_mempool *pool, uint64_t asked_bytes);

/* Gives back what the driver's pools of the device hold reserved and nobody uses; how much it was.
 */
uint64_t ms_mempools_trim(const struct ms_device *device);

/* The record of this handle's pool; null where there is none. */
struct ms_mempool *ms_mempool_find(CUmemoryPool handle);

/* The record, made where there is none; null: no host memory. ordinal: of its device, -1: none. */
struct ms_mempool *ms_mempool_add(CUmemoryPool handle, int ordinal, bool served,
                                  uint64_t max_bytes);

/* The program may make another pool the current one of this device. */
void ms_mempool_forget_current(int ordinal);

/* The driver is about to be asked to destroy the pool, and may give its handle to another. */
void ms_mempool_going(struct ms_mempool *pool);

/* It is destroyed. What the driver's pool held is charged no more. */
void ms_mempool_end(struct ms_mempool *pool);

/* Of a served pool: what it holds reserved now, and the most that was in use. */
uint64_t ms_mempool_reserved_bytes(struct ms_mempool *pool);
uint64_t ms_mempool_used_high_bytes(struct ms_mempool *pool);

#endif
