/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a status line is due, and makes it from the statistics. */
#include "shim/policy/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "shim/device/device.h"
#include "shim/device/statistics.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/sites/tags.h"
#include "shim/tables/identity.h"
#include "shim/tables/options.h"
#include "shim/tables/stats.h"

/* Steps that the program does not mark are found only by the report. Until the program marks one, a
 * line comes after as many seconds as steps were asked for, but at most after this many. */
#define UNTOLD_SECONDS 10u

MS_HOT_DATA _Atomic bool ms_status_on;
static _Atomic int32_t rank = -1; /* -1: unknown */
static _Atomic uint64_t due_ns;   /* CLOCK_MONOTONIC */

static uint64_t period_ns(const struct ms_options *options)
{
    const uint64_t steps = options->status_steps;
    return steps != 0 ? (steps < UNTOLD_SECONDS ? steps : UNTOLD_SECONDS) * MS_NS_PER_S
                      : options->status_ns;
}

void ms_status_begin(void)
{
    const struct ms_options *options = ms_options();
    struct ms_ranks ranks;
    if (options->status_steps == 0 && options->status_ns == 0) {
        return;
    }
    ms_identity_ranks(environ, &ranks);
    atomic_store(&rank, ranks.rank);
    atomic_store(&due_ns, ms_clock_coarse_ns() + period_ns(options));
    atomic_store(&ms_status_on, true);
}

#define MILLION 1000000u

/* cached_bytes: the part of the reserved bytes in PyTorch's cache. */
static void say_device(const char *when, int ordinal, const struct memshim_stats *stats,
                       uint64_t cached_bytes)
{
    char used[MS_UNIT_TEXT_BYTES], cap[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES],
        live[MS_UNIT_TEXT_BYTES], reserved[MS_UNIT_TEXT_BYTES], parts[MS_UNIT_TEXT_BYTES],
        host[MS_UNIT_TEXT_BYTES], cached[MS_UNIT_TEXT_BYTES], cache[64] = "";
    if (cached_bytes != 0) {
        (void)snprintf(cache, sizeof(cache), ", in PyTorch's cache %s",
                       ms_bytes_text(cached_bytes, cached, sizeof(cached)));
    }
    ms_say(
        "status: %sdevice %d: %s, used %s of %s (%s), live %s, reserved %s%s, fragmentation "
        "%s, on the host %s",
        when, ordinal, ms_threshold_name(stats->status),
        ms_bytes_text(stats->used_bytes, used, sizeof(used)),
        ms_bytes_text(stats->cap_bytes, cap, sizeof(cap)),
        ms_percent_text(stats->used_bytes, stats->cap_bytes, share, sizeof(share)),
        ms_bytes_text(stats->live_bytes, live, sizeof(live)),
        ms_bytes_text(stats->reserved_bytes, reserved, sizeof(reserved)), cache,
        ms_percent_text(ms_of_ratio(stats->fragmentation, MILLION), MILLION, parts, sizeof(parts)),
        ms_bytes_text(stats->host_bytes, host, sizeof(host)));
}

static void say(void)
{
    const uint64_t step = ms_steps_recorded();
    const int32_t own = atomic_load(&rank);
    char when[64] = "";
    int used = 0;
    if (own >= 0) {
        used = snprintf(when, sizeof(when), "rank %" PRId32 ", ", own);
    }
    if (step > 0) {
        (void)snprintf(when + used, sizeof(when) - (size_t)used, "step %" PRIu64 ", ", step);
    }
    for (int ordinal = 0; ordinal < MS_DEVICES_MAX; ordinal++) {
        struct ms_device *device = ms_device_get(ordinal);
        struct memshim_stats stats;
        if (device != NULL) {
            ms_statistics_read(device, &stats);
            say_device(when, ordinal, &stats, ms_statistics_cached_bytes(device));
        }
    }
}

/* If the program never marks a step, the user would wait for a line in vain. */
static void say_no_steps(uint64_t steps, uint64_t period)
{
    MS_LOG_ONCE(MS_LOG_WARN,
                "MEMSHIM_STATUS_EVERY=%" PRIu64
                " counts training steps, and the program has recorded "
                "none so far (memshim_step, or an NVTX range named step): until then a line comes "
                "every %" PRIu64 " s. Steps that memshim finds itself are in the report",
                steps, period / MS_NS_PER_S);
}

void ms_status_check_due(void)
{
    const struct ms_options *options = ms_options();
    const uint64_t now = ms_clock_coarse_ns();
    uint64_t due = atomic_load_explicit(&due_ns, memory_order_relaxed);
    if (now < due || ms_process_inert()) {
        return;
    }
    const uint64_t period = period_ns(options);
    const bool by_steps = options->status_steps != 0;
    const bool recorded = by_steps && ms_steps_recorded() != 0;
    if (!atomic_compare_exchange_strong(&due_ns, &due, recorded ? UINT64_MAX : now + period) ||
        recorded) {
        return;
    }
    if (by_steps) {
        say_no_steps(options->status_steps, period);
    }
    say();
}

void ms_status_step_due(void)
{
    const uint64_t every = ms_options()->status_steps;
    static _Atomic uint64_t said_at;
    if (every == 0) {
        ms_status_check_due();
        return;
    }
    uint64_t step = ms_steps_recorded();
    uint64_t before = atomic_load_explicit(&said_at, memory_order_relaxed);
    if (step / every > before / every && !ms_process_inert() &&
        atomic_compare_exchange_strong(&said_at, &before, step)) {
        say();
    }
}
