/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals: records the state at that moment in the trace and tells the user. */
#ifndef MEMSHIM_SHIM_POLICY_OOM_H
#define MEMSHIM_SHIM_POLICY_OOM_H

#include "shim/device/device.h"

/* Records that a request was refused; returns CUDA_ERROR_OUT_OF_MEMORY. */
CUresult ms_oom_refuse(struct ms_device *device, uint64_t requested_bytes);

/* What had happened on the device when a request was last tried. Begins as all zeros. */
struct ms_oom_tries {
    uint64_t end_ns; /* CLOCK_MONOTONIC: no more tries from then on; 0: none was refused yet */
    uint64_t calls, charged_bytes;
};

/* The same for a request that can be tried again. False, and nothing is recorded: by the figures
 * that would be, there is room, which another thread gave back after the last try; the caller tries
 * again. So it goes on only while other threads take and give memory, and for MEMSHIM_WAIT_MS at
 * most. piece_bytes: what the driver takes at once for this request. If only the piece had no room,
 * that is what was refused. */
bool ms_oom_refuses(struct ms_device *device, uint64_t requested_bytes, uint64_t piece_bytes,
                    struct ms_oom_tries *tries);

/* The same where the driver refused page-locked host memory; recorded for the device in use. */
void ms_oom_of_host(struct ms_device *device, uint64_t requested_bytes);

/* A request was served on this thread: a later out-of-memory of PyTorch's does not belong to the
 * refusal before it. */
void ms_oom_over(const struct ms_device *device);

/* Notes the driver's answer to a memory call of this thread, and returns it. A framework may give
 * up because of an error that is not out of memory; it is kept until a request is served. */
CUresult ms_oom_answered(CUresult result);
/* A framework has served a request on this thread. */
void ms_oom_tensor_served(void);

/* The framework raises its out-of-memory error for a request of this size. cached_bytes: bytes free
 * in its segments by its own count, if memshim does not see its tensors one by one; otherwise 0.
 * The guard is set. */
void ms_oom_from_torch(int device, uint64_t requested_bytes, uint64_t cached_bytes);

#endif
