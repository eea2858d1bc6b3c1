/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as growth, by series that are known. */
#include <criterion/criterion.h>

#include "report/model/growth.h"
#include "report/model/kinds.h"

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

/* ---- by what is left of rounds ---- */

static enum ms_growth_degree degree;
static size_t first_round;

/* What is left of so many rounds, one in `every`, looked at in round `now`. */
static bool of_rounds(size_t count, uint64_t every, uint64_t now)
{
    struct ms_kept_round rounds[COUNT] = {{0}};

    for (size_t i = 0; i < count; i++) {
        rounds[i] = (struct ms_kept_round){.round = 3 + i * every, .bytes = 1000};
    }
    return ms_growth_of_rounds(rounds, count, now, &first_round, &degree);
}

Test(growth, twice_is_likely_and_eight_times_is_seen)
{
    cr_expect_not(of_rounds(0, 1, 4));
    cr_expect_not(of_rounds(1, 1, 4));
    cr_assert(of_rounds(2, 1, 5));
    cr_expect_eq(degree, MS_GROWTH_LIKELY);
    cr_expect_eq(first_round, 0);
    cr_assert(of_rounds(MS_GROWTH_FEWEST - 1, 1, MS_GROWTH_FEWEST + 2));
    cr_expect_eq(degree, MS_GROWTH_LIKELY);
    cr_assert(of_rounds(MS_GROWTH_FEWEST, 1, MS_GROWTH_FEWEST + 3));
    cr_expect_eq(degree, MS_GROWTH_SEEN);
}

Test(growth, what_ceased_is_none)
{
    /* Rounds 3, 4, 5. */
    cr_expect(of_rounds(3, 1, 6));
    cr_expect_not(of_rounds(3, 1, 7));
    /* Rounds 3, 8, 13. */
    cr_expect(of_rounds(3, 5, 18));
    cr_expect_not(of_rounds(3, 5, 19));
}

Test(growth, setting_up_is_none)
{
    const struct ms_kept_round set_up[] = {{0, 100000}, {1, 1000}};
    const struct ms_kept_round fades[] = {{1, 4000}, {2, 1500}, {3, 300}};
    const struct ms_kept_round grows[] = {{0, 100000}, {1, 1000}, {2, 1000}};

    cr_expect_not(ms_growth_of_rounds(set_up, 2, 2, &first_round, &degree));
    cr_expect_not(ms_growth_of_rounds(fades, 3, 4, &first_round, &degree));
    cr_assert(ms_growth_of_rounds(grows, 3, 3, &first_round, &degree));
    cr_expect_eq(first_round, 1, "what was there before does not grow");
}

static bool of_few(const uint64_t *samples, size_t count)
{
    size_t first;

    return ms_growth_of_few(samples, count, &first);
}

Test(growth, few_samples_that_rise_alike)
{
    const uint64_t longer[] = {0, 80, 160, 240, 320};
    const uint64_t set_up_first[] = {0, 5000, 5080, 5160, 5240};
    const uint64_t uneven[] = {0, 60, 100, 180};

    cr_expect(of_few(longer, 5));
    cr_expect(of_few(set_up_first, 5));
    cr_expect(of_few(uneven, 4));
}

Test(growth, few_samples_that_do_not)
{
    const uint64_t longer[] = {0, 80, 160, 240};
    const uint64_t ends[] = {0, 80, 160, 240, 240};
    const uint64_t falls[] = {0, 80, 20, 100, 180};
    const uint64_t fades[] = {0, 4000, 5000, 5300, 5400};
    const uint64_t set_up[] = {0, 0, 5000, 5010, 5020};

    cr_expect_not(of_few(longer, 3), "two rises may be chance");
    cr_expect_not(of_few(ends, 5));
    cr_expect_not(of_few(falls, 5));
    cr_expect_not(of_few(fades, 5));
    cr_expect_not(of_few(set_up, 5));
    cr_expect_not(of_few(longer, 0));
}

/* ---- few rises among many samples ---- */

static bool of_pauses(size_t count, struct ms_rise *found)
{
    struct ms_slope slope;

    cr_expect_not(ms_growth_find(steps, bytes, count, &slope), "that is another rule's");
    return ms_growth_of_pauses(steps, bytes, count, found);
}

