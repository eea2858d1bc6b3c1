/* SPDX-License-Identifier: Apache-2.0 */
/* The application's address reservations, and who may access what is mapped there.
 *
 * Access is kept by reservation, not by mapping: memory that is mapped later behind accessible
 * addresses gets the same access. Thread-safe, no device calls; no other lock is taken under its
 * lock. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_RESERVATIONS_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_RESERVATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/tables/cuda_api.h"

struct ms_device;

/* Bit d: of device d. A device that is in none of them was never named. */
struct ms_access {
    uint64_t read_write, read, none;
};

struct ms_reservation {
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    int recorded;              /* ordinal of the device that got its events; -1: none */
    struct ms_device *proxies; /* the device whose proxies lie in it; null: none */
    struct ms_access access;   /* access to those proxies */
    bool framework;            /* a framework reports what is live in it */
};

/* False: no host memory. */
bool ms_reservations_add(const struct ms_reservation *reservation);
/* Removes the reservation that begins at addr and has this length, and copies it out. */
bool ms_reservations_take(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_reservation *out);

/* The reservation that contains the whole range. */
bool ms_reservations_at(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_reservation *out);

/* Proxies of this device lie in the reservation around addr from now on. */
void ms_reservations_note_proxies(CUdeviceptr_v2 addr, struct ms_device *device);

/* A framework reports what is live in the reservation around addr. *out gets the reservation, and
 * is unchanged if there is none. */
void ms_reservations_note_framework(CUdeviceptr_v2 addr, struct ms_reservation *out);

/* The application asks for this access around addr. False, and nothing noted: it names other things
 * than devices, or unknown flags. *before: the access so far, for ms_reservations_put_back if the
 * device refuses. */
bool ms_reservations_grant(CUdeviceptr_v2 addr, const CUmemAccessDesc_v1 *desc, size_t count,
                           struct ms_access *before);
void ms_reservations_put_back(CUdeviceptr_v2 addr, const struct ms_access *before);

/* The access of one device; NONE if it was never named. */
CUmemAccess_flags ms_access_of(const struct ms_access *access, int ordinal);

/* Fills desc, of MS_DEVICES_MAX entries, with the present access; returns the count. */
size_t ms_access_list(const struct ms_access *access, CUmemAccessDesc_v1 *desc);

#endif
