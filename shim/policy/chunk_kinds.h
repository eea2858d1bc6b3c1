/* SPDX-License-Identifier: Apache-2.0 */
/* Which kinds of chunks the driver makes at all. The chunks behind one of PyTorch's pages need not
 * have the page's properties, and a new page may have none yet. So creating a page does not show
 * whether the driver would have made such a chunk. */
#ifndef MEMSHIM_SHIM_POLICY_CHUNK_KINDS_H
#define MEMSHIM_SHIM_POLICY_CHUNK_KINDS_H

#include "shim/device/device.h"

/* The driver's answer to a chunk of one granule with these properties: CUDA_SUCCESS, or the error
 * by which it refuses the kind. Out of memory is no answer: then this returns CUDA_SUCCESS, and
 * asks anew the next time. Other answers are kept for the process by kind and device, as PyTorch
 * keeps them. Makes driver calls. Thread-safe. */
CUresult ms_chunk_kind_answer(struct ms_device *device, const CUmemAllocationProp_v1 *prop);

#endif
