/* Values that may be addresses, the pool, and the trace. What was touched a moment ago is passed
 * over: a table remembers by address when that was, counted in launches and copies. */
#include "shim/serve/heat.h"

#include <time.h>

#include "shim/serve/device.h"
#include "shim/serve/parameters.h"
#include "shim/session.h"
#include "shim/sites/tags.h"

/* Blocks begin at multiples of this, and a tensor is hardly ever shorter. */
#define UNIT_SHIFT 9u

/* A table of units: the address's upper bits, and in the lower ones when it was entered. */
#define WHEN_BITS  16u
#define TABLE_BITS 11u
struct table {
    _Atomic uint64_t entries[1u << TABLE_BITS];
};

#define FRESH_MAX    16u
#define MOMENT_CALLS 64u /* within so many calls, once touched is as good as twice */

/* Uses are told once for the same block or tensor within a window, which ends with a step, and
 * after this time anyway. */
#define WINDOW_NS        (UINT64_C(64) * 1000000)
#define TOLD_IN_A_WINDOW 4096u

_Atomic bool ms_heat_on;

static _Atomic uint64_t reach_begin = UINT64_MAX, reach_end;
static _Atomic uint32_t calls; /* lossy: threads may count one as the other */
static struct table touched, told;
static _Atomic uint64_t window;
static _Atomic uint32_t told_in_window;

void ms_heat_begin(void)
{
    atomic_store(&ms_heat_on, ms_options()->spill);
}

void ms_heat_fork_child(void)
{
    atomic_store(&ms_heat_on, false);
}

void ms_heat_reach(uint64_t addr, uint64_t bytes)
{
    uint64_t begin = atomic_load(&reach_begin);
    while (addr < begin && !atomic_compare_exchange_weak(&reach_begin, &begin, addr)) {
    }
    uint64_t end = atomic_load(&reach_end);
    while (addr + bytes > end && !atomic_compare_exchange_weak(&reach_end, &end, addr + bytes)) {
    }
}

bool ms_heat_may_hold(uint64_t value)
{
    return value >= atomic_load_explicit(&reach_begin, memory_order_relaxed) &&
           value < atomic_load_explicit(&reach_end, memory_order_relaxed);
}

/* The entry of an address; *key: what it would be, but for when. */
static _Atomic uint64_t *entry_of(struct table *table, uint64_t addr, uint64_t *key)
{
    uint64_t unit = addr >> UNIT_SHIFT;
    *key = unit << WHEN_BITS;
    return &table->entries[unit * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TABLE_BITS)];
}

/* ---- uses in the trace */

/* Each window has a number: it changes with every step and with time. */
static uint16_t window_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    uint64_t now = ns / WINDOW_NS + ms_steps_told();
    if (atomic_load_explicit(&window, memory_order_relaxed) != now &&
        atomic_exchange_explicit(&window, now, memory_order_relaxed) != now) {
        atomic_store_explicit(&told_in_window, 0, memory_order_relaxed);
    }
    return (uint16_t)now;
}

static void tell(const struct ms_device *device, const struct ms_touched *use, uint16_t in_window)
{
    uint64_t key = 0;
    _Atomic uint64_t *entry = entry_of(&told, use->addr, &key);
    uint64_t now = key | in_window;
    if (atomic_load_explicit(entry, memory_order_relaxed) == now ||
        atomic_load_explicit(&told_in_window, memory_order_relaxed) >= TOLD_IN_A_WINDOW) {
        return;
    }
    atomic_fetch_add_explicit(&told_in_window, 1, memory_order_relaxed);
    atomic_store_explicit(entry, now, memory_order_relaxed);
    struct ms_event event = {
        .kind = MS_EVENT_USE,
        .device = device->ordinal,
        .addr = use->addr,
        .bytes = use->bytes,
        .aux = use->host_bytes > 0,
    };
    ms_session_emit(&event);
}

/* ---- addresses */

/* Those of one call that have to be told to the pool: some at a time, for the sake of its lock. */
struct fresh {
    uint32_t now;
    uint32_t count;
    ms_addr_t addrs[FRESH_MAX];
};

/* Whose an address is, is known by who knows it. */
static void touch_all(struct fresh *fresh)
{
    struct ms_touched uses[FRESH_MAX];
    uint16_t in_window = fresh->count > 0 ? window_now() : 0;
    int used = fresh->count > 0 ? ms_devices_used() : 0;
    for (int d = 0; used > 0 && d < MS_DEVICES_MAX; d++) {
        const struct ms_device *device = ms_device_get(d);
        used -= device != NULL;
        if (device == NULL || device->pool == NULL) {
            continue;
        }
        ms_pool_touch_each(device->pool, fresh->addrs, fresh->count, uses);
        for (uint32_t i = 0; i < fresh->count; i++) {
            if (uses[i].bytes > 0) {
                tell(device, &uses[i], in_window);
            }
        }
    }
    fresh->count = 0;
}

static void look(struct fresh *fresh, uint64_t value)
{
    if (!ms_heat_may_hold(value)) {
        return;
    }
    uint64_t key = 0;
    _Atomic uint64_t *entry = entry_of(&touched, value, &key);
    uint64_t seen = atomic_load_explicit(entry, memory_order_relaxed);
    if (seen >> WHEN_BITS == key >> WHEN_BITS && (uint16_t)(fresh->now - seen) < MOMENT_CALLS) {
        return;
    }
    atomic_store_explicit(entry, key | (uint16_t)fresh->now, memory_order_relaxed);
    fresh->addrs[fresh->count++] = value;
    if (fresh->count == FRESH_MAX) {
        touch_all(fresh);
    }
}

static uint32_t count_call(void)
{
    uint32_t now = atomic_load_explicit(&calls, memory_order_relaxed) + 1;
    atomic_store_explicit(&calls, now, memory_order_relaxed);
    return now;
}

void ms_heat_look_at_each(const uint64_t *values, size_t count)
{
    struct fresh fresh;
    fresh.now = count_call();
    fresh.count = 0;
    for (size_t i = 0; i < count; i++) {
        look(&fresh, values[i]);
    }
    touch_all(&fresh);
}

static void look_at_word(void *fresh, uint64_t value)
{
    look(fresh, value);
}

void ms_heat_launch(const void *function, void **parameters, void **extra)
{
    struct fresh fresh;
    fresh.now = count_call();
    fresh.count = 0;
    ms_parameters_each(function, parameters, extra, look_at_word, &fresh);
    touch_all(&fresh);
}
