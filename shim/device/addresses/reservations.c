/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the application's address reservations, with the access given to each. */
#include "shim/device/addresses/reservations.h"

#include <string.h>

#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/ranges.h"
#include "shim/device/addresses/reach.h"
#include "shim/tables/options.h"

static struct ms_ranges all MS_GUARDED_BY(*MS_LOCK(RESERVATIONS)) = {
    .entry_bytes = sizeof(struct ms_reservation)};

MS_RANGES_HOLD(struct ms_reservation);

static struct ms_reservation *at_locked(CUdeviceptr_v2 addr) MS_REQUIRES(*MS_LOCK(RESERVATIONS))
{
    size_t i = ms_ranges_place(&all, addr);
    struct ms_reservation *found = (struct ms_reservation *)all.entries + i;
    return i < all.count && found->addr <= addr ? found : NULL;
}

bool ms_reservations_add(const struct ms_reservation *reservation)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    bool fits = ms_ranges_insert(&all, reservation);
    ms_lock_release(MS_LOCK(RESERVATIONS));
    return fits;
}

bool ms_reservations_take(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_reservation *out)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    struct ms_reservation *found = at_locked(addr);
    bool taken = found && found->addr == addr && found->bytes == bytes;
    if (taken) {
        *out = *found;
        ms_ranges_remove(&all, (size_t)(found - (struct ms_reservation *)all.entries), 1);
    }
    ms_lock_release(MS_LOCK(RESERVATIONS));
    return taken;
}

bool ms_reservations_at(CUdeviceptr_v2 addr, uint64_t bytes, struct ms_reservation *out)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    const struct ms_reservation *found = at_locked(addr);
    bool whole = found && bytes <= found->bytes - (addr - found->addr);
    if (whole) {
        *out = *found;
    }
    ms_lock_release(MS_LOCK(RESERVATIONS));
    return whole;
}

void ms_reservations_note_proxies(CUdeviceptr_v2 addr, struct ms_device *device)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    struct ms_reservation *found = at_locked(addr);
    if (found) {
        found->proxies = device;
        ms_reach_add(found->addr, found->bytes);
    }
    ms_lock_release(MS_LOCK(RESERVATIONS));
}

void ms_reservations_note_framework(CUdeviceptr_v2 addr, struct ms_reservation *out)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    struct ms_reservation *found = at_locked(addr);
    if (found && addr - found->addr < found->bytes) {
        found->framework = true;
        *out = *found;
    }
    ms_lock_release(MS_LOCK(RESERVATIONS));
}

static bool apply(struct ms_access *access, const CUmemAccessDesc_v1 *desc)
{
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc->location.id < 0 ||
        desc->location.id >= MS_DEVICES_MAX) {
        return false;
    }
    uint64_t bit = 1ULL << desc->location.id;
    access->read_write &= ~bit;
    access->read &= ~bit;
    access->none &= ~bit;
    switch (desc->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        access->read_write |= bit;
        return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
        access->read |= bit;
        return true;
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
        access->none |= bit;
        return true;
    default:
        return false;
    }
}

bool ms_reservations_grant(CUdeviceptr_v2 addr, const CUmemAccessDesc_v1 *desc, size_t desc_count,
                           struct ms_access *before)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    struct ms_reservation *found = at_locked(addr);
    bool sound = found && desc && desc_count != 0;
    struct ms_access access = found ? found->access : (struct ms_access){0};
    *before = access;
    for (size_t i = 0; sound && i < desc_count; i++) {
        sound = apply(&access, &desc[i]);
    }
    if (sound) {
        found->access = access;
    }
    ms_lock_release(MS_LOCK(RESERVATIONS));
    return sound;
}

void ms_reservations_put_back(CUdeviceptr_v2 addr, const struct ms_access *before)
{
    ms_lock_acquire(MS_LOCK(RESERVATIONS));
    struct ms_reservation *found = at_locked(addr);
    if (found) {
        found->access = *before;
    }
    ms_lock_release(MS_LOCK(RESERVATIONS));
}

CUmemAccess_flags ms_access_of(const struct ms_access *access, int ordinal)
{
    uint64_t bit = 1ULL << ordinal;
    if (access->read_write & bit) {
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return (access->read & bit) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

size_t ms_access_list(const struct ms_access *access, CUmemAccessDesc_v1 *desc)
{
    size_t named = 0;
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        uint64_t bit = 1ULL << d;
        if ((access->read_write | access->read | access->none) & bit) {
            memset(&desc[named], 0, sizeof desc[named]);
            desc[named].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            desc[named].location.id = d;
            desc[named].flags = ms_access_of(access, d);
            named++;
        }
    }
    return named;
}
