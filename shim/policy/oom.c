/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the state at the moment when memory ran out. */
#include "shim/policy/oom.h"

#include <stdio.h>
#include <string.h>

#include "allocator/arenas/proxy.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "report/trace/verdict.h"
#include "report/trace/verdict_rule.h"
#include "shim/device/capture.h"
#include "shim/device/overhead.h"
#include "shim/device/sample.h"
#include "shim/driver/caller.h"
#include "shim/driver/nvml.h"
#include "shim/driver/torch_library.h"
#include "shim/policy/spill.h"
#include "shim/process/guard.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/sites/site.h"
#include "shim/tables/driver_limit.h"
#include "shim/tables/host_bytes.h"
#include "shim/tables/options.h"

/* Why memory is short is known at once. What grew, step by step, is known only from the whole
 * run. */
#define GROWTH_IN_REPORT                                                  \
    " This is the first finding, from the figures of this moment alone: " \
    "if memory grew over the run, the report says so, and where, in its line `why`."

/* The driver's last refusal on this thread. Before PyTorch raises its error, it gives back the
 * pages that it had got for the request. So only this knows how large the request was. */
static _Thread_local struct {
    const struct ms_device *device; /* null: the last request was served */
    uint64_t asked_bytes;           /* with the pages that it had got for the same request */
    uint64_t movable_bytes;         /* as in struct ms_oom_state */
    uint64_t unspilled_by;
    bool said;      /* the user was warned of it, or of one before it for the same request */
    CUresult error; /* an error that is not out of memory, since a request was last served */
} last_refusal __attribute__((tls_model("initial-exec")));

static uint64_t owned(const struct ms_device *device, enum ms_owner owner)
{
    return atomic_load(&device->budget.by_owner_bytes[owner]);
}

/* Why free memory could not be given elsewhere, if anything prevented it. */
static enum ms_pinned_by pinned_by(const struct ms_device *device, const struct ms_pool_stats *pool,
                                   const struct ms_arenas_stats *tensors)
{
    const bool kept = tensors->kept_arenas > 0 || atomic_load(&device->mapped_arena_bytes) > 0;
    if (!device->pool) {
        return MS_PINNED_BY_POOL_OFF;
    }
    if (ms_options()->torch == MS_TORCH_OFF) {
        return MS_PINNED_BY_TORCH_OFF;
    }
    if (tensors->frozen_arenas > 0 || ms_captures_running()) {
        return MS_PINNED_BY_CAPTURE;
    }
    if (pool->frozen && pool->hole_bytes > 0) {
        return MS_PINNED_BY_NOTHING;
    }
    if (ms_pool_takeable_bytes(device->pool) > ms_device_replaceable_bytes(device, pool)) {
        return MS_PINNED_BY_NO_HOST;
    }
    return kept ? MS_PINNED_BY_OWNER : MS_PINNED_BY_TENSORS;
}

/* Whether only work queued before the frees was in the way. */
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

/* Pages of a request that is still under way count as in use, and so does the backing that they
 * still lack: it goes to them before anybody else gets it. Free pages in front of them belong to
 * the request, too. */
static void count_fresh(const struct ms_pool_stats *stats, struct ms_oom_state *state)
{
    uint64_t lacking = stats->fresh_unbacked_bytes + stats->front_bytes;
    state->live_bytes += stats->fresh_bytes + stats->front_bytes;
    state->reclaimable_bytes -=
        lacking < state->reclaimable_bytes ? lacking : state->reclaimable_bytes;
}

struct group_limit {
    const struct ms_device *device;
    struct ms_driver_limit limit;
};

static void ask_nvml(void *ctx, int folder, const char *group)
{
    struct group_limit *asked = ctx;
    struct ms_driver_limit here = {.by = MS_LIMITED_BY_CGROUP};
    char path[512];
    (void)folder;
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s", group + 1); /* it begins with a dot */
    if (ms_nvml_group_limit(asked->device->uuid, path, &here.bytes, &here.used_bytes) &&
        here.bytes < asked->device->total_bytes) { /* else there is no limit */
        asked->limit = ms_limit_tighter(asked->limit, here);
    }
}

