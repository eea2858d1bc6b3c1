/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a device (stats.def), read from its budget and its pool, so that they are there
 * without a trace, too. */
#ifndef MEMSHIM_SHIM_DEVICE_STATISTICS_H
#define MEMSHIM_SHIM_DEVICE_STATISTICS_H

#include "shim/device/device.h"
#include "shim/memshim.h"

/* Any thread, no lock of a pool held. */
void ms_statistics_read(struct ms_device *device, struct memshim_stats *out);

#endif
