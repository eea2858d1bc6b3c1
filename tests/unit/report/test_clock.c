/* SPDX-License-Identifier: Apache-2.0 */
/* The cheap clock tells the system's time. */
#include <criterion/criterion.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "report/write/trace_clock.h"

#define TOLERANCE_NS UINT64_C(100000)
#define DELAY_NS     UINT64_C(5000000)

static struct ms_clock ours;
static unsigned delayed_readings; /* so many next readings of the system's clock take DELAY_NS */

static uint64_t system_ns(void);

/* The library's: a program's own comes before libc's. A thread that the scheduler stops in this
 * call gets its time late. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (delayed_readings > 0) {
        delayed_readings--;
        for (const uint64_t end = system_ns() + DELAY_NS; system_ns() < end;) {
        }
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}

static uint64_t system_ns(void)
{
    struct timespec now;

    (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Between two readings of the system's clock lies that of ours, whatever interrupts it. */
static void expect_between(void)
{
    const uint64_t before = system_ns();
    const uint64_t now = ms_trace_clock_ns(&ours, ms_clock_ticks());
    const uint64_t after = system_ns();

    cr_assert_geq(now + TOLERANCE_NS, before);
    cr_assert_leq(now, after + TOLERANCE_NS);
}

static void expect_between_for(uint64_t duration_ns)
{
    for (const uint64_t end = system_ns() + duration_ns; system_ns() < end;) {
        expect_between();
    }
}

Test(clock, follows_the_system)
{
    ms_clock_init(&ours);

    expect_between_for(1200000000);
}

/* Between the counter's reading and the system's other threads ran: the time is not believed. */
Test(clock, a_reading_that_was_interrupted_is_not_believed)
{
    ms_clock_init(&ours);
    expect_between_for(100000000);
    delayed_readings = 1;
    (void)ms_clock_read_ns(&ours);
    expect_between_for(100000000);
}

Test(clock, a_rate_is_not_measured_by_an_interrupted_reading)
{
    delayed_readings = 1;
    ms_clock_init(&ours);
    expect_between_for(60000000);

    ms_clock_init(&ours);
    expect_between_for(15000000);
    delayed_readings = 100;
    expect_between_for(60000000);
}

/* A counter that stood still, or ran at another rate, while the system's clock went on. */
Test(clock, a_rate_that_changes_is_not_believed)
{
    struct timespec a_while = {.tv_nsec = 60000000};

    ms_clock_init(&ours);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &a_while, NULL);
    expect_between();
    ours.first_ticks -= 3 * (ms_clock_ticks() - ours.first_ticks);
    (void)ms_clock_read_ns(&ours);
    cr_assert_eq(ours.good_ticks, 0);
    expect_between();
}

Test(clock, a_counter_that_is_not_to_be_used_is_not)
{
    ms_clock_init(&ours);
    ours.usable = false;
    for (int i = 0; i < 1000; i++) {
        expect_between();
    }
    cr_assert_eq(ours.good_ticks, 0);
}
