/* What stood where when memory ran out. */
#include "shim/serve/oom.h"

#include <string.h>

#include "report/verdict.h"
#include "shim/log.h"
#include "shim/options.h"
#include "shim/serve/look.h"
#include "shim/serve/overhead.h"
#include "shim/serve/spill.h"
#include "shim/serve/stream.h"
#include "shim/session.h"
#include "shim/sites/site.h"

static uint64_t owned(const struct ms_device *device, enum ms_owner owner)
{
    return atomic_load(&device->budget.by_owner_bytes[owner]);
}

/* Why what lies free could not be given elsewhere, if anything does. */
static enum ms_pinned_by pinned_by(const struct ms_device *device, const struct ms_pool_stats *pool,
                                   const struct ms_arenas_stats *tensors)
{
    if (!device->pool) {
        return MS_PINNED_BY_POOL_OFF;
    }
    if (ms_options()->torch == MS_TORCH_OFF) {
        return MS_PINNED_BY_TORCH_OFF;
    }
    if (tensors->frozen_arenas > 0 || ms_captures_running()) {
        return MS_PINNED_BY_CAPTURE;
    }
    if (pool->hole_bytes > ms_device_takeable_bytes(device, pool)) {
        return pool->frozen ? MS_PINNED_BY_NOTHING : MS_PINNED_BY_NO_HOST;
    }
    return MS_PINNED_BY_TENSORS;
}

/* Whether only work that was queued before the frees stood in the way. */
static bool waits_for_work(const struct ms_oom_state *state)
{
    uint64_t wanted = state->requested_bytes > state->refused_bytes ? state->requested_bytes
                                                                    : state->refused_bytes;
    uint64_t to_be_had = state->reclaimable_bytes;
    if (state->cap_bytes > state->charged_bytes) {
        to_be_had += state->cap_bytes - state->charged_bytes;
    }
    return wanted > to_be_had && wanted <= to_be_had + state->pending_bytes;
}

/* refused_bytes: by the ladder, before PyTorch gave up; 0: nothing. Where it refused something, it
 * had taken what it could out of holes. What is left of them is then not to be had, if a graph may
 * replay into some. */
static void fill(struct ms_device *device, enum ms_oom_source source, uint64_t requested_bytes,
                 uint64_t refused_bytes, struct ms_oom_state *state)
{
    const bool refused = source == MS_OOM_DRIVER || refused_bytes != 0;
    memset(state, 0, sizeof *state);
    state->source = (uint8_t)source;
    state->requested_bytes = requested_bytes;
    state->refused_bytes = refused_bytes;
    state->cap_bytes = atomic_load(&device->budget.cap_bytes);
    state->device_total_bytes = device->total_bytes;
    state->pool_bytes = owned(device, MS_OWNER_POOL);
    state->application_bytes = owned(device, MS_OWNER_APPLICATION);
    state->forwarded_bytes = owned(device, MS_OWNER_FORWARDED);
    state->context_bytes = owned(device, MS_OWNER_CONTEXT);
    /* Their sum, not the counter beside them: the report's lines must add up. */
    state->charged_bytes = state->pool_bytes + state->application_bytes + state->forwarded_bytes +
                           state->context_bytes;
    struct ms_arenas_stats tensors;
    struct ms_pool_stats stats = {0};
    ms_arenas_stats(device->arenas, &tensors);
    if (device->pool) {
        ms_pool_stats(device->pool, &stats);
        state->live_bytes = stats.live_bytes - stats.arena_bytes + tensors.live_bytes;
        state->reclaimable_bytes = stats.free_bytes - stats.pending_bytes;
        if (!refused || tensors.frozen_arenas == 0) {
            state->reclaimable_bytes += ms_device_takeable_bytes(device, &stats);
        }
        state->pending_bytes = stats.pending_bytes;
        state->largest_free_bytes = stats.largest_free_bytes;
        state->spill_limit_bytes = device->spill_limit_bytes;
        state->spill_left_bytes = ms_spill_left_bytes(device, &stats);
    } else {
        state->live_bytes = atomic_load(&device->forwarded_live_bytes) + tensors.live_bytes;
    }
    uint64_t used_bytes = device->total_bytes;
    if (ms_device_used_bytes(device, &used_bytes) && used_bytes <= device->total_bytes) {
        state->driver_free_bytes = device->total_bytes - used_bytes;
        state->driver_free_known = 1;
    } else {
        /* The driver does not answer now (a capture): nobody else is blamed. */
        used_bytes = state->charged_bytes;
        state->driver_free_bytes =
            device->total_bytes > used_bytes ? device->total_bytes - used_bytes : 0;
    }
    state->other_process_bytes =
        used_bytes > state->charged_bytes ? used_bytes - state->charged_bytes : 0;
    ms_device_others(device, &state->others);
    state->pinned_by =
        (uint8_t)(waits_for_work(state) ? MS_PINNED_BY_WORK : pinned_by(device, &stats, &tensors));
    state->fraction_known = device->fraction > 0;
    state->fraction = device->fraction;
    state->site = ms_site_capture(UINT64_MAX); /* so large that sampling never passes it over */
}

/* Where holes would have been enough, and could not be taken, their owner can do something. */
static void say_holes(const struct ms_device *device, uint64_t requested_bytes)
{
    struct ms_pool_stats stats;
    char text[24];
    if (!device->pool || !device->no_host_road) {
        return;
    }
    ms_pool_stats(device->pool, &stats);
    if (stats.hole_bytes >= requested_bytes) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: %s lie in holes of PyTorch's segments and could not be taken: "
                    "that needs host memory which the device can reach, and there is none (%s)",
                    device->ordinal, ms_bytes_text(stats.hole_bytes, text, sizeof text),
                    device->no_host_road);
    }
}

CUresult ms_oom_refuse(struct ms_device *device, uint64_t requested_bytes)
{
    struct ms_oom_state state;
    fill(device, MS_OOM_DRIVER, requested_bytes, 0, &state);
    atomic_store(&device->last_oom_bytes, requested_bytes);
    ms_session_oom(device->ordinal, &state);
    say_holes(device, requested_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void ms_oom_from_torch(int device, uint64_t requested_bytes, uint64_t cached_bytes)
{
    struct ms_device *d = ms_device_get(device);
    if (!d) {
        return;
    }
    struct ms_oom_state state;
    const uint64_t refused_bytes = atomic_exchange(&d->last_oom_bytes, 0);
    fill(d, MS_OOM_TORCH, requested_bytes, refused_bytes, &state);
    state.live_bytes -= cached_bytes < state.live_bytes ? cached_bytes : state.live_bytes;
    ms_session_oom(device, &state);
}
