/* SPDX-License-Identifier: Apache-2.0 */
/* The address reservations of the application, and who may access what is mapped there.
 *
 * Access is kept by reservation, not by mapping: memory that is mapped later, behind an address
 * that the application has given access to, gets the same. Thread-safe, no device calls; the lock
 * is held for no other. */
#ifndef MEMSHIM_SHIM_DEVICE_RESERVATIONS_H
#define MEMSHIM_SHIM_DEVICE_RESERVATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/device/device.h"

/* Bit d: of device d. A device in none of them was never named. */
struct ms_access {
    uint64_t read_write, read, none;
};

struct ms_reservation {
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    int recorded;              /* ordinal of the device that its events went to; -1: none */
    struct ms_device *proxies; /* whose proxies lie in it; null: there are none */
    struct ms_access access;   /* to those proxies */
    bool framework;            /* one reports what is live in it */
};

/* False: no host memory. */
bool ms_reservations_add(const struct ms_reservation *reservation);
/* Removes the one that begins at addr, where it is so long, and copies it out. */
bool ms_reservations_take(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_reservation *out);

/* The one that all of the range lies in. */
bool ms_reservations_at(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_reservation *out);

/* Proxies of this device lie in the reservation around addr from now on. */
void ms_reservations_note_proxies(CUdeviceptr_v2 addr, struct ms_device *device);

/* A framework reports what is live in the reservation around addr: *out gets that, and stays as it
 * is where there is none. */
void ms_reservations_note_framework(CUdeviceptr_v2 addr, struct ms_reservation *out);

/* The application asks for this access around addr. False, nothing noted: it names something else
 * than devices, or flags that do not exist. *before: what was noted so far, to be put back where
 * the device refuses. */
bool ms_reservations_grant(CUdeviceptr_v2 addr, const CUmemAccessDesc_v1 *desc, size_t count,
                           struct ms_access *before);
void ms_reservations_put_back(CUdeviceptr_v2 addr, const struct ms_access *before);

/* That of one device; NONE where it was never named. */
CUmemAccess_flags ms_access_of(const struct ms_access *access, int ordinal);

/* Fills desc, MS_DEVICES_MAX long, with the access that holds; how many they are. */
size_t ms_access_list(const struct ms_access *access, CUmemAccessDesc_v1 *desc);

#endif
