/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline's buckets: extremes are kept while they widen. */
#include <criterion/criterion.h>

#include "report/trace/series.h"
#include "synthetic.h"

static struct ms_series_pair pair;

static const struct ms_series *current(void)
{
    return &pair.copy[pair.current];
}

static void note(uint64_t time_ns, uint64_t live)
{
    const struct ms_moment moment = {time_ns, live, live * 2, live * 3, 100};

    ms_series_note(&pair, &moment);
}

Test(series, keeps_the_extremes_of_a_bucket)
{
    ms_series_init(&pair);
    note(10, 5);
    note(20, 90);
    note(30, 1);
    note(40, 7);

    const struct ms_bucket *bucket = &current()->buckets[0];

    cr_assert_eq(bucket->samples, 4);
    cr_assert_eq(bucket->min_bytes[MS_LINE_LIVE], 1);
    cr_assert_eq(bucket->max_bytes[MS_LINE_LIVE], 90);
    cr_assert_eq(bucket->last_bytes[MS_LINE_LIVE], 7);
    cr_assert_eq(bucket->max_bytes[MS_LINE_CHARGED], 270);
    cr_assert_eq(bucket->last_bytes[MS_LINE_CAP], 100);
}

Test(series, what_held_before_a_bucket_belongs_to_it)
{
    ms_series_init(&pair);
    note(0, 50);
    note(UINT64_C(3) << MS_SERIES_FIRST_SHIFT, 10);
    cr_assert_eq(current()->used, 4);
    cr_assert_eq(current()->buckets[1].samples, 0);
    cr_assert_eq(current()->buckets[3].max_bytes[MS_LINE_LIVE], 50);
    cr_assert_eq(current()->buckets[3].min_bytes[MS_LINE_LIVE], 10);
}

Test(series, a_longer_run_widens_the_buckets_and_loses_no_peak)
{
    const uint64_t day_ns = UINT64_C(86400) * 1000000000;

    ms_series_init(&pair);
    for (uint64_t i = 0; i < 100000; i++) {
        note(i * (day_ns * 7 / 100000), i == 31415 ? 999999 : i % 1000);
    }

    uint64_t peak = 0, samples = 0;

    for (uint32_t i = 0; i < current()->used; i++) {
        peak = current()->buckets[i].max_bytes[MS_LINE_LIVE] > peak
                   ? current()->buckets[i].max_bytes[MS_LINE_LIVE]
                   : peak;
        samples += current()->buckets[i].samples;
    }
    cr_assert_eq(peak, 999999);
    cr_assert_eq(samples, 100000);
    cr_assert_gt(current()->used, MS_SERIES_BUCKETS / 2);
    cr_assert_leq(current()->used, MS_SERIES_BUCKETS);
    cr_assert(ms_series_is_valid(current()));

    /* The bucket of the peak lies where its time says. */
    const uint64_t peak_ns = 31415 * (day_ns * 7 / 100000);

    cr_assert_eq(current()->buckets[peak_ns >> current()->shift].max_bytes[MS_LINE_LIVE], 999999);
}

/* Rows of any length over any number of buckets, against a recount by plain loops. */
Test(series, rows_against_a_recount)
{
    enum { EVENTS = 20000, ROW = 128 };
    static struct ms_timed_event row[EVENTS];
    static uint64_t live[EVENTS];
    const struct ms_moment others = {0, 0, 5000, 6000, 7000};
    uint64_t random = 8, time_ns = 0;

    ms_series_init(&pair);
    for (int i = 0; i < EVENTS; i++) {
        time_ns += synthetic_random(&random) % 8192;
        row[i].time_ns = time_ns;
        live[i] = synthetic_random(&random) % 4000;
    }
    for (size_t done = 0; done < EVENTS;) {
        size_t count = 1 + synthetic_random(&random) % ROW;

        count = count < EVENTS - done ? count : EVENTS - done;
        ms_series_note_row(&pair, &others, row + done, live + done, count);
        done += count;
    }
    cr_assert_eq(current()->events, EVENTS);
    for (uint32_t b = 0; b < current()->used; b++) {
        const struct ms_bucket *bucket = &current()->buckets[b];
        uint64_t samples = 0, min = UINT64_MAX, max = 0;

        for (int i = 0; i < EVENTS; i++) {
            if (row[i].time_ns >> current()->shift == b) {
                /* What held when the first bucket of those merged into this one began counts. */
                min = live[i] < min ? live[i] : min;
                max = live[i] > max ? live[i] : max;
                samples++;
            }
        }
        cr_assert_eq(bucket->samples, samples);
        if (samples > 0) {
            cr_assert_leq(bucket->min_bytes[MS_LINE_LIVE], min);
            cr_assert_geq(bucket->max_bytes[MS_LINE_LIVE], max);
            cr_assert_eq(bucket->max_bytes[MS_LINE_CAP], 7000);
        }
    }
}
