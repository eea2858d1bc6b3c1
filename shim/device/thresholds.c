/* SPDX-License-Identifier: Apache-2.0 */
/* Thresholds: how near charged bytes are to the cap, or to what the device has room for. */
#include <stdatomic.h>
#include <stdio.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/device/overhead.h"
#include "shim/device/sample.h"
#include "shim/driver/gate.h"
#include "shim/process/log.h"
#include "shim/process/session.h"

#define SAMPLES      64u /* samples taken while charged bytes rise from 0 to the device's size */
#define FALL_PERCENT 5u  /* percent of the limit below a threshold at which it is left */
/* least time between two lines that say that an emergency is over */
#define OVER_WAIT_NS  (60 * MS_NS_PER_S)
#define EASE_WAIT_NS  (60 * MS_NS_PER_S) /* least time between two emergencies that memshim ends */
#define EASE_CHECK_NS (MS_NS_PER_S / 10) /* least time between two checks */
/* An emergency is ended once memory has not been needed for so long: a step that needs it again
 * would have its chunks made anew. */
#define EASE_AFTER_NS (5 * MS_NS_PER_S)

static const char *what_follows(const struct ms_device *device, int state)
{
    if (state == 2) {
        return "; cached memory is released";
    }
    return state == 3 && device->spill_limit_bytes != 0 ? "; cold memory moves to the host" : "";
}

struct share_text {
    char text[96];
};

static struct share_text share_of(const struct ms_device *device, uint64_t charged, uint64_t limit)
{
    bool is_cap = limit >= atomic_load(&device->budget.cap_bytes);
    char charged_text[24];
    char limit_text[24];
    struct share_text share;
    (void)snprintf(share.text, sizeof share.text, "%s of the %s%s%s are charged",
                   ms_bytes_text(charged, charged_text, sizeof charged_text),
                   is_cap ? "cap of " : "", ms_bytes_text(limit, limit_text, sizeof limit_text),
                   is_cap ? "" : " that other processes leave of the device");
    return share;
}

/* Warns of the first crossing of each threshold. An emergency is logged again if its end was
 * logged. */
static void say_threshold(struct ms_device *device, int state, uint64_t charged, uint64_t limit)
{
    const struct share_text share = share_of(device, charged, limit);
    const bool again = atomic_fetch_or(&device->thresholds_said, 1u << state) & (1u << state);
    const bool over_was_logged = state == 3 && !atomic_exchange(&device->emergency_logged, true);
    if (again && over_was_logged) {
        ms_say("device %d: emergency again, %s", device->ordinal, share.text);
    } else {
        ms_log(again ? MS_LOG_INFO : MS_LOG_WARN, "device %d: %s, %s%s", device->ordinal,
               ms_threshold_name((uint64_t)state), share.text, what_follows(device, state));
    }
}

/* At most once a minute: memory may be short for a moment in each step. */
static void say_over(struct ms_device *device, uint64_t charged, uint64_t limit)
{
    if (!atomic_load_explicit(&device->emergency_logged, memory_order_relaxed)) {
        return;
    }
    const uint64_t now = ms_clock_ns();
    uint64_t due = atomic_load(&device->over_due_ns);
    if (now >= due &&
        atomic_compare_exchange_strong(&device->over_due_ns, &due, now + OVER_WAIT_NS) &&
        atomic_exchange(&device->emergency_logged, false)) {
        const struct share_text share = share_of(device, charged, limit);
        ms_say("device %d: the emergency is over, %s", device->ordinal, share.text);
    }
}

/* At critical, trims caches; at emergency, also moves cold memory to the host ahead of need. */
static void relieve(struct ms_device *device, int state, uint64_t level)
{
    if (state < 2) {
        return;
    }
    (void)ms_device_make_room(device, 0);
    if (state == 3 && device->pool) {
        ms_device_policy()->spill_ahead(device, level);
    }
}

/* From here on every allocation checks the thresholds, which attends to memory on the host, too
 * (grant.c). */
void ms_device_host_made(struct ms_device *device)
{
    atomic_store_explicit(&device->host_made, true, memory_order_relaxed);
    atomic_store(&device->rise_bytes, 0);
}

/* Once memory has been short, launches are watched for good: a launch that fails for want of memory
 * is tried again (launch.c), and what launches touch is hot (heat.c). */
static void watch_launches(void)
{
    static atomic_bool watched;
    if (!atomic_exchange(&watched, true)) {
        ms_device_policy()->short_of_memory();
        ms_gate_watch_launches(true);
    }
}

static void sample_if_due(struct ms_device *device, uint64_t charged)
{
    uint64_t due = atomic_load(&device->sample_bytes);
    uint64_t next = charged + device->total_bytes / SAMPLES;
    if (charged >= due && atomic_compare_exchange_strong(&device->sample_bytes, &due, next)) {
        (void)ms_overhead_give_back(device);
        ms_device_sample(device);
    }
}