/* The control group's own files have the limit. Where the kernel has no such file, NVML may know
 * it. */
static struct ms_driver_limit limit_of_group(const struct ms_device *device)
{
    struct group_limit asked = {device, ms_limit_of_group("", device->pci)};
    if (asked.limit.bytes == 0) {
        ms_host_groups("", ask_nvml, &asked);
    }
    return asked.limit;
}

/* The part of the charged bytes that stays in the way wherever the rest lies. Chunks of the
 * program's own may hold a framework's tensors: those count, and what is between them does not. */
static uint64_t fixed_bytes(const struct ms_device *device, const struct ms_oom_state *state)
{
    const uint64_t served_bytes =
        device->pool != NULL ? 0 : atomic_load(&device->forwarded_call_bytes);
    return state->context_bytes + ms_less(state->forwarded_bytes, served_bytes) +
           ms_less(state->application_bytes, atomic_load(&device->mapped_arena_bytes));
}

static enum ms_unspilled_by unspilled_by(const struct ms_device *device, enum ms_unmoved why,
                                         const struct ms_oom_state *state)
{
    static const enum ms_unspilled_by by[] = {
        [MS_UNMOVED_NO_ACCESS] = MS_UNSPILLED_NO_ACCESS,
        [MS_UNMOVED_CAPTURE] = MS_UNSPILLED_CAPTURE,
        [MS_UNMOVED_NO_HOST] = MS_UNSPILLED_NO_HOST,
        [MS_UNMOVED_BUSY] = MS_UNSPILLED_BUSY,
    };
    if (!ms_options()->spill) {
        return MS_UNSPILLED_OFF;
    }
    if (state->spill_limit_bytes == 0) {
        return device->no_host_access ? MS_UNSPILLED_NO_ACCESS : MS_UNSPILLED_OFF;
    }
    if (why != MS_UNMOVED_NOTHING) {
        return by[why];
    }
    /* Usually some live memory remains that fills no whole granule. */
    return state->movable_bytes < state->requested_bytes &&
                   state->movable_bytes < ms_less(state->live_bytes, state->spilled_bytes) / 2
               ? MS_UNSPILLED_PINNED
               : MS_UNSPILLED_UNKNOWN;
}

/* How much live memory could still have moved. For a request of PyTorch's: at the moment of the
 * refusal. */
static void fill_movable(struct ms_device *device, struct ms_oom_state *state)
{
    enum ms_unmoved why = MS_UNMOVED_NOTHING;
    if (!device->pool) {
        return;
    }
    if (state->source == MS_OOM_TORCH && state->refused_bytes != 0) {
        state->movable_bytes = last_refusal.movable_bytes;
        state->unspilled_by = last_refusal.unspilled_by;
        return;
    }
    if (state->spill_limit_bytes > 0) {
        state->movable_bytes = ms_pool_movable_bytes(device->pool, &why);
    }
    state->unspilled_by = unspilled_by(device, why, state);
}

/* The limit on this process besides memshim's cap. If PyTorch gave up by itself, it is PyTorch's
 * own limit. */
static void fill_limit(const struct ms_device *device, struct ms_oom_state *state)
{
    const bool torch_alone =
        state->source == MS_OOM_TORCH && state->refused_bytes == 0 && state->driver_error == 0;
    const struct ms_driver_limit limit =
        torch_alone && device->torch_limit.bytes != 0
            ? device->torch_limit
            : ms_limit_tighter(limit_of_group(device), device->mps_limit);
    state->limited_by = limit.by;
    state->limit_bytes = limit.bytes;
    state->limit_used_bytes = limit.used_bytes;
}

