/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a device (stats.def). They are read from its budget and its pool, so they need
 * no trace. */
#ifndef MEMSHIM_SHIM_DEVICE_STATISTICS_H
#define MEMSHIM_SHIM_DEVICE_STATISTICS_H

#include "shim/device/device.h"
#include "shim/memshim.h"

/* From any thread; the caller holds no lock of a pool. */
void ms_statistics_read(struct ms_device *device, struct memshim_stats *out);

/* Reserved bytes in whole granules of a framework's segments without a live tensor: its cache,
 * which it reuses or gives back. 0 if unknown (without a pool). */
uint64_t ms_statistics_cached_bytes(struct ms_device *device);

#endif