/* `by` more after each `every` of the first `until` samples. */
static void rise_with_pauses(size_t every, uint64_t by, size_t until)
{
    rise(1000000, 0, 0, 0);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] += by * ((i < until ? i : until) / every);
    }
}

Test(growth, what_is_kept_of_each_of_five_epochs)
{
    struct ms_rise found;

    rise_with_pauses(16, 4096, COUNT);
    cr_assert(of_pauses(80, &found));
    cr_expect_eq(found.rises, 4, "the last epoch ends behind the last sample");
    cr_expect_eq(found.since, 16);
    bytes[0] = bytes[1] = 0; /* it is set up */
    cr_assert(of_pauses(80, &found));
    cr_expect_eq(found.rises, 4);
}

Test(growth, few_rises_that_are_none)
{
    struct ms_rise found;

    rise_with_pauses(16, 4096, COUNT);
    cr_expect_not(of_pauses(64, &found), "three may be chance");
    rise_with_pauses(10, 4096, 40);
    cr_expect_not(of_pauses(COUNT, &found), "it ceased");
    rise_with_pauses(16, 4096, COUNT);
    bytes[70] = 1000000;
    cr_expect_not(of_pauses(80, &found), "it falls");
    rise_with_pauses(16, 4096, COUNT);
    for (size_t i = 33; i < 48; i++) {
        bytes[i] += 4096 * (i - 33);
    }
    cr_expect_not(of_pauses(80, &found));
    rise_with_pauses(1, 0, COUNT);
    for (size_t i = 95; i < COUNT; i++) {
        bytes[i] += 4096 * (i - 94);
    }
    cr_expect_not(of_pauses(COUNT, &found), "it may be about to fall");
    rise_with_pauses(2, 4, COUNT);
    cr_expect_not(ms_growth_of_pauses(steps, bytes, 10, &found), "these are not seldom");
    rise_with_pauses(1, 0, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] += UINT64_C(4096) * ((i > 20) + (i > 21) + (i > 22) + (i > 80));
    }
    cr_expect_not(of_pauses(COUNT, &found), "as it comes");
}

/* ---- rise by rise ---- */

/* One sample a round, from round 1 on. */
static struct ms_rise rise_of(const uint64_t *samples, size_t count)
{
    struct ms_rise rise = {0};

    for (size_t i = 0; i < count; i++) {
        ms_rise_add(&rise, i + 1, samples[i], 10 * (i + 1));
    }
    return rise;
}

Test(growth, rises_alike_are_counted_up_to_the_end)
{
    const uint64_t alike[] = {80, 160, 240, 300, 400};
    const struct ms_rise rise = rise_of(alike, 5);

    cr_expect_eq(rise.rises, 5);
    cr_expect_eq(rise.first_bytes, 0);
    cr_expect_eq(rise.bytes, 400);
    cr_expect_eq(rise.since, 10);
    cr_expect(ms_rise_goes_on(&rise, 6));
    cr_expect_not(ms_rise_goes_on(&rise, 7), "it has ceased");
}

Test(growth, rises_in_every_third_round)
{
    const uint64_t every_third[] = {80, 80, 80, 160, 160, 160, 240};
    const struct ms_rise rise = rise_of(every_third, 7);

    cr_expect_eq(rise.rises, 3);
    cr_expect_eq(rise.longest, 3);
    cr_expect(ms_rise_goes_on(&rise, 10));
    cr_expect_not(ms_rise_goes_on(&rise, 11));
}

Test(growth, rises_begin_anew)
{
    const uint64_t set_up[] = {5000, 5080, 5160, 5240}, falls[] = {80, 160, 20, 100, 180},
                   doubles[] = {80, 160, 400, 1600, 6400}, ends[] = {80, 160, 0};

    cr_expect_eq(rise_of(set_up, 4).rises, 3);
    cr_expect_eq(rise_of(set_up, 4).first_bytes, 5000);
    cr_expect_eq(rise_of(falls, 5).rises, 2);
    cr_expect_eq(rise_of(falls, 5).first_bytes, 20);
    cr_expect_eq(rise_of(doubles, 5).rises, 1);

    const struct ms_rise none = rise_of(ends, 3);

    cr_expect_eq(none.rises, 0);
    cr_expect_not(ms_rise_goes_on(&none, 3));
}

/* ---- by age ---- */

enum { AGED = 9 };