/* In a shared cap, this process cannot have what the others hold. */
static void fill_shared(const struct ms_device *device, struct ms_oom_state *state)
{
    struct ms_shared_cap *shared = &state->shared;
    struct ms_group_share most;
    uint32_t others = 0;
    state->cap_bytes =
        ms_least(state->cap_bytes, state->charged_bytes + ms_budget_free_bytes(&device->budget));
    shared->bytes = ms_group_cap_bytes(device->group);
    shared->largest_rank = -1;
    if (!ms_group_largest_other(device->group, &most)) {
        return;
    }
    shared->others_bytes = ms_group_others_bytes(device->group, &others);
    shared->others = others;
    shared->largest.bytes = most.leased_bytes;
    shared->largest.pid = most.pid;
    shared->largest_rank = most.rank;
    (void)snprintf(shared->largest.name, sizeof shared->largest.name, "%.15s", most.name);
}

/* What is set aside for contexts and graphs that the driver makes just now. Nobody else can have
 * it, as if it were charged to them. */
static uint64_t set_aside_bytes(const struct ms_device *device, const struct ms_pool_stats *stats)
{
    return ms_less(atomic_load(&device->budget.earmarked_bytes), stats->earmarked_bytes);
}

/* refused_bytes: what the ladder refused before PyTorch gave up; 0: nothing. */
static void fill(struct ms_device *device, enum ms_oom_source source, uint64_t requested_bytes,
                 uint64_t refused_bytes, struct ms_oom_state *state)
{
    memset(state, 0, sizeof *state);
    state->source = (uint8_t)source;
    state->requested_bytes = requested_bytes;
    state->driver_error = source == MS_OOM_TORCH ? (uint64_t)last_refusal.error : 0;
    state->refused_bytes = refused_bytes;
    state->cap_bytes = atomic_load(&device->budget.cap_bytes);
    state->device_total_bytes = device->total_bytes;
    struct ms_arenas_stats tensors;
    struct ms_pool_stats stats = {0};
    ms_arenas_stats(device->arenas, &tensors);
    if (device->pool) {
        ms_pool_stats(device->pool, &stats);
    }
    state->pool_bytes = owned(device, MS_OWNER_POOL);
    state->application_bytes = owned(device, MS_OWNER_APPLICATION);
    state->forwarded_bytes = owned(device, MS_OWNER_FORWARDED);
    state->context_bytes = owned(device, MS_OWNER_CONTEXT) + set_aside_bytes(device, &stats);
    /* The sum, not the budget's total: the report's lines must add up. */
    state->charged_bytes = state->pool_bytes + state->application_bytes + state->forwarded_bytes +
                           state->context_bytes;
    if (device->pool) {
        state->live_bytes = stats.live_bytes - stats.arena_bytes + tensors.live_bytes;
        state->reclaimable_bytes =
            stats.free_bytes - stats.pending_bytes + ms_device_takeable_bytes(device, &stats);
        count_fresh(&stats, state);
        state->pending_bytes = stats.pending_bytes;
        state->largest_free_bytes = stats.largest_free_bytes;
        state->spill_limit_bytes = device->spill_limit_bytes;
        state->spill_left_bytes = ms_spill_left_bytes(device, &stats);
        state->spilled_bytes = stats.spill.spilled_bytes;
    } else {
        state->live_bytes = atomic_load(&device->forwarded_live_bytes) + tensors.live_bytes;
    }
    state->terms_known = 1;
    state->fixed_bytes = fixed_bytes(device, state);
    fill_movable(device, state);
    uint64_t used_bytes = device->total_bytes;
    if (ms_device_used_bytes(device, &used_bytes) && used_bytes <= device->total_bytes) {
        state->driver_free_bytes = device->total_bytes - used_bytes;
        state->driver_free_known = 1;
    } else {
        /* The driver does not answer during a capture. Then no other process is blamed. */
        used_bytes = state->charged_bytes;
        state->driver_free_bytes =
            device->total_bytes > used_bytes ? device->total_bytes - used_bytes : 0;
    }
    state->other_process_bytes =
        used_bytes > state->charged_bytes ? used_bytes - state->charged_bytes : 0;
    const int cancellation = ms_cancel_hold(); /* the host's files are read */
    ms_device_others(device, &state->others);
    fill_limit(device, state);
    ms_cancel_let(cancellation);
    if (device->group != NULL) {
        fill_shared(device, state);
    }
    state->pinned_by =
        (uint8_t)(waits_for_work(state) ? MS_PINNED_BY_WORK : pinned_by(device, &stats, &tensors));
    state->fraction_known = device->fraction_ppb > 0;
    state->fraction = ms_ratio(device->fraction_ppb, MS_PPB);
    state->grad_mode = ms_torch_library_grad_mode();
    state->site = ms_site_capture(UINT64_MAX); /* so large that sampling always records it */
}

