/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline: a fixed number of buckets that double their width as the run goes on. */
#include "report/trace/series.h"

#include <string.h>

void ms_series_init(struct ms_series_pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    pair->copy[0].shift = MS_SERIES_FIRST_SHIFT;
    pair->copy[1].shift = MS_SERIES_FIRST_SHIFT;
}

bool ms_series_is_valid(const struct ms_series *series)
{
    return series->shift >= MS_SERIES_FIRST_SHIFT && series->shift <= MS_SERIES_LAST_SHIFT &&
           series->used <= MS_SERIES_BUCKETS;
}

static void merge_bucket(struct ms_bucket *into, const struct ms_bucket *later)
{
    if (later->samples == 0) {
        return;
    }
    if (into->samples == 0) {
        *into = *later;
        return;
    }
    into->samples += later->samples;
    for (int line = 0; line < MS_LINE_COUNT; line++) {
        if (later->min_bytes[line] < into->min_bytes[line]) {
            into->min_bytes[line] = later->min_bytes[line];
        }
        if (later->max_bytes[line] > into->max_bytes[line]) {
            into->max_bytes[line] = later->max_bytes[line];
        }
        into->last_bytes[line] = later->last_bytes[line];
    }
}

/* Doubles the width of a bucket. */
static struct ms_series *widen(struct ms_series_pair *pair)
{
    uint32_t from = atomic_load_explicit(&pair->current, memory_order_relaxed) & 1;
    const struct ms_series *old = &pair->copy[from];
    struct ms_series *new = &pair->copy[1 - from];

    new->shift = old->shift + 1;
    new->used = (old->used + 1) / 2;
    new->events = old->events;
    for (uint32_t i = 0; i < MS_SERIES_BUCKETS / 2; i++) {
        new->buckets[i] = old->buckets[2 * (size_t)i];
        merge_bucket(&new->buckets[i], &old->buckets[2 * (size_t)i + 1]);
    }
    memset(&new->buckets[MS_SERIES_BUCKETS / 2], 0,
           MS_SERIES_BUCKETS / 2 * sizeof(new->buckets[0]));
    atomic_store_explicit(&pair->current, 1 - from, memory_order_release);
    return new;
}

/* The current copy, wide enough for this time; null: past the end of all times. */
static struct ms_series *series_for(struct ms_series_pair *pair, uint64_t time_ns)
{
    const uint32_t current = atomic_load_explicit(&pair->current, memory_order_relaxed) & 1;
    struct ms_series *series = &pair->copy[current];

    while ((time_ns >> series->shift) >= MS_SERIES_BUCKETS) {
        if (series->shift >= MS_SERIES_LAST_SHIFT) {
            return NULL;
        }
        series = widen(pair);
    }
    return series;
}

/* A bucket's extremes include the values at its beginning. */
static void begin_bucket(const struct ms_series *series, struct ms_bucket *bucket,
                         const uint64_t *values)
{
    const uint64_t *before =
        series->used > 0 ? series->buckets[series->used - 1].last_bytes : values;

    memcpy(bucket->min_bytes, before, sizeof(bucket->min_bytes));
    memcpy(bucket->max_bytes, before, sizeof(bucket->max_bytes));
    memcpy(bucket->last_bytes, before, sizeof(bucket->last_bytes));
}

static void extend(struct ms_bucket *bucket, int line, uint64_t min_bytes, uint64_t max_bytes,
                   uint64_t last_bytes)
{
    if (min_bytes < bucket->min_bytes[line]) {
        bucket->min_bytes[line] = min_bytes;
    }
    if (max_bytes > bucket->max_bytes[line]) {
        bucket->max_bytes[line] = max_bytes;
    }
    bucket->last_bytes[line] = last_bytes;
}

static struct ms_bucket *note(struct ms_series *series, const struct ms_moment *moment)
{
    const uint32_t index = (uint32_t)(moment->time_ns >> series->shift);
    struct ms_bucket *bucket = &series->buckets[index];
    const uint64_t values[MS_LINE_COUNT] = {moment->live_bytes, moment->reserved_bytes,
                                            moment->charged_bytes, moment->cap_bytes};

    if (bucket->samples == 0) {
        begin_bucket(series, bucket, values);
    }
    bucket->samples++;
    for (int line = 0; line < MS_LINE_COUNT; line++) {
        if (values[line] != bucket->last_bytes[line]) {
            extend(bucket, line, values[line], values[line], values[line]);
        }
    }
    if (index >= series->used) {
        series->used = index + 1;
    }
    return bucket;
}

static void count_events(struct ms_series *series, size_t events)
{
    const uint64_t before = atomic_load_explicit(&series->events, memory_order_relaxed);

    atomic_store_explicit(&series->events, before + events, memory_order_release);
}

void ms_series_note(struct ms_series_pair *pair, const struct ms_moment *moment)
{
    struct ms_series *series = series_for(pair, moment->time_ns);

    if (series) {
        (void)note(series, moment);
        count_events(series, 1);
    }
}

/* Adds the events of the row that fall into the bucket of its first one; returns how many. */
static size_t note_bucket(struct ms_series *series, const struct ms_moment *others,
                          const struct ms_timed_event *row, const uint64_t *live_bytes,
                          size_t count)
{
    const uint64_t end_ns = ((row[0].time_ns >> series->shift) + 1) << series->shift;
    struct ms_moment first = *others;
    uint64_t min_bytes = live_bytes[0], max_bytes = live_bytes[0];
    size_t i = 1;

    first.time_ns = row[0].time_ns;
    first.live_bytes = live_bytes[0];

    struct ms_bucket *bucket = note(series, &first);

    for (; i < count && row[i].time_ns < end_ns; i++) {
        min_bytes = live_bytes[i] < min_bytes ? live_bytes[i] : min_bytes;
        max_bytes = live_bytes[i] > max_bytes ? live_bytes[i] : max_bytes;
    }
    extend(bucket, MS_LINE_LIVE, min_bytes, max_bytes, live_bytes[i - 1]);
    bucket->samples += i - 1;
    return i;
}

void ms_series_note_row(struct ms_series_pair *pair, const struct ms_moment *others,
                        const struct ms_timed_event *row, const uint64_t *live_bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        struct ms_series *series = series_for(pair, row[done].time_ns);

        if (!series) {
            return;
        }

        const size_t noted =
            note_bucket(series, others, row + done, live_bytes + done, count - done);

        count_events(series, noted);
        done += noted;
    }
}