/* The device's free memory limits charges as the cap's does. */
uint64_t ms_device_limit_bytes(const struct ms_device *device)
{
    uint64_t limit = ms_budget_limit_bytes(&device->budget);
    uint64_t room = atomic_load(&device->room_bytes);
    return room != 0 && room < limit ? room : limit;
}

static uint64_t level_of(int state, uint64_t limit)
{
    return ms_of_ppb(limit, ms_options()->thresholds_ppb[state - 1]);
}

static void set_rise(struct ms_device *device, int state, uint64_t limit)
{
    uint64_t due = atomic_load(&device->sample_bytes);
    uint64_t level = state < 3 ? level_of(state + 1, limit) : UINT64_MAX;
    atomic_store(&device->rise_bytes, due < level ? due : level);
    if (atomic_load(&device->host_made)) {
        atomic_store(&device->rise_bytes, 0);
    }
}

static uint64_t slack_of(uint64_t limit)
{
    return limit / 100 * FALL_PERCENT;
}

static int state_at(uint64_t charged, uint64_t limit, int before)
{
    int state = 0;
    for (int t = 1; t <= 3; t++) {
        uint64_t level = level_of(t, limit);
        uint64_t leave = level > slack_of(limit) ? level - slack_of(limit) : 0;
        if (charged >= (t <= before ? leave : level)) {
            state = t;
        }
    }
    return state;
}

/* Other processes may leave more room again, so the room is measured anew before a threshold counts
 * as crossed. */
static int state_now(struct ms_device *device, uint64_t charged, int before, uint64_t *limit)
{
    *limit = ms_device_limit_bytes(device);
    int state = state_at(charged, *limit, before);
    if (state > before && *limit < atomic_load(&device->budget.cap_bytes)) {
        ms_device_measure_room(device);
        *limit = ms_device_limit_bytes(device);
        state = state_at(charged, *limit, before);
    }
    return state;
}

static void put_off_easing(struct ms_device *device, uint64_t until_ns)
{
    if (atomic_load_explicit(&device->ease_due_ns, memory_order_relaxed) < until_ns) {
        atomic_store(&device->ease_due_ns, until_ns);
    }
}

void ms_device_cross_threshold(struct ms_device *device)
{
    uint64_t charged = atomic_load(&device->budget.charged_bytes);
    uint64_t limit = 0;
    sample_if_due(device, charged);
    int before = atomic_load(&device->threshold);
    int state = state_now(device, charged, before, &limit);
    if (state < 3) {
        say_over(device, charged, limit);
    }
    if (state == before || !atomic_compare_exchange_strong(&device->threshold, &before, state)) {
        set_rise(device, before, limit);
        return;
    }
    uint64_t present = state ? level_of(state, limit) : 0;
    uint64_t slack = slack_of(limit);
    atomic_store(&device->fall_bytes, present > slack ? present - slack : 0);
    set_rise(device, state, limit);
    struct ms_event event = {
        .kind = MS_EVENT_THRESHOLD,
        .device = device->ordinal,
        .bytes = charged,
        .aux = (uint64_t)state,
    };
    ms_session_emit(&event);
    if (state > before) {
        say_threshold(device, state, charged, limit);
        watch_launches();
        put_off_easing(device, ms_clock_coarse_ns() + EASE_AFTER_NS);
        relieve(device, state, present);
    }
}

/* What the device needs at this moment: what is neither free nor in holes. */
static uint64_t needed_bytes(const struct ms_device *device, uint64_t charged)
{
    struct ms_pool_stats stats;
    ms_pool_stats(device->pool, &stats);
    return ms_less(charged, stats.free_bytes + stats.hole_bytes);
}

/* A framework that keeps what it freed is charged as much as before. Only so much of that is taken
 * as ends the crossing of thresholds, because a step may want it back. */
void ms_device_ease(struct ms_device *device)
{
    uint64_t now = ms_clock_coarse_ns();
    uint64_t due = atomic_load_explicit(&device->ease_check_ns, memory_order_relaxed);
    if (now < due || device->pool == NULL || ms_captures_running() ||
        !atomic_compare_exchange_strong(&device->ease_check_ns, &due, now + EASE_CHECK_NS)) {
        return;
    }
    uint64_t limit = ms_device_limit_bytes(device);
    uint64_t target = ms_less(level_of(1, limit), slack_of(limit) + device->granule_bytes);
    uint64_t charged = atomic_load(&device->budget.charged_bytes);
    if (needed_bytes(device, charged) > target) {
        put_off_easing(device, now + EASE_AFTER_NS);
    }
    if (now < atomic_load_explicit(&device->ease_due_ns, memory_order_relaxed)) {
        return;
    }
    ms_pool_lower(device->pool, target);
    ms_device_check_thresholds(device);
    /* From its end on, so that one that takes long is not the program's only work. */
    now = ms_clock_coarse_ns();
    atomic_store(&device->ease_check_ns, now + EASE_CHECK_NS);
    if (atomic_load(&device->threshold) != MS_EMERGENCY) {
        put_off_easing(device, now + EASE_WAIT_NS);
    }
}
