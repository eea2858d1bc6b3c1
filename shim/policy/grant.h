/* SPDX-License-Identifier: Apache-2.0 */
/* Grants memory to the application and takes it back, and keeps pool, budget, ledger and events
 * consistent. */
#ifndef MEMSHIM_SHIM_POLICY_GRANT_H
#define MEMSHIM_SHIM_POLICY_GRANT_H

#include "shim/device/addresses/ledger.h"
#include "shim/device/context.h"
#include "shim/device/device.h"

/* Allocates a block of the device's pool, which must exist. Returns the error that the real call
 * would give. An out-of-memory of the device has been recorded. */
CUresult ms_grant_block(struct ms_device *device, struct ms_holder *holder, ms_stream_t stream,
                        uint64_t bytes, CUdeviceptr_v2 *out);

/* Finds the pool's block that begins at addr; false if there is none. Asks the pool of `likely`
 * (may be null) first. *device is the device whose pool holds the address, even if no block begins
 * there; null if no pool holds it. */
bool ms_find_block(struct ms_device *likely, CUdeviceptr_v2 addr, struct ms_device **device,
                   struct ms_block_info *block);

/* Returns the block to its pool, in the order of the stream. Asks the pool of `likely` (may be
 * null) first. False: no pool has a block that begins at addr. */
bool ms_release_block(struct ms_device *likely, CUdeviceptr_v2 addr, ms_stream_t stream);

/* Records in the trace that a framework gave back one of its segments or pages, with the call site
 * of this thread. The guard is set and no lock is held. */
void ms_note_given_back(uint8_t device, CUdeviceptr_v2 addr, uint64_t bytes);

/* How the driver takes the memory for a forwarded allocation. This decides what is charged for
 * it. */
enum ms_taking {
    MS_TAKING_SLABS, /* by address; several small ones share a slab (pages.h) */
    MS_TAKING_SMALL, /* small, address unknown: charged together, in whole slabs */
    MS_TAKING_WHOLE, /* by itself */
    /* No device memory (host_blocks.h): */
    MS_TAKING_MANAGED_HOST,
    MS_TAKING_PINNED_HOST
};

/* A call that the driver answers and that takes device memory.
 *
 *   begin    reserves in the budget the most that the call may take, and makes room if that
 *            helps. Returns out-of-memory, recorded, if there is no room: then the driver must
 *            not be called. Exception: a call that cannot succeed anyway, because it asks for
 *            more than the device has or is not `sound`. The driver may answer it with another
 *            error, so it is marked `hopeless`, reserves nothing, and goes to the driver. So does
 *            a small one that may fit into a slab already charged, if the cap is all of the
 *            device: then the driver itself refuses what is not there. It is marked `sharing`.
 *   retry    true, once, if the driver ran out of memory and the pool has made room since.
 *   end      on success corrects the charge to what the driver took, and notes the grant; on
 *            failure gives all back. If the driver grants a hopeless call, `undo` frees that
 *            memory and the result is out-of-memory; likewise if a sharing call took a slab for
 *            which there is no room. Returns the application's result. */
struct ms_forward {
    struct ms_device *device;
    struct ms_context *context;
    uint64_t requested_bytes;
    uint64_t charged_bytes;
    uint32_t site;
    enum ms_charge_reason reason;
    enum ms_taking taking;
    bool retried, hopeless, sharing;
    void (*undo)(uint64_t name); /* cuMemFree, unless changed after begin */
};
/* sound: false if the driver is known to refuse the call's arguments. */
CUresult ms_forward_begin(struct ms_forward *forward, struct ms_context *context,
                          enum ms_charge_reason reason, enum ms_taking taking,
                          uint64_t requested_bytes, bool sound);
bool ms_forward_retry(struct ms_forward *forward, CUresult result);
/* extent_bytes: the size that the driver turned out to use; 0: as requested. */
CUresult ms_forward_end(struct ms_forward *forward, CUresult result, enum ms_space space,
                        uint64_t name, uint64_t extent_bytes);

/* All of it for cuMemAlloc, answered by the driver; the context is current. */
CUresult ms_forward_alloc(struct ms_context *context, enum ms_charge_reason reason,
                          CUdeviceptr_v2 *dptr, size_t bytes);

struct ms_mempool;

/* Notes a block from one of the driver's own pools. The pool is charged as a whole. site: the call
 * site that asked for the block. */
void ms_note_outside(struct ms_device *device, struct ms_mempool *pool, CUdeviceptr_v2 addr,
                     uint64_t bytes, uint32_t site);

/* Emits MS_EVENT_HOST_ALLOC or MS_EVENT_HOST_FREE for memory on the host. */
void ms_grant_emit_host(enum ms_event_kind kind, const struct ms_grant *grant);

/* A framework allocated a tensor at this address, which no pool serves. The block of the driver's
 * around it, if there is one, becomes an arena. */
void ms_forwarded_arena(CUdeviceptr_v2 addr);

/* Called before the driver frees the memory. The caller has taken the grant from the ledger. The
 * free is recorded now, because another thread may get the address as soon as the driver has freed
 * it. */
void ms_forwarded_leaves(const struct ms_grant *grant);

/* Called with the driver's result. On success the charge goes back. On failure the memory counts as
 * a new block, and the grant returns to the ledger. */
void ms_forwarded_freed(const struct ms_grant *grant, CUresult result);

/* Releases a grant whose context is gone. */
void ms_release_dead(const struct ms_grant *grant);

#endif
