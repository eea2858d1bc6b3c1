/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver takes by itself: measured around the calls in which it does.
 *
 * Where NVML says what this process uses, that is what is compared. Else (in a container that sees
 * other process ids than NVML, on a MIG device, without NVML) it is the change of the device's free
 * memory: an estimate, since what other processes take and give back in the same instant is in it.
 * So it is bounded where more is not plausible, errs on the side of charging, and is looked at
 * again (ms_overhead_give_back). */
#ifndef MEMSHIM_SHIM_DEVICE_OVERHEAD_H
#define MEMSHIM_SHIM_DEVICE_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/device/device.h"

struct ms_context;

/* Where only the device's free memory could be compared, what is more than this was taken by
 * somebody else. */
#define MS_OVERHEAD_MOST_BYTES (2ULL << 30)

/* Begin, call, end. end: by how many bytes more the driver uses, less what memshim itself was
 * charged for meanwhile; negative where it gave back; 0 where nothing could be measured. Nothing is
 * measured while a stream captures. */
enum ms_measure_by {
    MS_MEASURE_NOTHING,
    MS_MEASURE_BY_DRIVER, /* what everybody uses, as the driver says */
    MS_MEASURE_BY_NVML,   /* likewise, as NVML says: before there is a context */
    MS_MEASURE_BY_OWN     /* what this process uses, as NVML says */
};

struct ms_measure {
    struct ms_device *device;
    uint64_t used_bytes;
    uint64_t own_bytes;
    uint64_t charged_bytes;
    enum ms_measure_by by; /* of used_bytes; MS_MEASURE_BY_OWN: it is not asked for */
    bool own_known; /* NVML lists processes; own_bytes is 0 where this one is not there yet */
};
void ms_measure_begin(struct ms_device *device, struct ms_measure *measure);
int64_t ms_measure_end(const struct ms_measure *measure);

/* Ends, and charges the context with what was taken, if anything was. What threads measure at the
 * same time is charged once. Returns what ms_measure_end does. */
int64_t ms_measure_charge(const struct ms_measure *measure, struct ms_context *context,
                          enum ms_charge_reason reason);

/* How much of the device is in use, by everybody. False where that is not known now. */
bool ms_device_used_bytes(struct ms_device *device, uint64_t *used_bytes);

/* Charges the context with bytes that the driver took, and gives them back. */
void ms_overhead_charge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes);
void ms_overhead_discharge(struct ms_context *context, enum ms_charge_reason reason,
                           uint64_t bytes);

/* Looks whether contexts are charged with more than this process can have taken by itself, which an
 * earlier measurement then took for its own, and gives that back. True where it was anything. Takes
 * a few milliseconds where there is something to give back. No lock of this room may be held. */
bool ms_overhead_give_back(struct ms_device *device);

/* A context is about to be made, which the driver does without asking. Where it is known what one
 * takes (from the first on the device, or from other members' of a group), room for it is made and
 * set aside. False: there is none, and it must not be made. `device` may be null. *kept_bytes: what
 * was set aside. No lock may be held. */
bool ms_overhead_expect_context(struct ms_device *device, uint64_t *kept_bytes);

/* What a context took that was just made. Where NVML does not say what this process uses, other
 * members' calls are in what was measured; then what those before it took counts. */
int64_t ms_overhead_of_context(const struct ms_device *device, const struct ms_measure *measure,
                               uint64_t kept_bytes);

/* It was made and charged, or (taken_bytes is 0) it was not: nothing is set aside any more. */
void ms_overhead_context_made(struct ms_device *device, uint64_t kept_bytes, int64_t taken_bytes);

/* What a context costs that was not measured at its creation. */
uint64_t ms_overhead_guess(struct ms_device *device);

#endif
