/* What the driver takes by itself: measured as the change of its free memory around a call.
 *
 * The figure is an estimate: what other processes take in the same instant is in it. So it is
 * bounded where more is not plausible, and errs on the side of charging. */
#ifndef MEMSHIM_SHIM_SERVE_OVERHEAD_H
#define MEMSHIM_SHIM_SERVE_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/serve/device.h"

struct ms_context;

/* Begin, call, end. end: by how many bytes more the driver uses, less what memshim itself was
 * charged for meanwhile; negative where it gave back; 0 where nothing could be measured. Nothing is
 * measured while a stream captures. */
struct ms_measure {
    struct ms_device *device; /* null: not measured */
    uint64_t used_bytes;
    uint64_t charged_bytes;
    bool by_nvml;
};
void ms_measure_begin(struct ms_device *device, struct ms_measure *measure);
int64_t ms_measure_end(const struct ms_measure *measure);

/* How much of the device is in use, by everybody. False where that is not known now. */
bool ms_device_used_bytes(struct ms_device *device, uint64_t *used_bytes);

/* Charges the context with bytes that the driver took, and gives them back. */
void ms_overhead_charge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes);
void ms_overhead_discharge(struct ms_context *context, enum ms_charge_reason reason,
                           uint64_t bytes);

/* What a context costs that was not measured at its creation. */
uint64_t ms_overhead_guess(struct ms_device *device);

#endif
