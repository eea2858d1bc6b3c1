/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that lie on the host from the start. They are for devices that cannot map host memory
 * behind the addresses of live memory. They serve cuMemAlloc alone, and are never charged. */
#ifndef MEMSHIM_SHIM_POLICY_HOST_BLOCKS_H
#define MEMSHIM_SHIM_POLICY_HOST_BLOCKS_H

#include "shim/device/addresses/ledger.h"
#include "shim/device/context.h"
#include "shim/device/device.h"

/* Allocates managed memory that prefers the host, otherwise pinned host memory, in the current
 * context. False: the device has neither, or MEMSHIM_SPILL_LIMIT is reached. site: the call site
 * that asks. */
bool ms_host_block_alloc(struct ms_device *device, uint64_t bytes, uint32_t site,
                         CUdeviceptr_v2 *out);

/* Whether the grant names such a block. */
bool ms_host_block_is(const struct ms_grant *grant);

/* Frees it. The caller has taken the grant from the ledger. */
CUresult ms_host_block_free(const struct ms_grant *grant);

/* Frees it in the order of a stream: at a later allocation or ms_host_block_free, once the work
 * queued on the stream so far is done. Does not wait. */
CUresult ms_host_block_free_after(const struct ms_grant *grant, ms_stream_t stream);

/* The block around addr, with the bytes that the application asked for; false: there is none. */
bool ms_host_block_at(CUdeviceptr_v2 addr, struct ms_device **device, struct ms_block_info *out);

/* The block is freed: gives back its share of the host budget, and its fence if it has one. */
void ms_host_block_gone(const struct ms_grant *grant);

#endif
