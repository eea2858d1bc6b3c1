/* SPDX-License-Identifier: Apache-2.0 */
/* The real driver's table of device operations (allocator/device/device_ops.h). */
#ifndef MEMSHIM_SHIM_DEVICE_OPERATIONS_DRIVER_OPS_H
#define MEMSHIM_SHIM_DEVICE_OPERATIONS_DRIVER_OPS_H

#include "shim/device/device.h"

/* Fills device->ops and granule_bytes. handle and total_bytes are set. An error: the driver did not
 * say whether the device can map memory. */
CUresult ms_driver_ops_init(struct ms_device *device);

#endif
