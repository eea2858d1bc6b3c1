/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that lie on the host from the start: for devices that cannot have host memory under the
 * addresses of what lives already. Only memory that cuMemAlloc is asked for; never charged. */
#ifndef MEMSHIM_SHIM_POLICY_HOST_BLOCKS_H
#define MEMSHIM_SHIM_POLICY_HOST_BLOCKS_H

#include "shim/device/context.h"
#include "shim/device/device.h"
#include "shim/device/ledger.h"

/* Managed memory that prefers the host, else pinned host memory, in the current context. False:
 * the device has neither, or MEMSHIM_SPILL_LIMIT is reached. site: that asks for it. */
bool ms_host_block_alloc(struct ms_device *device, uint64_t bytes, uint32_t site,
                         CUdeviceptr_v2 *out);

/* Whether the grant names such a block. */
bool ms_host_block_is(const struct ms_grant *grant);

/* The driver is asked to free it; it has been taken from the ledger. */
CUresult ms_host_block_free(const struct ms_grant *grant);

/* The same in the order of a stream: it is freed at a later allocation or ms_host_block_free, once
 * the work queued on the stream up to now is done. Does not wait. */
CUresult ms_host_block_free_after(const struct ms_grant *grant, ms_stream_t stream);

/* The block around addr, as the application asked for it; false: none such lies there. */
bool ms_host_block_at(CUdeviceptr_v2 addr, struct ms_device **device, struct ms_block_info *out);

/* It is gone: so is what it counted for. */
void ms_host_block_gone(const struct ms_grant *grant);

#endif
