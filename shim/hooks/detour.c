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

/* An event behind the stream's work; null if there is none. */
static CUevent event_behind(CUstream stream)
{
    CUevent event = NULL;
    if (ms_driver()->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return NULL;
    }
    if (ms_driver()->cuEventRecord(event, stream) != CUDA_SUCCESS) {
        (void)ms_driver()->cuEventDestroy_v2(event);
        return NULL;
    }
    return event;
}

/* The stream waits for the event, which may go at once: the wait stays (cuda.h,
 * cuEventDestroy). */
static bool wait_for(CUstream stream, CUevent event)
{
    const CUresult result = ms_driver()->cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
    (void)ms_driver()->cuEventDestroy_v2(event);
    return result == CUDA_SUCCESS;
}

/* A stream of the current context behind the event. It has a record, as streams of the program's
 * have, so that fences and standstills include its work. Null: there is none. */
static CUstream branch_behind(CUevent event)
{
    struct ms_stream_view view;
    CUstream branch = NULL;
    if (MS_REAL(cuStreamCreate)(&branch, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        (void)ms_driver()->cuEventDestroy_v2(event);
        return NULL;
    }
    const bool waits = wait_for(branch, event);
    if (ms_stream_resolve(branch, false, &view) != CUDA_SUCCESS || !waits) {
        (void)ms_stream_destroy(branch, MS_REAL(cuStreamDestroy_v2));
        return NULL;
    }
    return branch;
}

/* The call names this stream of another device than the memory's: makes it name a branch of it. A
 * stream that captures is left alone, for the branch would have to outlive the capture. */
static bool take_branch(struct ms_detour *detour, const uint64_t *values, size_t count,
                        CUstream *stream)
{
    struct ms_stream_view named;
    struct ms_stream_use use;
    CUstreamCaptureStatus captures = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    struct ms_device *there = NULL;
    CUevent event = NULL;
    if (ms_stream_resolve(*stream, false, &named) == CUDA_SUCCESS && named.context != NULL) {
        there = out_of_reach(named.context->device, values, count);
    }
    if (there == NULL || !ms_stream_enter(named.id, &use)) {
        return false;
    }
    if (ms_driver()->cuStreamIsCapturing(use.handle, &captures) == CUDA_SUCCESS &&
        captures == CU_STREAM_CAPTURE_STATUS_NONE) {
        event = event_behind(use.handle);
    }
    ms_stream_leave(&use);
    if (event == NULL) {
        return false;
    }
    ms_scope_enter(there, &detour->scope);
    detour->entered = true;
    detour->branch = branch_behind(event);
    detour->named = named.id;
    *stream = detour->branch;
    return detour->branch != NULL;
}

/* What follows on the named stream comes after the call. */
static void join_branch(struct ms_detour *detour)
{
    struct ms_stream_use use;
    CUevent event = event_behind(detour->branch);
    bool joined = false;
    if (event != NULL && ms_stream_enter(detour->named, &use)) {
        joined = wait_for(use.handle, event);
        ms_stream_leave(&use);
    }
    if (!joined) {
        (void)ms_driver()->cuStreamSynchronize(detour->branch);
    }
    (void)ms_stream_destroy(detour->branch, MS_REAL(cuStreamDestroy_v2));
}

static bool is_default(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool ms_detour_again(struct ms_detour *detour, const uint64_t *values, size_t count,
                     CUstream *stream)
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
    detour->taken = MS_DETOUR_CONTEXT;
    if (stream != NULL && !is_default(*stream)) {
        return take_branch(detour, values, count, stream);
    }
    const struct ms_device *here = ms_device_current();
    struct ms_device *there = here != NULL ? out_of_reach(here, values, count) : NULL;
    /* To wait for the default streams could invalidate a capture; to give access cannot. */
    if (there == NULL || ms_captures_running() || settle_default_streams() != CUDA_SUCCESS) {
        return false;
    }
    ms_scope_enter(there, &detour->scope);
    detour->entered = true;
    return true;
}

CUresult ms_detour_end(struct ms_detour *detour, CUresult result)
{
    if (detour->branch != NULL) {
        join_branch(detour);
    } else if (detour->entered && result == CUDA_SUCCESS) {
        result = settle_default_streams();
    }
    if (detour->entered) {
        ms_scope_leave(&detour->scope);
    }
    if (detour->guarded) {
        ms_guard_leave();
    }
    return result;
}
