/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory on the host: how much may go there, when it goes ahead of need, when it comes back,
 * and the messages about it. What is moved, and how, is the pool's business (allocator/pool.h). */
#ifndef MEMSHIM_SHIM_POLICY_SPILL_H
#define MEMSHIM_SHIM_POLICY_SPILL_H

#include "shim/device/device.h"

/* The host memory that live memory may use, for all devices of the process together: what is
 * spilled, and blocks that lie there from the start (host_blocks.h). */
struct ms_budget *ms_spill_budget(void);

/* Sets device->spill_limit_bytes and the parts of the pool's configuration that follow from it. It
 * must be known by then whether the device can reach host memory. */
void ms_spill_configure(struct ms_device *device, struct ms_pool_config *config);

/* The largest request for which there is still room to spill. */
uint64_t ms_spill_left_bytes(const struct ms_device *device, const struct ms_pool_stats *stats);

/* If other devices of the process hold host memory that this one needs: makes their pools give back
 * what they need no more. A pool finds that out only when it is used, which may be long ago. Waits
 * for their work as an allocation may. False: nothing came free. The caller holds no lock of a
 * pool. */
bool ms_spill_others_give(const struct ms_device *device, uint64_t bytes);

/* Live memory of the device crosses the last threshold: moves enough cold memory to the host to be
 * below level_bytes again. Caches have been trimmed before. The caller holds no lock of a pool. */
void ms_spill_ahead(struct ms_device *device, uint64_t level_bytes);

/* To be called after each allocation of a block or tensor, once device->host_made is set. Passes
 * uses to the pool, logs what the user must know, and brings back what is used soon or has had room
 * for a while. The caller holds no lock of a pool. */
void ms_spill_attend(struct ms_device *device);

#endif
