/* SPDX-License-Identifier: Apache-2.0 */
/* Samples the whole device: what is free on it, and which other processes have memory there. The
 * report cannot know that from this process alone. */
#ifndef MEMSHIM_SHIM_DEVICE_SAMPLE_H
#define MEMSHIM_SHIM_DEVICE_SAMPLE_H

#include "report/trace/verdict.h"
#include "shim/device/device.h"

/* Emits MS_EVENT_SAMPLE if the driver answers now. Asks the driver and NVML, so it is never on the
 * hot path: ms_device_cross_threshold calls it when charged bytes have risen by 1/64 of the device.
 * Does nothing while a stream captures. */
void ms_device_sample(struct ms_device *device);

/* Measures what the device has room for (ms_device_limit_bytes), with one question to the driver; a
 * sample does it, too. Does nothing while a stream captures. False: not known. */
bool ms_device_measure_room(struct ms_device *device);

/* Which other processes have memory on the device, by name. */
void ms_device_others(const struct ms_device *device, struct ms_others *others);

#endif
