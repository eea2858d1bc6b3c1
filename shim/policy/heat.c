/* SPDX-License-Identifier: Apache-2.0 */
/* Passes addresses from launches to the pool and to the trace.
 *
 * A launch only writes the addresses that it touches into a ring. The pool gets them many at once,
 * at the next allocation and before it chooses what to spill. It loses nothing by that, because it
 * counts time in allocations. A table remembers when each address was last noted, counted in
 * launches and copies. An address that was noted a moment ago, or that still waits in the ring, is
 * skipped. Races and a full ring may lose addresses. That costs speed, never correctness. */
#include "shim/policy/heat.h"

#include "allocator/base/clock.h"
#include "shim/device/addresses/reach.h"
#include "shim/device/device.h"
#include "shim/policy/parameters.h"
#include "shim/process/fork.h"
#include "shim/process/session.h"
#include "shim/sites/tags.h"

/* Blocks begin at multiples of this, and few tensors are shorter. */
#define UNIT_SHIFT 9u

/* A table of addresses in these units, two entries in a bucket. An entry has the address's upper
 * bits, and in its lower bits the time at which it was written. */
#define WHEN_BITS  16u
#define TABLE_BITS 12u
struct table {
    _Atomic uint64_t entries[1u << TABLE_BITS][2];
};

#define FRESH_MAX    16u
#define MOMENT_CALLS 64u   /* a second touch within this many calls is skipped */
#define LATEST_CALLS 8192u /* after this many calls the ring is emptied anyway */
#define NOTED_BITS   12u
#define NOTED_MAX    (1u << NOTED_BITS)
/* Addresses per call of the pool, so that its lock is held for a short time only. */
#define HANDED_AT_ONCE 64u

/* The trace gets a use of the same block or tensor once in a window. A window ends with a step, and
 * after this time. */
#define WINDOW_NS            (UINT64_C(64) * 1000000)
#define RECORDED_IN_A_WINDOW 4096u

_Atomic bool ms_heat_on;

static _Atomic uint32_t calls; /* lossy: two threads may count one call */
static struct table touched, recorded;
static _Atomic uint64_t window;
static _Atomic uint32_t recorded_in_window;

/* A fork child has no memory of the pool. */
static void end_in_child(void)
{
    atomic_store(&ms_heat_on, false);
}

void ms_heat_begin(void)
{
    static struct ms_fork_part at_fork = {.in_child = end_in_child};
    if (ms_options()->spill) {
        ms_fork_join(&at_fork);
        atomic_store(&ms_heat_on, true);
        for (int d = 0; d < MS_DEVICES_MAX; d++) {
            struct ms_device *device = ms_device_get(d);
            if (device != NULL) {
                ms_device_host_made(device); /* its allocations then pass uses on */
            }
        }
    }
}

/* The entry for an address at this time (the lower bits count): its own, otherwise the older one of
 * the two. *seen: the entry's content. */
static inline _Atomic uint64_t *entry_of(struct table *table, uint64_t addr, uint64_t when,
                                         uint64_t *seen)
{
    uint64_t unit = addr >> UNIT_SHIFT;
    _Atomic uint64_t *pair =
        table->entries[unit * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TABLE_BITS)];
    uint64_t first = atomic_load_explicit(&pair[0], memory_order_relaxed);
    uint64_t second = atomic_load_explicit(&pair[1], memory_order_relaxed);
    bool other =
        first >> WHEN_BITS != unit &&
        (second >> WHEN_BITS == unit || (uint16_t)(when - second) > (uint16_t)(when - first));
    *seen = other ? second : first;
    return &pair[other];
}

static inline bool is_of(uint64_t entry, uint64_t addr)
{
    return entry >> WHEN_BITS == addr >> UNIT_SHIFT;
}

static inline void enter(_Atomic uint64_t *entry, uint64_t addr, uint64_t when)
{
    uint64_t key = addr >> UNIT_SHIFT << WHEN_BITS;
    atomic_store_explicit(entry, key | (uint16_t)when, memory_order_relaxed);
}

/* ---- uses in the trace */

/* The number of the present window. It changes with every step and with time. */
static uint16_t window_now(void)
{
    uint64_t now = ms_clock_coarse_ns() / WINDOW_NS + ms_steps_recorded();
    if (atomic_load_explicit(&window, memory_order_relaxed) != now &&
        atomic_exchange_explicit(&window, now, memory_order_relaxed) != now) {
        atomic_store_explicit(&recorded_in_window, 0, memory_order_relaxed);
    }
    return (uint16_t)now;
}

static void record(const struct ms_device *device, const struct ms_touched *use, uint16_t in_window)
{
    uint64_t seen = 0;
    _Atomic uint64_t *entry = entry_of(&recorded, use->addr, in_window, &seen);
    if ((is_of(seen, use->addr) && (uint16_t)seen == in_window) ||
        atomic_load_explicit(&recorded_in_window, memory_order_relaxed) >= RECORDED_IN_A_WINDOW) {
        return;
    }
    atomic_fetch_add_explicit(&recorded_in_window, 1, memory_order_relaxed);
    enter(entry, use->addr, in_window);
    struct ms_event event = {
        .kind = MS_EVENT_USE,
        .device = device->ordinal,
        .addr = use->addr,
        .bytes = use->bytes,
        .aux = use->host_bytes > 0,
    };
    ms_session_emit(&event);
}

