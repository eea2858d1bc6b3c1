/* SPDX-License-Identifier: Apache-2.0 */
/* Follows time in the survey: buckets, the highest moment of each slice, and steps. */
#include <stdlib.h>
#include <string.h>

#include "report/model/survey/state.h"

#define SLICE_BUCKETS (MS_SURVEY_BUCKETS / MS_SURVEY_SLICES)
#define MOST_SAMPLED  8192u /* the first sites, which have samples at steps */
#define CLEARLY_MORE  256u  /* a step needs clearly more than all before it: by 1/n */

_Static_assert(MS_SURVEY_BUCKETS % MS_SURVEY_SLICES == 0, "a slice is a row of buckets");

static void read_lines(const struct ms_sampler *sampler, uint64_t lines[MS_SURVEY_LINES])
{
    const struct ms_counters *now = &sampler->sums.now;
    const uint64_t reserved = ms_counters_reserved(now);
    const uint64_t pool = now->owner_bytes[MS_OWNER_POOL];
    const uint64_t application = now->owner_bytes[MS_OWNER_APPLICATION];
    const uint64_t forwarded = now->owner_bytes[MS_OWNER_FORWARDED];
    const uint64_t own = now->outside ? pool + application : pool;
    /* With the pool off, reserved memory was forwarded. */
    const uint64_t ground = reserved > own ? reserved - own : 0;

    memcpy(lines, sampler->kind_bytes, sizeof(sampler->kind_bytes));
    lines[MS_SURVEY_HOLES] = reserved > sampler->live_bytes ? reserved - sampler->live_bytes : 0;
    lines[MS_SURVEY_FORWARDED] = forwarded > ground ? forwarded - ground : 0;
    lines[MS_SURVEY_CONTEXT] = now->owner_bytes[MS_OWNER_CONTEXT];
    lines[MS_SURVEY_APPLICATION] = now->outside ? 0 : application;
}

void ms_sampler_note_highest(struct ms_sampler *sampler)
{
    if (sampler->rising) {
        read_lines(sampler, sampler->to->buckets[sampler->bucket].highest_bytes);
        sampler->rising = false;
    }
}

/* ---- holders of live memory ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct ms_holding *left = a, *right = b;

    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

/* at_highest: at the slice's highest moment; else now. */
static void add_holdings(const struct ms_sampler *sampler, struct ms_survey_moment *moment,
                         bool at_highest)
{
    struct ms_survey_device *to = sampler->to;
    struct ms_buffer all = {0};
    size_t count;

    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        const struct ms_sampled_site *site = &sampler->sites[id];
        const struct ms_holding holding = {
            .site = id,
            .path_site = site->path_site ? site->path_site : id,
            .kind = site->kind,
            .bytes =
                at_highest && site->kept_epoch == sampler->epoch ? site->kept_bytes : site->bytes,
        };

        if (holding.bytes > 0) {
            ms_buffer_append(&all, (const char *)&holding, sizeof(holding));
        }
    }
    count = all.bytes / sizeof(struct ms_holding);
    if (count > 0) {
        qsort(all.at, count, sizeof(struct ms_holding), by_bytes);
    }
    moment->first = to->holdings.bytes / sizeof(struct ms_holding);
    moment->count = count < MS_SURVEY_HOLDINGS ? count : MS_SURVEY_HOLDINGS;
    ms_buffer_append(&to->holdings, all.at, moment->count * sizeof(struct ms_holding));
    for (size_t i = moment->count; i < count; i++) {
        moment->other_bytes += ((const struct ms_holding *)all.at)[i].bytes;
        moment->other_sites++;
    }
    if (to->holdings.failed) {
        moment->count = 0;
    }
    ms_buffer_free(&all);
}

void ms_sampler_moment(struct ms_sampler *sampler, enum ms_moment_kind kind, uint64_t time_ns,
                       size_t oom)
{
    struct ms_survey_moment *moment = ms_buffer_extend(&sampler->to->moments, sizeof(*moment));

    if (moment) {
        *moment = (struct ms_survey_moment){.kind = kind,
                                            .time_ns = time_ns,
                                            .live_bytes = sampler->live_bytes,
                                            .backward_site = sampler->rounds->backward_site,
                                            .moved_bytes = ms_sampler_moved(sampler),
                                            .oom = oom};
        memcpy(moment->kind_bytes, sampler->kind_bytes, sizeof(moment->kind_bytes));
        add_holdings(sampler, moment, false);
    }
}