/* Warns if the holes would have been enough but could not be taken: the user can do something about
 * that. */
static void say_holes(const struct ms_device *device, uint64_t requested_bytes)
{
    char text[24];
    if (!device->pool || !device->no_host_access) {
        return;
    }
    const uint64_t bytes = ms_pool_takeable_bytes(device->pool);
    if (bytes >= requested_bytes) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: %s in holes of PyTorch's segments could not be used: that needs "
                    "host memory that the device can reach, and there is none (%s)",
                    device->ordinal, ms_bytes_text(bytes, text, sizeof text),
                    device->no_host_access);
    }
}

/* Logs who holds the rest of the cap. */
static void say_group(const struct ms_device *device)
{
    struct ms_group_share most;
    char cap[24], all[24], largest[24], who[32];
    uint32_t count = 0;
    if (device->group == NULL || !ms_group_largest_other(device->group, &most)) {
        return;
    }
    const uint64_t others = ms_group_others_bytes(device->group, &count);
    (void)snprintf(who, sizeof who, most.rank >= 0 ? "rank %d" : "a process without a rank",
                   most.rank);
    MS_LOG_ONCE(MS_LOG_WARN,
                "device %d: of the cap of %s, which it shares, %s are held by %s (%s, pid %u), and "
                "%s by all %u other processes of the group",
                device->ordinal, ms_bytes_text(ms_group_cap_bytes(device->group), cap, sizeof cap),
                ms_bytes_text(most.leased_bytes, largest, sizeof largest), who, most.name, most.pid,
                ms_bytes_text(others, all, sizeof all), count);
}

/* Whether PyTorch reports what becomes of a call that is refused: it has reported something before,
 * or its allocator makes this call. */
static bool torch_tells(void)
{
    return ms_torch_library_reports() ||
           (ms_library_at(ms_caller()) == MS_LIBRARY_C10_CUDA && ms_torch_library_will_report());
}

/* After a refusal PyTorch often empties its cache and asks again. So the user is warned of the
 * error that PyTorch raises in the end; unless it was not known that PyTorch asked, and the refusal
 * was said. Returns whether the user was warned. */
static bool record(struct ms_device *device, const struct ms_oom_state *state, bool said_before)
{
    static atomic_flag said[] = {
        [MS_OOM_DRIVER] = ATOMIC_FLAG_INIT,
        [MS_OOM_TORCH] = ATOMIC_FLAG_INIT,
        [MS_OOM_HOST] = ATOMIC_FLAG_INIT,
    };
    char sentence[1024];
    uint64_t short_bytes;
    if (state->source != MS_OOM_TORCH) {
        atomic_fetch_add_explicit(&device->refusals, 1, memory_order_relaxed);
    }
    ms_trace_t *trace = ms_session_trace();
    if (trace != NULL) {
        ms_trace_oom(trace, device->ordinal, state);
    }
    (void)ms_verdict_decide(state, &short_bytes, sentence, sizeof(sentence));
    /* PyTorch raises an error of its own, but only for device memory. */
    bool news = !said_before && (state->source != MS_OOM_DRIVER || !torch_tells());
    bool warn = news && !atomic_flag_test_and_set(&said[state->source]);
    if (state->source == MS_OOM_HOST) { /* growth on the device does not matter to it */
        ms_log(warn ? MS_LOG_WARN : MS_LOG_INFO, "host: %s", sentence);
        return warn;
    }
    ms_log(warn ? MS_LOG_WARN : MS_LOG_INFO, "device %d: %s%s", device->ordinal, sentence,
           trace != NULL ? GROWTH_IN_REPORT : "");
    return warn;
}

