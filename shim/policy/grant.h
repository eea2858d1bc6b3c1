/* SPDX-License-Identifier: Apache-2.0 */
/* Granting memory to the application and taking it back: pool, budget, ledger and events in step.
 */
#ifndef MEMSHIM_SHIM_POLICY_GRANT_H
#define MEMSHIM_SHIM_POLICY_GRANT_H

#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/device/ledger.h"

/* A block of the device's pool, which it has. The error is what the real call gives; an
 * out-of-memory of the device has been recorded. */
CUresult ms_grant_block(struct ms_device *device, struct ms_holder *holder, ms_stream_t stream,
                        uint64_t bytes, CUdeviceptr_v2 *out);

/* The block of a pool that begins there; false where there is none. The device whose pool has the
 * address, found or not; null where no pool has it. */
bool ms_find_block(CUdeviceptr_v2 addr, struct ms_device **device, struct ms_block_info *block);

/* Back to the pool that it is of, in the order of the stream; that of `likely` (may be null) is
 * asked first. False: no pool has a block that begins there. */
bool ms_release_block(struct ms_device *likely, CUdeviceptr_v2 addr, ms_stream_t stream);

/* A framework has given a segment or a page of its own back, by a call on this thread: who made it
 * is recorded in the trace. The guard is set and no lock is held. */
void ms_note_given_back(uint8_t device, CUdeviceptr_v2 addr, uint64_t bytes);

/* How the driver takes what a forwarded allocation needs, which decides what is charged for it. */
enum ms_taking {
    MS_TAKING_SLABS, /* by address, small ones several in a slab (pages.h) */
    MS_TAKING_SMALL, /* small, of unknown address: together, in whole slabs */
    MS_TAKING_WHOLE, /* by itself */
    /* Nothing of the device's (host_blocks.h): */
    MS_TAKING_MANAGED_HOST,
    MS_TAKING_PINNED_HOST
};

/* A call that the driver answers and that takes device memory.
 *
 *   begin    reserves the most that it may take in the budget, making room where that helps; an
 *            out-of-memory otherwise, recorded: the driver must not be called. But where there is
 *            no room for a call that cannot succeed anyway, because it asks for more than the
 *            device has or is not `sound`, its words are the driver's, to whom such a call may be
 *            an invalid one: that is `hopeless`, and reserves nothing.
 *   retry    true, once, where the driver ran out of memory and the pool has made room since.
 *   end      on success corrects the charge to what the driver took, and notes the grant; on
 *            failure gives all back. What a driver grants of the hopeless is given back by `undo`,
 *            and is out of memory. Returns the result that the application gets. */
struct ms_forward {
    struct ms_device *device;
    struct ms_context *context;
    uint64_t requested_bytes;
    uint64_t charged_bytes;
    uint32_t site;
    enum ms_charge_reason reason;
    enum ms_taking taking;
    bool retried, hopeless;
    void (*undo)(uint64_t name); /* cuMemFree, unless changed after begin */
};
/* sound: false where the call's arguments are known to be refused. */
CUresult ms_forward_begin(struct ms_forward *forward, struct ms_context *context,
                          enum ms_charge_reason reason, enum ms_taking taking,
                          uint64_t requested_bytes, bool sound);
bool ms_forward_retry(struct ms_forward *forward, CUresult result);
/* extent_bytes: how much it turned out to be; 0: as requested. */
CUresult ms_forward_end(struct ms_forward *forward, CUresult result, enum ms_space space,
                        uint64_t name, uint64_t extent_bytes);

struct ms_mempool;

/* A block from one of the driver's own pools, which is charged as a whole. site: that asked for it.
 */
void ms_note_outside(struct ms_device *device, struct ms_mempool *pool, CUdeviceptr_v2 addr,
                     uint64_t bytes, uint32_t site);

/* MS_EVENT_HOST_ALLOC or MS_EVENT_HOST_FREE of memory on the host. */
void ms_grant_emit_host(enum ms_event_kind kind, const struct ms_grant *grant);

/* The driver has freed what this grant names: its charge goes back. The grant has been taken from
 * the ledger. */
void ms_release_forwarded(const struct ms_grant *grant);

/* A framework's tensor was allocated at this address, which no pool serves: the block around it,
 * where the driver has one, becomes an arena. */
void ms_forwarded_arena(CUdeviceptr_v2 addr);

/* The driver is about to be asked to free it, and the grant has been taken from the ledger. That
 * the block is gone is recorded now: once the driver has freed it, another thread may be given its
 * address. */
void ms_forwarded_leaves(const struct ms_grant *grant);

/* The driver was asked: the charge goes back where it did it, otherwise the block is a new one, and
 * back in the ledger. */
void ms_forwarded_freed(const struct ms_grant *grant, CUresult result);

/* Whatever this grant names has died with its context: the above, or the pool's block. */
void ms_release_dead(const struct ms_grant *grant);

#endif