/* ---- buckets and slices ---- */

static void open_bucket(struct ms_sampler *sampler, uint64_t time_ns)
{
    sampler->highest_bytes = sampler->live_bytes;
    sampler->to->buckets[sampler->bucket].highest_ns = time_ns;
    sampler->to->buckets[sampler->bucket].most_waiting_bytes = sampler->waiting_bytes;
    sampler->rising = true;
}

static void close_bucket(struct ms_sampler *sampler)
{
    struct ms_survey_bucket *bucket = &sampler->to->buckets[sampler->bucket];

    ms_sampler_note_highest(sampler);
    read_lines(sampler, bucket->last_bytes);
    bucket->host_bytes = sampler->sums.now.host_chunk_bytes;
}

static uint64_t live_in(const uint64_t lines[MS_SURVEY_LINES])
{
    uint64_t live = 0;

    for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
        live += lines[kind];
    }
    return live;
}

/* The first bucket in which the slice's live bytes were highest. */
static const struct ms_survey_bucket *highest_bucket(const struct ms_sampler *sampler)
{
    const struct ms_survey_bucket *all =
        &sampler->to->buckets[(size_t)sampler->slice * SLICE_BUCKETS];
    const struct ms_survey_bucket *highest = all;

    for (size_t i = 1; i < SLICE_BUCKETS; i++) {
        if (live_in(all[i].highest_bytes) > live_in(highest->highest_bytes)) {
            highest = &all[i];
        }
    }
    return highest;
}

static void close_slice(struct ms_sampler *sampler)
{
    const struct ms_survey_bucket *bucket = highest_bucket(sampler);
    struct ms_survey_moment *moment =
        sampler->slice_bytes > 0 ? ms_buffer_extend(&sampler->to->moments, sizeof(*moment)) : NULL;

    if (moment) {
        *moment = (struct ms_survey_moment){.kind = MS_MOMENT_HIGH,
                                            .time_ns = sampler->slice_ns,
                                            .live_bytes = sampler->slice_bytes,
                                            .moved_bytes = sampler->slice_moved_bytes};
        memcpy(moment->kind_bytes, bucket->highest_bytes, sizeof(moment->kind_bytes));
        add_holdings(sampler, moment, true);
    }
}

static void open_slice(struct ms_sampler *sampler, uint64_t time_ns)
{
    sampler->slice = sampler->bucket / SLICE_BUCKETS;
    sampler->slice_bytes = sampler->live_bytes;
    sampler->slice_ns = time_ns;
    sampler->slice_moved_bytes = ms_sampler_moved(sampler);
    sampler->epoch++;
}

static void pass_buckets(struct ms_sampler *sampler, uint64_t bucket_ns, uint64_t time_ns)
{
    const uint64_t number = time_ns / bucket_ns;
    const uint32_t last = number < MS_SURVEY_BUCKETS ? (uint32_t)number : MS_SURVEY_BUCKETS - 1;

    while (sampler->bucket < last) {
        close_bucket(sampler);
        if ((sampler->bucket + 1) % SLICE_BUCKETS == 0) {
            close_slice(sampler);
        }
        sampler->bucket++;
        if (sampler->bucket % SLICE_BUCKETS == 0) {
            open_slice(sampler, sampler->bucket * bucket_ns);
        }
        open_bucket(sampler, sampler->bucket * bucket_ns);
    }
}

/* ---- steps ---- */

static uint64_t *samples_of(struct ms_sampler *sampler, struct ms_sampled_site *site)
{
    const size_t row_bytes = sampler->to->growth.clock.count * sizeof(uint64_t);

    if (site->samples == 0 && sampler->samples.bytes < MOST_SAMPLED * row_bytes &&
        ms_buffer_extend(&sampler->samples, row_bytes)) {
        site->samples = (uint32_t)(sampler->samples.bytes / row_bytes);
    }
    return site->samples ? (uint64_t *)(sampler->samples.at + (site->samples - 1) * row_bytes)
                         : NULL;
}