static uint64_t fresh_bytes(const struct ms_device *device)
{
    struct ms_pool_stats stats = {0};
    if (device->pool) {
        ms_pool_stats(device->pool, &stats);
    }
    return stats.fresh_bytes;
}

void ms_oom_over(const struct ms_device *device)
{
    if (last_refusal.device == device) {
        last_refusal.device = NULL;
    }
    last_refusal.error = CUDA_SUCCESS;
}

void ms_oom_tensor_served(void)
{
    last_refusal.error = CUDA_SUCCESS;
}

CUresult ms_oom_answered(CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
        last_refusal.error = result;
    }
    return result;
}

static CUresult refuse(struct ms_device *device, uint64_t requested_bytes,
                       const struct ms_oom_state *state)
{
    const bool said_before = last_refusal.device == device && last_refusal.said;
    last_refusal.device = device;
    last_refusal.asked_bytes = requested_bytes + fresh_bytes(device);
    last_refusal.movable_bytes = state->movable_bytes;
    last_refusal.unspilled_by = state->unspilled_by;
    say_group(device);
    last_refusal.said = record(device, state, said_before) || said_before;
    say_holes(device, requested_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ms_oom_refuse(struct ms_device *device, uint64_t requested_bytes)
{
    struct ms_oom_state state;
    fill(device, MS_OOM_DRIVER, requested_bytes, 0, &state);
    return refuse(device, requested_bytes, &state);
}

/* Whether others have taken or given memory since the last try; after the first one they may
 * have. */
static bool goes_on(const struct ms_device *device, struct ms_oom_tries *tries)
{
    const struct ms_oom_tries last = *tries;
    const uint64_t now_ns = ms_clock_ns();
    struct ms_pool_stats stats = {0};
    if (device->pool) {
        ms_pool_stats(device->pool, &stats);
    }
    tries->calls = stats.allocations + stats.frees;
    tries->charged_bytes = atomic_load(&device->budget.charged_bytes);
    tries->end_ns = last.end_ns != 0 ? last.end_ns : now_ns + ms_options()->wait_ns;
    return now_ns < tries->end_ns && (last.end_ns == 0 || last.calls != tries->calls ||
                                      last.charged_bytes != tries->charged_bytes);
}

bool ms_oom_refuses(struct ms_device *device, uint64_t requested_bytes, uint64_t piece_bytes,
                    struct ms_oom_tries *tries)
{
    const bool fits = requested_bytes <= ms_budget_free_bytes(&device->budget);
    const uint64_t refused_bytes = fits ? piece_bytes : requested_bytes;
    struct ms_oom_state state;
    fill(device, MS_OOM_DRIVER, refused_bytes, 0, &state);
    const struct ms_verdict_terms terms = ms_verdict_terms(&state);
    if (ms_verdict_rule(&terms) == MS_VERDICT_NOT_DEVICE && goes_on(device, tries)) {
        return false;
    }
    (void)refuse(device, refused_bytes, &state);
    return true;
}

void ms_oom_of_host(struct ms_device *device, uint64_t requested_bytes)
{
    struct ms_oom_state state;
    fill(device, MS_OOM_HOST, requested_bytes, 0, &state);
    (void)record(device, &state, false);
}

void ms_oom_from_torch(int device, uint64_t requested_bytes, uint64_t cached_bytes)
{
    struct ms_device *d = ms_device_get(device);
    if (!d) {
        return;
    }
    struct ms_oom_state state;
    if (d->pool) {
        ms_proxy_request_over(d->pool);
    }
    const bool refused = last_refusal.device == d;
    const uint64_t refused_bytes = refused ? last_refusal.asked_bytes : 0;
    last_refusal.device = NULL;
    fill(d, MS_OOM_TORCH, requested_bytes, refused_bytes, &state);
    last_refusal.error = CUDA_SUCCESS;
    state.live_bytes -= cached_bytes < state.live_bytes ? cached_bytes : state.live_bytes;
    (void)record(d, &state, refused && last_refusal.said);
}
