/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_MONOTONIC, read from the processor's counter: a third of the price of the system's call,
 * which a trace pays at every event.
 *
 * The counter is used only if the kernel itself keeps time by it, and only for a millisecond after
 * a reading of the system's clock, against which its rate is measured again and again. Otherwise
 * each reading asks the system. Not thread-safe: the caller holds a lock. */
#ifndef MEMSHIM_REPORT_WRITE_TRACE_CLOCK_H
#define MEMSHIM_REPORT_WRITE_TRACE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#    include <x86intrin.h>
#endif

struct ms_clock {
    uint64_t ticks, ns;             /* the last reading of the system's clock */
    uint64_t good_ticks;            /* for so many ticks after it the counter is used; 0: never */
    uint64_t scale;                 /* ns a tick << MS_CLOCK_SHIFT */
    uint64_t first_ticks, first_ns; /* where the measurement of the rate began; 0: not yet */
    bool usable;
};

#define MS_CLOCK_SHIFT 32

void ms_clock_init(struct ms_clock *clock);

/* Asks the system, and measures the counter's rate. */
uint64_t ms_clock_read_ns(struct ms_clock *clock);

static inline uint64_t ms_clock_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

/* Nanoseconds of CLOCK_MONOTONIC at a reading of the counter from just now. False: the counter may
 * not be used. May fall behind an earlier result by the error of the rate. */
static inline bool ms_trace_clock_known(const struct ms_clock *clock, uint64_t ticks, uint64_t *ns)
{
    const uint64_t passed = ticks - clock->ticks;

    *ns = clock->ns + (passed * clock->scale >> MS_CLOCK_SHIFT);
    return __builtin_expect(passed < clock->good_ticks, 1);
}

/* The same, and asks the system if it must. */
static inline uint64_t ms_trace_clock_ns(struct ms_clock *clock, uint64_t ticks)
{
    uint64_t ns;

    return ms_trace_clock_known(clock, ticks, &ns) ? ns : ms_clock_read_ns(clock);
}

#endif
