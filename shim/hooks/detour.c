/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a call again from a context that can access the memory. */
#include "shim/hooks/detour.h"

#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/driver/driver.h"
#include "shim/hooks/peer.h"
#include "shim/process/guard.h"

static bool has_access(const struct ms_device *here, const struct ms_device *there)
{
    return here == there || ((atomic_load(&there->access_mask) >> here->ordinal) & 1);
}

static bool can_access(const struct ms_device *here, const struct ms_device *there)
{
    int can = 0;
    return ms_driver()->cuDeviceCanAccessPeer(&can, here->handle, there->handle) == CUDA_SUCCESS &&
           can != 0;
}

/* The device of a block that `here` cannot access; null if there is none. */
static struct ms_device *out_of_reach(const struct ms_device *here, const uint64_t *values,
                                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ms_device *there = ms_device_holding(values[i]);
        if (there != NULL && !has_access(here, there)) {
            return there;
        }
    }
    return NULL;
}

/* Waits for the work on the current context's default streams. */
static CUresult settle_default_streams(void)
{
    const CUresult result = ms_driver()->cuStreamSynchronize(CU_STREAM_LEGACY);
    return result == CUDA_SUCCESS ? ms_driver()->cuStreamSynchronize(CU_STREAM_PER_THREAD) : result;
}

/* Gives the devices in use access to the blocks, where they can have it: the call may name a stream
 * of another device than the current one. False: nothing changed. */
static bool give_access(const uint64_t *values, size_t count)
{
    bool given = false;
    for (size_t i = 0; i < count; i++) {
        struct ms_device *there = ms_device_holding(values[i]);
        for (int d = 0; there != NULL && d < MS_DEVICES_MAX; d++) {
            const struct ms_device *here = ms_device_get(d);
            given = (here != NULL && !has_access(here, there) && can_access(here, there) &&
                     ms_peer_pool_access(there, d, true) == CUDA_SUCCESS) ||
                    given;
        }
    }
    return given;
}

bool ms_detour_again(struct ms_detour *detour, const uint64_t *values, size_t count)
{
    if (ms_devices_used() < 2 || detour->taken == MS_DETOUR_CONTEXT) {
        return false;
    }
    detour->guarded = detour->guarded || ms_guard_enter_here();
    if (detour->taken == MS_DETOUR_NONE) {
        detour->taken = MS_DETOUR_ACCESS;
        if (give_access(values, count)) {
            return true;
        }
    }
    const struct ms_device *here = ms_device_current();
    struct ms_device *there = here != NULL ? out_of_reach(here, values, count) : NULL;
    if (there == NULL) {
        return false;
    }
    detour->taken = MS_DETOUR_CONTEXT;
    /* To wait for the default streams could invalidate a capture; to give access cannot. */
    if (ms_captures_running() || settle_default_streams() != CUDA_SUCCESS) {
        return false;
    }
    ms_scope_enter(there, &detour->scope);
    detour->entered = true;
    return true;
}

CUresult ms_detour_end(struct ms_detour *detour, CUresult result)
{
    if (detour->entered) {
        /* The call failed because it named a stream of the other context. */
        result = result == CUDA_SUCCESS ? settle_default_streams() : CUDA_ERROR_INVALID_VALUE;
        ms_scope_leave(&detour->scope);
    }
    if (detour->guarded) {
        ms_guard_leave();
    }
    return result;
}
