/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks the driver makes at all. Behind a page of PyTorch's stand chunks that need not have
 * the page's properties, or none at first, so its creation alone does not show whether the driver
 * would have made it. */
#ifndef MEMSHIM_SHIM_POLICY_CHUNK_KINDS_H
#define MEMSHIM_SHIM_POLICY_CHUNK_KINDS_H

#include "shim/device/device.h"

/* What the driver answers to a chunk of one granule with these properties, other than out of
 * memory: CUDA_SUCCESS, or the error by which it refuses the kind. Asked once for each kind and
 * device, and remembered for the process; PyTorch remembers it, too. CUDA_SUCCESS also where it
 * could not be found out for want of room, and it is asked anew the next time. Makes driver calls.
 * Thread-safe. */
CUresult ms_chunk_kind_answer(struct ms_device *device, const CUmemAllocationProp_v1 *prop);

#endif
