/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory on the host: how much may go there, when it goes ahead of need and when it comes
 * back, and what is said of it. What is moved, and how, is the pool's (allocator/pool.h). */
#ifndef MEMSHIM_SHIM_POLICY_SPILL_H
#define MEMSHIM_SHIM_POLICY_SPILL_H

#include "shim/device/device.h"

/* What live memory may take of the host, all devices of the process together: what is spilled, and
 * what lies there from the start (host_blocks.h). */
struct ms_budget *ms_spill_budget(void);

/* Fills device->spill_limit_bytes, and what of the pool's configuration follows from it. Whether
 * the device can reach host memory has been found out. */
void ms_spill_configure(struct ms_device *device, struct ms_pool_config *config);

/* For how large a request there is still room to spill. */
uint64_t ms_spill_left_bytes(const struct ms_device *device, const struct ms_pool_stats *stats);

/* Where others have what this device would need of that: gives back what their pools hold of it and
 * need no more, which they find when they are used and may not have been lately. Waits for their
 * work as an allocation may. False: nothing came of it. No lock of a pool is held. */
bool ms_spill_others_give(const struct ms_device *device, uint64_t bytes);

/* Live memory of the device crosses the last threshold: enough of what is cold goes to the host to
 * be below it again. Caches have been trimmed. No lock of a pool is held. */
void ms_spill_ahead(struct ms_device *device, uint64_t level_bytes);

/* Once launches are looked at or a host chunk has been made (device->host_made), after each
 * allocation and allocation: tells the pool what was used, says what has to be said, and brings
 * back what is used soon or has had room for a while. No lock of a pool is held. */
void ms_spill_attend(struct ms_device *device);

#endif
