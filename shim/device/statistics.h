/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a device (stats.def), read from its budget and its pool, so that they are there
 * without a trace, too. */
#ifndef MEMSHIM_SHIM_DEVICE_STATISTICS_H
#define MEMSHIM_SHIM_DEVICE_STATISTICS_H

#include "shim/device/device.h"
#include "shim/memshim.h"

/* Any thread, no lock of a pool held. */
void ms_statistics_read(struct ms_device *device, struct memshim_stats *out);

/* Reserved bytes in whole granules of a framework's segments in which no tensor lives: its cache,
 * which it uses again or gives back. 0 where that is not known (without a pool). */
uint64_t ms_statistics_cached_bytes(struct ms_device *device);

#endif
