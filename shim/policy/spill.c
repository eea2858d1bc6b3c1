/* SPDX-License-Identifier: Apache-2.0 */
/* The pool forecasts what goes to the host first and what comes back before its use, from the last
 * training step (allocator/spill/forecast.h). It gets the steps that the program marks, and finds
 * them by itself if the program marks none.
 *
 * Without a forecast (the first steps, steps that differ, a program without steps), memory use is
 * watched over a stretch of time: a training step if the program marks steps, otherwise at first a
 * second. What would have fitted on the device at the worst moment of two such stretches comes
 * back. If that memory had to go to the host again, the stretches grow. */
#include "shim/policy/spill.h"

#include <pthread.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "report/trace/verdict.h"
#include "shim/device/capture.h"
#include "shim/driver/gate.h"
#include "shim/policy/heat.h"
#include "shim/process/log.h"
#include "shim/sites/site.h"
#include "shim/sites/tags.h"
#include "shim/tables/host_bytes.h"

#define STRETCH_NS         MS_NS_PER_S
#define STRETCH_LONGEST_NS 60000000000u
#define CHECKS_A_SAMPLE    8u
/* A standstill must bring back at least this share of what is on the host. */
#define WORTH_PART 8u

static uint64_t level_bytes(const struct ms_device *device, int state)
{
    return ms_of_ppb(ms_device_limit_bytes(device), ms_options()->thresholds_ppb[state - 1]);
}

/* The host memory of all devices of the process together: in use, and allowed. */
static struct ms_budget on_host;

static void begin_budget(void)
{
    uint64_t available_bytes = 0;
    const bool known = ms_host_measure("", &available_bytes);
    ms_host_note(available_bytes);
    ms_budget_init(&on_host, ms_host_spill_bytes(ms_options(), environ, available_bytes));
    if (ms_options()->spill && !known) {
        ms_log(MS_LOG_WARN, "nothing is spilled: how much memory the host has left is not known, "
                            "because /proc/meminfo cannot be read");
    }
}

struct ms_budget *ms_spill_budget(void)
{
    static pthread_once_t begun = PTHREAD_ONCE_INIT;
    (void)pthread_once(&begun, begin_budget);
    return &on_host;
}

static bool is_optimizers(void *sites, uint32_t site)
{
    (void)sites;
    return ms_site_is_optimizers(site);
}

void ms_spill_configure(struct ms_device *device, struct ms_pool_config *config)
{
    uint64_t limit = 0;
    if (device->granule_bytes != 0 && device->no_host_access == NULL) {
        limit = atomic_load(&ms_spill_budget()->cap_bytes);
    }
    device->spill_limit_bytes = limit;
    if (device->host_limit_bytes < limit) {
        device->host_limit_bytes = limit;
    }
    config->host_limit_bytes = device->host_limit_bytes;
    config->spill_limit_bytes = limit;
    config->spill_budget = ms_spill_budget();
    uint64_t most_ns = ms_options_wait_most_ns(ms_options());
    config->halt_limit_ns = most_ns > MS_HALT_LEAST_NS ? most_ns : MS_HALT_LEAST_NS;
    config->spill_choice = &ms_spill_choice_predict;
    config->is_optimizers = is_optimizers;
}

uint64_t ms_spill_left_bytes(const struct ms_device *device, const struct ms_pool_stats *stats)
{
    uint64_t host =
        ms_less(device->host_limit_bytes, stats->host_reserve_bytes + stats->host_backed_bytes);
    uint64_t spill = device->spill_limit_bytes != 0 ? ms_budget_free_bytes(ms_spill_budget()) : 0;
    /* A request usually touches one granule more than its size. */
    return ms_less(spill < host ? spill : host, device->granule_bytes);
}