/* ---- from launches to the pool */

static struct {
    _Atomic ms_addr_t addrs[NOTED_MAX];
    _Atomic uint32_t begin, end; /* ever increasing: passed on, noted */
    _Atomic uint32_t calls;      /* the count of calls when they were last passed on */
    atomic_flag handing;
} noted;

/* Offers the addresses to every pool: only the pool knows which are its own. */
static void touch_pools(const ms_addr_t *addrs, size_t count)
{
    struct ms_touched uses[HANDED_AT_ONCE];
    uint16_t in_window = window_now();
    int used = ms_devices_used();
    for (int d = 0; used > 0 && d < MS_DEVICES_MAX; d++) {
        const struct ms_device *device = ms_device_get(d);
        used -= device != NULL;
        if (device == NULL || device->pool == NULL) {
            continue;
        }
        ms_pool_touch_each(device->pool, addrs, count, uses);
        for (size_t i = 0; i < count; i++) {
            if (uses[i].bytes > 0) {
                record(device, &uses[i], in_window);
            }
        }
    }
}

void ms_heat_settle(void)
{
    uint32_t begin = atomic_load_explicit(&noted.begin, memory_order_relaxed);
    uint32_t end = atomic_load_explicit(&noted.end, memory_order_relaxed);
    if (begin == end || atomic_flag_test_and_set(&noted.handing)) {
        return;
    }
    begin = atomic_load(&noted.begin);
    end = atomic_load(&noted.end);
    atomic_store(&noted.calls, atomic_load_explicit(&calls, memory_order_relaxed));
    begin = end - begin > NOTED_MAX ? end - NOTED_MAX : begin;
    while (begin != end) {
        ms_addr_t addrs[HANDED_AT_ONCE];
        size_t count = 0;
        for (; begin != end && count < HANDED_AT_ONCE; begin++) {
            /* 0: another thread has taken the place and not written it yet */
            addrs[count] = atomic_exchange(&noted.addrs[begin % NOTED_MAX], 0);
            count += addrs[count] != 0;
        }
        touch_pools(addrs, count);
    }
    atomic_store(&noted.begin, end);
    atomic_flag_clear(&noted.handing);
}

/* ---- addresses */

/* The addresses of one call that the pool must get. */
struct fresh_addresses {
    uint32_t now, moment; /* in calls: an address touched within a moment is skipped */
    uint32_t count;
    ms_addr_t addrs[FRESH_MAX];
};

static void note(struct fresh_addresses *fresh)
{
    if (fresh->count == 0) {
        return;
    }
    uint32_t at = atomic_fetch_add_explicit(&noted.end, fresh->count, memory_order_relaxed);
    for (uint32_t i = 0; i < fresh->count; i++) {
        atomic_store_explicit(&noted.addrs[(at + i) % NOTED_MAX], fresh->addrs[i],
                              memory_order_relaxed);
    }
    uint32_t waiting = at + fresh->count - atomic_load_explicit(&noted.begin, memory_order_relaxed);
    fresh->count = 0;
    if (waiting > NOTED_MAX - FRESH_MAX) {
        ms_heat_settle();
    }
}

static void touch(struct fresh_addresses *fresh, uint64_t value)
{
    if (!ms_reach_may_hold(value)) {
        return;
    }
    uint64_t seen = 0;
    _Atomic uint64_t *entry = entry_of(&touched, value, fresh->now, &seen);
    if (is_of(seen, value) && (uint16_t)(fresh->now - seen) < fresh->moment) {
        return;
    }
    enter(entry, value, fresh->now);
    fresh->addrs[fresh->count++] = value;
    if (fresh->count == FRESH_MAX) {
        note(fresh);
    }
}

static void begin_call(struct fresh_addresses *fresh)
{
    uint32_t now = atomic_load_explicit(&calls, memory_order_relaxed) + 1;
    uint32_t waiting_calls = now - atomic_load_explicit(&noted.calls, memory_order_relaxed);
    atomic_store_explicit(&calls, now, memory_order_relaxed);
    if (waiting_calls > LATEST_CALLS) {
        ms_heat_settle();
        atomic_store_explicit(&noted.calls, now, memory_order_relaxed);
        waiting_calls = 0;
    }
    fresh->now = now;
    fresh->moment = waiting_calls > MOMENT_CALLS ? waiting_calls : MOMENT_CALLS;
    fresh->count = 0;
}

void ms_heat_touch_each(const uint64_t *values, size_t count)
{
    struct fresh_addresses fresh;
    begin_call(&fresh);
    for (size_t i = 0; i < count; i++) {
        touch(&fresh, values[i]);
    }
    note(&fresh);
}

static void touch_word(void *fresh, uint64_t value)
{
    touch(fresh, value);
}

void ms_heat_launch(const void *function, void **parameters, void **extra)
{
    struct fresh_addresses fresh;
    begin_call(&fresh);
    ms_parameters_each(function, parameters, extra, touch_word, &fresh);
    note(&fresh);
}
