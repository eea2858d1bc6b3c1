/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/policy/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

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

/* So long after its begin a program that tells its steps has told one. */
#define NO_STEP_NS (60 * MS_NS_PER_S)

MS_HOT_DATA _Atomic bool ms_status_on;
static _Atomic int32_t rank = -1; /* -1: unknown */
static _Atomic uint64_t
    due_ns; /* CLOCK_MONOTONIC; with steps: when it is said that there are none */

void ms_status_begin(void)
{
    const struct ms_options *options = ms_options();
    struct ms_ranks ranks;
    if (options->status_steps == 0 && options->status_ns == 0) {
        return;
    }
    ms_identity_ranks(environ, &ranks);
    atomic_store(&rank, ranks.rank);
    atomic_store(&due_ns, ms_clock_coarse_ns() +
                              (options->status_steps != 0 ? NO_STEP_NS : options->status_ns));
    atomic_store(&ms_status_on, true);
}

static void say_device(const char *when, int ordinal, const struct memshim_stats *stats)
{
    char used[MS_UNIT_TEXT_BYTES], cap[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES],
        live[MS_UNIT_TEXT_BYTES], reserved[MS_UNIT_TEXT_BYTES], holes[MS_UNIT_TEXT_BYTES],
        host[MS_UNIT_TEXT_BYTES];
    const uint64_t reserved_bytes = stats->reserved_bytes;
    const uint64_t hole_bytes =
        reserved_bytes > stats->live_bytes ? reserved_bytes - stats->live_bytes : 0;
    ms_say("status: %sdevice %d: %s, used %s of %s (%s), live %s, reserved %s, fragmentation %s, "
           "on the host %s",
           when, ordinal, ms_status_name(stats->status),
           ms_bytes_text(stats->used_bytes, used, sizeof(used)),
           ms_bytes_text(stats->cap_bytes, cap, sizeof(cap)),
           ms_percent_text(stats->used_bytes, stats->cap_bytes, share, sizeof(share)),
           ms_bytes_text(stats->live_bytes, live, sizeof(live)),
           ms_bytes_text(reserved_bytes, reserved, sizeof(reserved)),
           ms_percent_text(hole_bytes, reserved_bytes, holes, sizeof(holes)),
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
            say_device(when, ordinal, &stats);
        }
    }
}

/* Nobody may ever tell a step, and the user wait for a line in vain. */
static void say_no_steps(void)
{
    if (ms_steps_recorded() == 0) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "MEMSHIM_STATUS_EVERY=%" PRIu64 " counts training steps, and the program has "
                    "told none (memshim_step, or an NVTX range named step); seconds are written "
                    "with an s, as in 60s",
                    ms_options()->status_steps);
    }
}

void ms_status_check_due(void)
{
    const uint64_t now = ms_clock_coarse_ns();
    const uint64_t period_ns = ms_options()->status_ns;
    uint64_t due = atomic_load_explicit(&due_ns, memory_order_relaxed);
    if (now < due || ms_process_inert()) {
        return;
    }
    const uint64_t next = period_ns != 0 ? now + period_ns : UINT64_MAX;
    if (!atomic_compare_exchange_strong(&due_ns, &due, next)) {
        return;
    }
    if (period_ns != 0) {
        say();
    } else {
        say_no_steps();
    }
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