Test(growth, a_queue_holds_the_newest)
{
    const uint64_t rises[AGED] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
    /* Of nine blocks, each made at another step. */
    const uint64_t all_stay[AGED] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
    /* The same bytes, all of the last four steps. */
    const uint64_t newest[AGED] = {0, 0, 0, 0, 0, 30, 50, 70, 90};

    cr_expect(ms_growth_is_queue(rises, newest, 0, AGED));
    cr_expect_not(ms_growth_is_queue(rises, all_stay, 0, AGED));
}

Test(growth, a_queue_stands_on_what_stays)
{
    const uint64_t rises[AGED] = {510, 520, 530, 540, 550, 560, 570, 580, 590};
    const uint64_t stays_below[AGED] = {500, 500, 500, 500, 500, 510, 530, 560, 590};
    const uint64_t half_stays[AGED] = {500, 505, 510, 515, 520, 530, 545, 565, 590};

    cr_expect(ms_growth_is_queue(rises, stays_below, 0, AGED));
    cr_expect_not(ms_growth_is_queue(rises, half_stays, 0, AGED));
}

Test(growth, what_is_made_anew_and_longer_is_no_queue)
{
    const uint64_t rises[AGED] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
    const uint64_t made_last[AGED] = {[AGED - 1] = 90};
    const uint64_t made_seldom[AGED] = {[AGED - 3] = 90, 90, 90};

    cr_expect_not(ms_growth_is_queue(rises, made_last, 0, AGED));
    cr_expect_not(ms_growth_is_queue(rises, made_seldom, 0, AGED));
}

Test(growth, of_unknown_age_is_no_queue)
{
    const uint64_t rises[AGED] = {10, 20, 30, 40, 50, 60, 70, 80, 90};
    const uint64_t few_known[AGED] = {0, 0, 0, 0, 0, 0, 10, 20, 30};

    cr_expect_not(ms_growth_is_queue(rises, few_known, 0, AGED));
}

Test(growth, a_queue_of_a_short_run_drains)
{
    const struct ms_drain drain = {
        .bytes = 80, .first_ns = 1000, .last_ns = 9000, .longest_ns = 1500};
    struct ms_drain other = drain;

    cr_expect(ms_growth_drains(&drain, 90, 5000));
    cr_expect_not(ms_growth_drains(&drain, 200, 5000), "most of it stays");
    cr_expect_not(ms_growth_drains(&drain, 90, 8001), "it goes faster than it came");
    other.longest_ns = 7000;
    cr_expect_not(ms_growth_drains(&other, 90, 5000), "it goes in two parts");
    cr_expect_not(ms_growth_drains(&(struct ms_drain){0}, 90, 5000), "nothing was freed");
}

/* ---- what is longer in each step ---- */

enum { OF_INPUTS, OF_RESULT, OF_BUFFER, OF_LEAK, OF_ROUNDS, ROWS };

/* Of 40 steps. */
static size_t left_of(struct ms_growing_site rows[ROWS], uint8_t kind_of_inputs, double inputs)
{
    rows[OF_INPUTS] = (struct ms_growing_site){.site = 1, .kind = kind_of_inputs, .held = inputs};
    rows[OF_RESULT] = (struct ms_growing_site){.site = 2, .kind = MS_KIND_ACTIVATIONS, .held = 1.9};
    rows[OF_BUFFER] = (struct ms_growing_site){.site = 3, .kind = MS_KIND_PERSISTENT, .held = 12};
    rows[OF_LEAK] = (struct ms_growing_site){.site = 4, .kind = MS_KIND_PERSISTENT, .held = 39};
    rows[OF_ROUNDS] = (struct ms_growing_site){.site = 5, .rounds = 4};
    return ms_growth_drop_longer(rows, ROWS, 40);
}

Test(growth, what_longer_inputs_need_is_none)
{
    struct ms_growing_site rows[ROWS];

    cr_assert_eq(left_of(rows, MS_KIND_INPUTS, 1.9), 2);
    cr_expect_eq(rows[0].site, 4);
    cr_expect_eq(rows[1].site, 5);
}

Test(growth, what_is_made_anew_and_longer_grows_where_inputs_do_not)
{
    struct ms_growing_site rows[ROWS];

    cr_expect_eq(left_of(rows, MS_KIND_TEMPORARY, 1.9), ROWS);
    cr_expect_eq(left_of(rows, MS_KIND_INPUTS, 39), ROWS, "they are kept");
}