/* Whether each step needs more than all before it. */
static void note_rising(struct ms_survey_device *to)
{
    const uint64_t before = to->most_in_past_steps_bytes, most = to->most_in_steps_bytes;

    if (most <= before + before / CLEARLY_MORE) {
        to->rising_samples = 0;
    } else if (to->rising_samples++ == 0) {
        to->rising_from_bytes = most;
    }
    to->most_in_past_steps_bytes = most;
}

void ms_sampler_step(struct ms_sampler *sampler)
{
    sampler->whole[sampler->next_sample] = sampler->live_bytes;
    note_rising(sampler->to);
    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        struct ms_sampled_site *site = &sampler->sites[id];
        uint64_t *samples = site->bytes > 0 ? samples_of(sampler, site) : NULL;

        if (samples) {
            samples[sampler->next_sample] = site->bytes;
        }
    }
    sampler->next_sample++;
}

/* The first sample after that time; none: the number of samples. */
static size_t sample_after(const struct ms_growth_clock *clock, uint64_t time_ns)
{
    size_t low = 0, high = clock->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (clock->time_ns[middle] <= time_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void ms_sampler_note_ages(struct ms_sampler *sampler, const struct ms_live_set *live)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const size_t values = sampler->samples.bytes / sizeof(uint64_t);
    uint64_t *ages = values > 0 ? ms_buffer_extend(&sampler->ages, sampler->samples.bytes) : NULL;

    for (size_t i = 0; ages && i < ms_live_room(live); i++) {
        const struct ms_live *is = ms_live_at(live, i);
        const size_t row =
            is->key != 0 && is->device == sampler->device ? sampler->sites[is->site].samples : 0;
        const size_t sample = row > 0 ? sample_after(clock, is->born_ns) : clock->count;

        if (sample < clock->count) {
            ages[(row - 1) * clock->count + sample] += is->bytes;
        }
    }
    for (size_t i = 1; ages && i < values; i++) {
        ages[i] += i % clock->count > 0 ? ages[i - 1] : 0;
    }
}

/* ---- the passing of time ---- */

void ms_sampler_pass(struct ms_sampler *sampler, uint64_t bucket_ns, uint64_t time_ns)
{
    if (time_ns / bucket_ns > sampler->bucket) {
        pass_buckets(sampler, bucket_ns, time_ns);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct ms_survey_moment *left = a, *right = b;

    if (left->time_ns != right->time_ns) {
        return left->time_ns < right->time_ns ? -1 : 1;
    }
    return left->kind < right->kind ? -1 : left->kind > right->kind;
}

/* Marks the highest of all slices as the peak, unless the peak was in a part without records. */
static void mark_peak(struct ms_sampler *sampler)
{
    const struct ms_aggregate *sums = &sampler->model->devices[sampler->device].sums;
    struct ms_survey_moment *all = (struct ms_survey_moment *)sampler->to->moments.at;

    for (size_t i = 0; i < ms_survey_moment_count(sampler->to); i++) {
        if (all[i].kind == MS_MOMENT_HIGH &&
            all[i].live_bytes == ms_aggregate_peak_live(sums).live_bytes) {
            all[i].kind = MS_MOMENT_PEAK;
            return;
        }
    }
}

void ms_sampler_finish(struct ms_sampler *sampler, uint64_t bucket_ns)
{
    struct ms_survey_device *to = sampler->to;

    ms_sampler_pass(sampler, bucket_ns, sampler->model->duration_ns);
    pass_buckets(sampler, bucket_ns, bucket_ns * MS_SURVEY_BUCKETS);
    close_bucket(sampler);
    close_slice(sampler);
    if (sampler->risen) {
        ms_sampler_note_turns(sampler);
        ms_sampler_note_headroom(sampler);
    }
    ms_sampler_moment(sampler, MS_MOMENT_END, sampler->model->duration_ns, 0);
    qsort(to->moments.at, ms_survey_moment_count(to), sizeof(struct ms_survey_moment), by_time);
    mark_peak(sampler);
}
