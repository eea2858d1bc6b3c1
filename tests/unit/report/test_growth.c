/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as growth, by series that are known. */
#include <criterion/criterion.h>

#include "report/model/growth.h"

#define COUNT 100

static uint64_t steps[COUNT], bytes[COUNT];

/* Fills `bytes` with base + rate for each step from `from` to `to`. */
static void rise(uint64_t base, uint64_t rate, size_t from, size_t to)
{
    for (size_t i = 0; i < COUNT; i++) {
        const size_t risen = i <= from ? 0 : (i < to ? i : to) - from;

        steps[i] = 10 + i;
        bytes[i] = base + rate * risen;
    }
}

/* Up and down by a pattern that does not repeat in step with anything. */
static uint64_t noise(size_t i, uint64_t most)
{
    return (i * i * 2654435761u >> 7) % most;
}

Test(growth, a_leak_from_the_first_step)
{
    struct ms_slope slope;

    rise(1000000, 512, 0, COUNT);
    cr_assert(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_eq(slope.bytes_per_step, 512.0);
    cr_expect_eq(slope.error, 0.0);
    cr_expect_eq(slope.first, 0);
}

Test(growth, a_leak_that_begins_later)
{
    struct ms_slope slope;

    rise(1000000, 1900, 42, COUNT);
    cr_assert(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_eq(slope.bytes_per_step, 1900.0);
    cr_expect_eq(slope.first, 42);
}

Test(growth, a_leak_after_a_warm_up)
{
    struct ms_slope slope;

    rise(1000000, 100, 42, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] += 50000 * (i < 10 ? i : 10);
    }
    cr_assert(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_eq(slope.bytes_per_step, 100.0);
    cr_expect_eq(slope.first, 42);
}

Test(growth, steps_of_which_only_some_were_kept)
{
    struct ms_slope slope;

    rise(0, 512, 0, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        steps[i] = 1 + 64 * i;
        bytes[i] = 512 * (64 * i);
    }
    cr_assert(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_eq(slope.bytes_per_step, 512.0);
}

Test(growth, a_leak_every_tenth_step)
{
    struct ms_slope slope;

    rise(0, 0, 0, 0);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] = 5000 * (i / 10);
    }
    cr_assert(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_float_eq(slope.bytes_per_step, 500.0, 50.0);
}

Test(growth, a_leak_among_what_comes_and_goes)
{
    struct ms_slope slope;

    rise(1000000, 5000, 0, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] += noise(i, 60000);
    }
    cr_assert(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_float_eq(slope.bytes_per_step, 5000.0, 500.0);
    cr_expect_gt(slope.error, 0.0);
    cr_expect_lt(slope.error, 500.0);
}

Test(growth, a_warm_up_is_none)
{
    struct ms_slope slope;

    rise(1000000, 4096, 0, 10);
    cr_expect_not(ms_growth_find(steps, bytes, COUNT, &slope));
    cr_expect_not(ms_growth_find(steps, bytes, 20, &slope));
}

Test(growth, what_comes_and_goes_is_none)
{
    struct ms_slope slope;

    rise(1000000, 0, 0, 0);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] += noise(i, 100000);
    }
    for (size_t count = MS_GROWTH_FEWEST; count <= COUNT; count++) {
        cr_expect_not(ms_growth_find(steps, bytes, count, &slope), "%zu samples", count);
    }
}

Test(growth, what_falls_or_stays_is_none)
{
    struct ms_slope slope;

    rise(1000000, 0, 0, 0);
    cr_expect_not(ms_growth_find(steps, bytes, COUNT, &slope));
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] = 1000000 - 100 * i;
    }
    cr_expect_not(ms_growth_find(steps, bytes, COUNT, &slope));
}

Test(growth, too_few_samples)
{
    struct ms_slope slope;

    rise(0, 512, 0, COUNT);
    cr_expect_not(ms_growth_find(steps, bytes, MS_GROWTH_FEWEST - 1, &slope));
    cr_expect(ms_growth_find(steps, bytes, MS_GROWTH_FEWEST, &slope));
}

Test(growth, a_line_has_its_slope_and_error)
{
    struct ms_slope slope;

    rise(1000000, 0, 0, 0);
    cr_assert(ms_growth_fit(steps, bytes, 25, COUNT, &slope));
    cr_expect_eq(slope.bytes_per_step, 0.0);
    cr_expect_eq(slope.error, 0.0);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] = 1000000 + noise(i, 1000);
    }
    cr_assert(ms_growth_fit(steps, bytes, 25, COUNT, &slope));
    cr_expect_gt(slope.error, 0.0);
    cr_expect_lt(slope.bytes_per_step, 3 * slope.error);
    cr_expect_gt(slope.bytes_per_step, -3 * slope.error);
    cr_expect_not(ms_growth_fit(steps, bytes, COUNT - 1, COUNT, &slope));
}
