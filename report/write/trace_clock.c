/* SPDX-License-Identifier: Apache-2.0 */
/* Reads time from the processor's counter, checked against the system's clock. */
#include "report/write/trace_clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"

/* How long to rely on the counter between two readings of the system's clock */
#define BELIEVED_NS UINT64_C(1000000)
/* The shortest measurement of a rate that counts: some ppm of error */
#define MEASURED_NS UINT64_C(20000000)
#define RENEWED_NS  UINT64_C(500000000) /* measure the rate again after this */
/* Two readings of the system's clock around one of the counter: further apart, other threads ran in
 * between, and nobody knows when the counter was read. */
#define TOGETHER_NS UINT64_C(10000)

/* On aarch64 the kernel always uses this counter. On x86-64 it chooses another clock if processors'
 * counters stop, change their rate, or differ. */
static bool is_usable(void)
{
#if defined(__x86_64__)
    char name[8] = "";
    const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return false;
    }

    const ssize_t got = read(fd, name, sizeof(name) - 1);

    close(fd);
    return got > 0 && strcmp(name, "tsc\n") == 0;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

static void begin_measurement(struct ms_clock *clock)
{
    clock->first_ticks = clock->ticks;
    clock->first_ns = clock->ns;
}

/* False: one of the two was read a while after the other. */
static bool read_both(struct ms_clock *clock)
{
    const uint64_t before_ns = ms_clock_ns();

    clock->ticks = ms_clock_ticks();
    clock->ns = ms_clock_ns();
    return clock->ns - before_ns <= TOGETHER_NS;
}

/* A rate far from the one before means that one of the two clocks stood still (the machine slept):
 * it is measured again before use. */
static void measure(struct ms_clock *clock)
{
    const uint64_t ticks = clock->ticks - clock->first_ticks;
    const uint64_t ns = clock->ns - clock->first_ns;

    if (clock->first_ns == 0) {
        begin_measurement(clock);
        return;
    }
    if (ns < MEASURED_NS || ticks == 0) {
        return;
    }

    const uint64_t scale = ms_share(ns, ticks, UINT64_C(1) << MS_CLOCK_SHIFT);
    const uint64_t before = clock->scale;
    const uint64_t change = scale > before ? scale - before : before - scale;
    const bool steady = before == 0 || change < before / 1000;

    clock->scale = steady ? scale : 0;
    clock->good_ticks = steady ? ticks / (ns / BELIEVED_NS) : 0;
    if (!steady || ns >= RENEWED_NS) {
        begin_measurement(clock);
    }
}

uint64_t ms_clock_read_ns(struct ms_clock *clock)
{
    if (!clock->usable) {
        return ms_clock_ns();
    }
    if (read_both(clock)) {
        measure(clock);
    } else {
        clock->good_ticks = 0;
    }
    return clock->ns;
}

void ms_clock_init(struct ms_clock *clock)
{
    *clock = (struct ms_clock){.usable = is_usable()};
    (void)ms_clock_read_ns(clock);
}