bool ms_spill_others_give(const struct ms_device *device, uint64_t bytes)
{
    uint64_t free_bytes = ms_budget_free_bytes(ms_spill_budget());
    if (device->spill_limit_bytes == 0 || free_bytes >= bytes || ms_captures_running()) {
        return false;
    }
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_device *other = ms_device_get(d);
        if (other == NULL || other == device || other->pool == NULL ||
            ms_pool_peak_host_backed_bytes(other->pool) == 0) {
            continue;
        }
        (void)ms_device_make_room(other, ms_options()->wait_ns);
        (void)ms_pool_make_room(other->pool, 0, false);
    }
    return ms_budget_free_bytes(ms_spill_budget()) > free_bytes;
}

/* What the device needs at this moment: what is neither free nor in holes. */
static uint64_t needed_bytes(const struct ms_device *device, const struct ms_pool_stats *stats)
{
    uint64_t charged = atomic_load(&device->budget.charged_bytes);
    return ms_less(charged, stats->free_bytes + stats->hole_bytes + stats->earmarked_bytes);
}

void ms_spill_ahead(struct ms_device *device, uint64_t emergency_bytes)
{
    struct ms_pool_stats stats;
    if (device->spill_limit_bytes == 0 || ms_captures_running()) {
        return;
    }
    ms_pool_stats(device->pool, &stats);
    if (needed_bytes(device, &stats) >= emergency_bytes) {
        uint64_t limit = ms_budget_limit_bytes(&device->budget);
        (void)ms_pool_make_room(device->pool,
                                ms_less(limit, emergency_bytes) + device->granule_bytes, true);
    }
}

/* --- messages --------------------------------------------------------------------------------- */

/* Once for the process: the consequences are the same for every device. */
static void say_host_backed(const struct ms_device *device)
{
    static atomic_bool said;
    char text[24];
    if (atomic_load_explicit(&said, memory_order_relaxed)) {
        return;
    }
    uint64_t bytes = ms_pool_peak_host_backed_bytes(device->pool);
    if (bytes != 0 && !atomic_exchange(&said, true)) {
        ms_log(MS_LOG_WARN,
               "device %d: no device memory was left for %s of tensors; they lie in host memory, "
               "and work on them is slow",
               device->ordinal, ms_bytes_text(bytes, text, sizeof text));
    }
}

static void say_lost(const struct ms_device *device, const struct ms_spill_stats *stats)
{
    char lost[24];
    if (stats->lost_bytes != 0) {
        MS_LOG_FATAL_ONCE("device %d: the driver failed again and again while memory moved; %s of "
                          "it can no longer be mapped, and work that uses it will fail",
                          device->ordinal, ms_bytes_text(stats->lost_bytes, lost, sizeof lost));
    }
}

static void say_spilled(const struct ms_device *device, const struct ms_spill_stats *stats)
{
    char moved[24];
    char limit[24];
    if (stats->spills != 0) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: its memory ran short; %s that were not used lately moved to host "
                    "memory (the limit is %s). They keep their addresses, and the run continues, "
                    "but work on them is slower; the report says what it costs",
                    device->ordinal, ms_bytes_text(stats->down_bytes, moved, sizeof moved),
                    ms_bytes_text(device->spill_limit_bytes, limit, sizeof limit));
    }
    if (stats->thrashed_bytes != 0) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: %s moved to host memory and back over and over; they stay there "
                    "from now on, so that the rest does not have to move",
                    device->ordinal, ms_bytes_text(stats->thrashed_bytes, moved, sizeof moved));
    }
    if (stats->halts_refused != 0 && ms_gate_refusal() == NULL) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: memory had to move to the host, but the device's work did not "
                    "finish, or was being captured; nothing was moved",
                    device->ordinal);
    }
}

/* --- back from the host ----------------------------------------------------------------------- */

static void sample(struct ms_device *device, struct ms_spill_watch *watch, bool now)
{
    struct ms_pool_stats stats;
    if (!now && ++watch->checks % CHECKS_A_SAMPLE != 0) {
        return;
    }
    ms_pool_stats(device->pool, &stats);
    uint64_t wanted = needed_bytes(device, &stats) + stats.host_backed_bytes;
    watch->peak_bytes = wanted > watch->peak_bytes ? wanted : watch->peak_bytes;
}

