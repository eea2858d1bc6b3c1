/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the whole device: what is free on it, and who else has memory there. What the ledger of
 * the report cannot know from this process alone. */
#ifndef MEMSHIM_SHIM_DEVICE_SAMPLE_H
#define MEMSHIM_SHIM_DEVICE_SAMPLE_H

#include "report/trace/verdict.h"
#include "shim/device/device.h"

/* Tells MS_EVENT_SAMPLE, if the driver answers now. Two questions to the driver and to NVML; never
 * on the hot path: ms_device_cross_threshold calls it when charged bytes have risen by 1/64 of the
 * device. Nothing while a stream captures. */
void ms_device_sample(struct ms_device *device);

/* Notes what the device has room for (ms_device_limit_bytes): one question to the driver, also part
 * of a sample. Nothing while a stream captures. False: not known. */
bool ms_device_measure_room(struct ms_device *device);

/* Who else has memory on the device, by name. */
void ms_device_others(const struct ms_device *device, struct ms_others *others);

#endif
