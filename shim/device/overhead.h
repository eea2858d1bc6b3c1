/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver takes by itself, measured around the calls in which it does.
 *
 * If NVML says what this process uses, that is compared. Otherwise (in a container that sees other
 * process ids than NVML, on a MIG device, without NVML) the device's free memory is compared. That
 * is an estimate, because it includes what other processes take and give back at the same moment.
 * So it is limited to what is plausible, errs on the side of charging, and is checked again later
 * (ms_overhead_give_back). What the driver holds for graphs is left out of all figures: it comes
 * and goes with other threads' launches, and is charged by itself (graph_memory.h). While other
 * threads change it all the time nothing is measured. */
#ifndef MEMSHIM_SHIM_DEVICE_OVERHEAD_H
#define MEMSHIM_SHIM_DEVICE_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/device/device.h"

struct ms_context;

/* If only the device's free memory could be compared, more than this was taken by somebody else. */
#define MS_OVERHEAD_MOST_BYTES (2ULL << 30)

/* Begin, make the call, end. ms_measure_end returns how many more bytes the driver uses, less what
 * memshim was charged for meanwhile; negative if the driver gave memory back; 0 if nothing could be
 * measured. Nothing is measured while a stream captures. */
enum ms_measure_by {
    MS_MEASURE_NOTHING,
    MS_MEASURE_BY_DRIVER, /* what all processes use, by the driver */
    MS_MEASURE_BY_NVML,   /* the same by NVML: before there is a context */
    MS_MEASURE_BY_OWN     /* what this process uses, by NVML */
};

struct ms_measure {
    struct ms_device *device;
    uint64_t used_bytes, own_bytes, charged_bytes; /* without what is held for graphs */
    enum ms_measure_by by; /* source of used_bytes, which MS_MEASURE_BY_OWN does not need */
    bool own_known;        /* NVML lists processes; own_bytes is 0 if this one is not listed yet */
};
void ms_measure_begin(struct ms_device *device, struct ms_measure *measure);
int64_t ms_measure_end(const struct ms_measure *measure);

/* Ends the measurement and charges the context with what was taken. Threads that measure at the
 * same time charge the same bytes only once. Returns what ms_measure_end does. */
int64_t ms_measure_charge(const struct ms_measure *measure, struct ms_context *context,
                          enum ms_charge_reason reason);

/* How much of the device all processes use. False: not known now. */
bool ms_device_used_bytes(struct ms_device *device, uint64_t *used_bytes);

/* Charges the context with bytes that the driver took, and discharges them. */
void ms_overhead_charge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes);
void ms_overhead_discharge(struct ms_context *context, enum ms_charge_reason reason,
                           uint64_t bytes);

/* Checks whether contexts are charged with more than this process can have taken, because a
 * measurement included another process's memory, and discharges the surplus. True if there was any,
 * also if another thread discharged it meanwhile. Takes a few milliseconds then. The caller holds
 * no lock of this room. */
bool ms_overhead_give_back(struct ms_device *device);

/* The driver is about to make a context, for which it asks nobody. If it is known what one takes
 * (from the first on the device, or from other members of a group), makes that much room and sets
 * it aside. False: there is no room, and the context must not be made. `device` may be null.
 * *kept_bytes: what was set aside. The caller holds no lock. */
bool ms_overhead_expect_context(struct ms_device *device, uint64_t *kept_bytes);

/* What a context took that was just made. If NVML does not say what this process uses, the
 * measurement includes other members' calls; then the figure of earlier contexts counts. */
int64_t ms_overhead_of_context(const struct ms_device *device, const struct ms_measure *measure,
                               uint64_t kept_bytes);

/* The context was made and charged, or (taken_bytes is 0) was not: releases what was set aside. */
void ms_overhead_context_made(struct ms_device *device, uint64_t kept_bytes, int64_t taken_bytes);

/* The cost of a context that was not measured at its creation. */
uint64_t ms_overhead_guess(struct ms_device *device);

#endif
