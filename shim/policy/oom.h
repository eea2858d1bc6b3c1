/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals: the state at that moment, to the trace and to the user. */
#ifndef MEMSHIM_SHIM_POLICY_OOM_H
#define MEMSHIM_SHIM_POLICY_OOM_H

#include "shim/device/device.h"

/* Records that a request was refused; returns CUDA_ERROR_OUT_OF_MEMORY. */
CUresult ms_oom_refuse(struct ms_device *device, uint64_t requested_bytes);

/* Likewise where the driver refused page-locked host memory; recorded for the device in use. */
void ms_oom_of_host(struct ms_device *device, uint64_t requested_bytes);

/* One was served on this thread: an out-of-memory of PyTorch's own from here on is not for the
 * refusal before. */
void ms_oom_over(const struct ms_device *device);

/* What a call is answered by which this thread asks for memory; returns it. An error that is none
 * of memory is what a framework may give up for, until one is served. */
CUresult ms_oom_answered(CUresult result);
/* A framework has served a request on this thread. */
void ms_oom_tensor_served(void);

/* The framework raises its out-of-memory error for a request of this size. cached_bytes: free in
 * its segments by its own count, where its tensors are not seen one by one; else 0. The guard is
 * set. */
void ms_oom_from_torch(int device, uint64_t requested_bytes, uint64_t cached_bytes);

#endif