/* A stretch ends with a step, or after its time if no steps are recorded. */
static bool stretch_over(struct ms_spill_watch *watch)
{
    uint64_t now = ms_clock_ns();
    bool counted = watch->steps != 0;
    bool over = now >= watch->stretch_end_ns && (!counted || watch->steps != watch->stretch_step);
    if (over) {
        watch->stretch_step = watch->steps;
        watch->stretch_end_ns = counted ? now : now + watch->stretch_ns;
    }
    return over;
}

static void begin_watch(struct ms_spill_watch *watch, uint64_t down_bytes)
{
    watch->begun = true;
    watch->down_bytes = down_bytes;
    watch->stretch_step = watch->steps;
    watch->stretch_ns = STRETCH_NS;
    watch->stretch_end_ns = watch->steps != 0 ? 0 : ms_clock_ns() + STRETCH_NS;
    watch->last_peak_bytes = UINT64_MAX; /* so that at least one whole stretch passes */
}

static void bring_back(struct ms_device *device, struct ms_spill_watch *watch,
                       uint64_t spilled_bytes, uint64_t peak_bytes)
{
    uint64_t limit = ms_budget_limit_bytes(&device->budget);
    uint64_t critical = level_bytes(device, 2);
    uint64_t resident = ms_less(peak_bytes, spilled_bytes);
    uint64_t room = ms_less(critical, resident);
    uint64_t wanted = room < spilled_bytes ? room : spilled_bytes;
    if (wanted < device->granule_bytes || wanted < spilled_bytes / WORTH_PART) {
        return;
    }
    /* Without waiting, this makes no room by spilling something else. */
    (void)ms_pool_make_room(device->pool, wanted + (limit - critical), false);
    uint64_t free_bytes = ms_less(ms_budget_free_bytes(&device->budget), limit - critical);
    uint64_t moved = ms_pool_promote(device->pool, wanted < free_bytes ? wanted : free_bytes);
    watch->promoted = watch->promoted || moved != 0;
}

/* The first allocation of a step comes here before the pool knows of the step. So it counts as the
 * last step's, in every step alike. */
static void note_step(struct ms_device *device, struct ms_spill_watch *watch)
{
    uint64_t steps = ms_steps_recorded();
    if (steps != watch->steps) {
        watch->steps = steps;
        (void)ms_pool_step(device->pool);
    }
}

static void attend(struct ms_device *device, struct ms_spill_watch *watch)
{
    struct ms_spill_stats stats;
    note_step(device, watch);
    (void)ms_pool_promote_ahead(device->pool);
    ms_pool_spill_stats(device->pool, &stats);
    say_spilled(device, &stats);
    say_lost(device, &stats);
    if (!watch->begun) {
        begin_watch(watch, stats.down_bytes);
    }
    if (stats.spilled_bytes == 0) {
        return;
    }
    if (stats.down_bytes != watch->down_bytes) {
        watch->down_bytes = stats.down_bytes;
        if (watch->promoted && watch->stretch_ns < STRETCH_LONGEST_NS) {
            watch->stretch_ns *= 2;
        }
        watch->promoted = false;
        watch->last_peak_bytes = UINT64_MAX;
    }
    bool over = stretch_over(watch);
    sample(device, watch, over);
    if (over) {
        uint64_t peak = watch->peak_bytes;
        uint64_t before = watch->last_peak_bytes;
        watch->last_peak_bytes = peak;
        watch->peak_bytes = 0;
        if (!ms_captures_running() && !ms_pool_foretells(device->pool)) {
            bring_back(device, watch, stats.spilled_bytes, before > peak ? before : peak);
        }
    }
}

void ms_spill_attend(struct ms_device *device)
{
    struct ms_spill_watch *watch = &device->spill_watch;
    ms_heat_settle();
    if (device->spill_limit_bytes == 0) {
        say_host_backed(device);
    } else if (!atomic_flag_test_and_set(&watch->busy)) {
        attend(device, watch);
        atomic_flag_clear(&watch->busy);
    }
}
