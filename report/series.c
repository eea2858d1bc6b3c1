#include "report/series.h"

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
    for (uint32_t i = 0; i < MS_SERIES_BUCKETS / 2; i++) {
        new->buckets[i] = old->buckets[2 * (size_t)i];
        merge_bucket(&new->buckets[i], &old->buckets[2 * (size_t)i + 1]);
    }
    memset(&new->buckets[MS_SERIES_BUCKETS / 2], 0,
           MS_SERIES_BUCKETS / 2 * sizeof(new->buckets[0]));
    atomic_store_explicit(&pair->current, 1 - from, memory_order_release);
    return new;
}

void ms_series_note(struct ms_series_pair *pair, const struct ms_moment *moment)
{
    uint32_t current = atomic_load_explicit(&pair->current, memory_order_relaxed) & 1;
    struct ms_series *series = &pair->copy[current];
    const uint64_t values[MS_LINE_COUNT] = {moment->live_bytes, moment->reserved_bytes,
                                            moment->charged_bytes, moment->cap_bytes};

    while ((moment->time_ns >> series->shift) >= MS_SERIES_BUCKETS) {
        if (series->shift >= MS_SERIES_LAST_SHIFT) {
            return;
        }
        series = widen(pair);
    }

    uint32_t index = (uint32_t)(moment->time_ns >> series->shift);
    struct ms_bucket *bucket = &series->buckets[index];

    if (bucket->samples == 0) {
        /* What held when the bucket began belongs to its extremes. */
        const uint64_t *before =
            series->used > 0 ? series->buckets[series->used - 1].last_bytes : values;
        memcpy(bucket->min_bytes, before, sizeof(bucket->min_bytes));
        memcpy(bucket->max_bytes, before, sizeof(bucket->max_bytes));
        memcpy(bucket->last_bytes, before, sizeof(bucket->last_bytes));
    }
    bucket->samples++;
    for (int line = 0; line < MS_LINE_COUNT; line++) {
        if (values[line] == bucket->last_bytes[line]) {
            continue;
        }
        if (values[line] < bucket->min_bytes[line]) {
            bucket->min_bytes[line] = values[line];
        }
        if (values[line] > bucket->max_bytes[line]) {
            bucket->max_bytes[line] = values[line];
        }
        bucket->last_bytes[line] = values[line];
    }
    if (index >= series->used) {
        series->used = index + 1;
    }
}
