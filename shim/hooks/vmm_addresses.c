/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that the program reserves by itself, and access to what is mapped there. */

#include "shim/device/addresses/reservations.h"
#include "shim/device/device.h"
#include "shim/hooks/serve.h"
#include "shim/policy/oom.h"
#include "shim/policy/proxies.h"
#include "shim/process/session.h"

static void emit_range(enum ms_event_kind kind, uint8_t device, CUdeviceptr_v2 addr, uint64_t bytes)
{
    struct ms_event event = {.kind = (uint8_t)kind,
                             .device = device,
                             .owner = MS_OWNER_APPLICATION,
                             .addr = addr,
                             .bytes = bytes};
    ms_session_emit(&event);
}

/* Addresses belong to no device. They are recorded for the current one. */
static CUresult reserve(CUdeviceptr_v2 *ptr, size_t size, size_t alignment, CUdeviceptr_v2 addr,
                        unsigned long long flags)
{
    CUresult result = MS_REAL(cuMemAddressReserve)(ptr, size, alignment, addr, flags);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct ms_device *device = ms_device_current();
    struct ms_reservation reservation = {
        .addr = *ptr, .bytes = size, .recorded = device ? device->ordinal : -1};
    if (!ms_reservations_add(&reservation)) {
        (void)MS_REAL(cuMemAddressFree)(*ptr, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (device) {
        emit_range(MS_EVENT_RANGE_RESERVE, device->ordinal, *ptr, size);
        ms_proxies_reserved(device, *ptr, size);
    }
    return result;
}

CUresult ms_serve_cuMemAddressReserve(CUdeviceptr_v2 *ptr, size_t size, size_t alignment,
                                      CUdeviceptr_v2 addr, unsigned long long flags)
{
    return ms_oom_answered(reserve(ptr, size, alignment, addr, flags));
}

CUresult ms_serve_cuMemAddressFree(CUdeviceptr_v2 ptr, size_t size)
{
    struct ms_reservation reservation;
    if (ms_proxies_in(ptr, size)) {
        return CUDA_ERROR_INVALID_VALUE; /* a page is mapped there, even if nothing backs it */
    }
    bool known = ms_reservations_take(ptr, size, &reservation);
    if (known) {
        ms_proxies_reservation_gone(&reservation);
    }
    CUresult result = MS_REAL(cuMemAddressFree)(ptr, size);
    if (known && result != CUDA_SUCCESS) {
        (void)ms_reservations_add(&reservation); /* there was room for it before */
    } else if (known && reservation.recorded >= 0) {
        emit_range(MS_EVENT_RANGE_FREE, (uint8_t)reservation.recorded, ptr, size);
    }
    return result;
}
