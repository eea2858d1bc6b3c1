/* Time passes in the survey: buckets, the highest moment of each slice, and steps. */
#include <stdlib.h>
#include <string.h>

#include "report/survey_internal.h"

#define SLICE_BUCKETS (MS_SURVEY_BUCKETS / MS_SURVEY_SLICES)
#define MOST_SAMPLED  8192u /* sites with samples at steps: those that come first */

_Static_assert(MS_SURVEY_BUCKETS % MS_SURVEY_SLICES == 0, "a slice is a row of buckets");

static void read_lines(const struct ms_look *look, uint64_t lines[MS_SURVEY_LINES])
{
    const struct ms_counters *now = &look->sums.now;
    const uint64_t reserved = ms_counters_reserved(now);
    const uint64_t pool = now->owner_bytes[MS_OWNER_POOL];
    const uint64_t application = now->owner_bytes[MS_OWNER_APPLICATION];
    const uint64_t forwarded = now->owner_bytes[MS_OWNER_FORWARDED];
    const uint64_t own = now->outside_tensors ? pool + application : pool;
    /* With the pool switched off, what is reserved was forwarded. */
    const uint64_t ground = reserved > own ? reserved - own : 0;

    memcpy(lines, look->kind_bytes, sizeof(look->kind_bytes));
    lines[MS_SURVEY_HOLES] = reserved > look->live_bytes ? reserved - look->live_bytes : 0;
    lines[MS_SURVEY_FORWARDED] = forwarded > ground ? forwarded - ground : 0;
    lines[MS_SURVEY_CONTEXT] = now->owner_bytes[MS_OWNER_CONTEXT];
    lines[MS_SURVEY_APPLICATION] = now->outside_tensors ? 0 : application;
}

void ms_look_note_highest(struct ms_look *look)
{
    if (look->rising) {
        read_lines(look, look->to->buckets[look->bucket].highest_bytes);
        look->rising = false;
    }
}

/* ---- who is live ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct ms_holding *left = a, *right = b;

    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

/* at_highest: of the slice; else now. */
static void add_holdings(const struct ms_look *look, struct ms_survey_moment *moment,
                         bool at_highest)
{
    struct ms_survey_device *to = look->to;
    struct ms_buffer all = {0};
    size_t count;

    for (uint32_t id = 0; id < look->site_count; id = ms_look_next(look, id)) {
        const struct ms_look_site *site = &look->sites[id];
        const struct ms_holding holding = {
            .site = id,
            .kind = site->kind,
            .bytes = at_highest && site->kept_epoch == look->epoch ? site->kept_bytes : site->bytes,
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

void ms_look_moment(struct ms_look *look, enum ms_moment_kind kind, uint64_t time_ns, size_t oom)
{
    struct ms_survey_moment *moment = ms_buffer_extend(&look->to->moments, sizeof(*moment));

    if (moment) {
        *moment = (struct ms_survey_moment){
            .kind = kind, .time_ns = time_ns, .live_bytes = look->live_bytes, .oom = oom};
        memcpy(moment->kind_bytes, look->kind_bytes, sizeof(moment->kind_bytes));
        add_holdings(look, moment, false);
    }
}

/* ---- buckets and slices ---- */

static void open_bucket(struct ms_look *look, uint64_t time_ns)
{
    look->highest_bytes = look->live_bytes;
    look->to->buckets[look->bucket].highest_ns = time_ns;
    look->to->buckets[look->bucket].most_waiting_bytes = look->waiting_bytes;
    look->rising = true;
}

static void close_bucket(struct ms_look *look)
{
    struct ms_survey_bucket *bucket = &look->to->buckets[look->bucket];

    ms_look_note_highest(look);
    read_lines(look, bucket->last_bytes);
    bucket->host_bytes = look->sums.now.host_chunk_bytes;
}

static uint64_t live_in(const uint64_t lines[MS_SURVEY_LINES])
{
    uint64_t live = 0;

    for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
        live += lines[kind];
    }
    return live;
}

/* The bucket in which the slice's live bytes were highest: the first such one. */
static const struct ms_survey_bucket *highest_bucket(const struct ms_look *look)
{
    const struct ms_survey_bucket *all = &look->to->buckets[(size_t)look->slice * SLICE_BUCKETS];
    const struct ms_survey_bucket *highest = all;

    for (size_t i = 1; i < SLICE_BUCKETS; i++) {
        if (live_in(all[i].highest_bytes) > live_in(highest->highest_bytes)) {
            highest = &all[i];
        }
    }
    return highest;
}

static void close_slice(struct ms_look *look)
{
    const struct ms_survey_bucket *bucket = highest_bucket(look);
    struct ms_survey_moment *moment =
        look->slice_bytes > 0 ? ms_buffer_extend(&look->to->moments, sizeof(*moment)) : NULL;

    if (moment) {
        *moment = (struct ms_survey_moment){
            .kind = MS_MOMENT_HIGH, .time_ns = look->slice_ns, .live_bytes = look->slice_bytes};
        memcpy(moment->kind_bytes, bucket->highest_bytes, sizeof(moment->kind_bytes));
        add_holdings(look, moment, true);
    }
}

static void open_slice(struct ms_look *look, uint64_t time_ns)
{
    look->slice = look->bucket / SLICE_BUCKETS;
    look->slice_bytes = look->live_bytes;
    look->slice_ns = time_ns;
    look->epoch++;
}

static void pass_buckets(struct ms_look *look, uint64_t bucket_ns, uint64_t time_ns)
{
    const uint64_t number = time_ns / bucket_ns;
    const uint32_t last = number < MS_SURVEY_BUCKETS ? (uint32_t)number : MS_SURVEY_BUCKETS - 1;

    while (look->bucket < last) {
        close_bucket(look);
        if ((look->bucket + 1) % SLICE_BUCKETS == 0) {
            close_slice(look);
        }
        look->bucket++;
        if (look->bucket % SLICE_BUCKETS == 0) {
            open_slice(look, look->bucket * bucket_ns);
        }
        open_bucket(look, look->bucket * bucket_ns);
    }
}

/* ---- steps ---- */

static uint64_t *samples_of(struct ms_look *look, struct ms_look_site *site)
{
    const size_t row_bytes = look->to->growth.clock.count * sizeof(uint64_t);

    if (site->samples == 0 && look->samples.bytes < MOST_SAMPLED * row_bytes &&
        ms_buffer_extend(&look->samples, row_bytes)) {
        site->samples = (uint32_t)(look->samples.bytes / row_bytes);
    }
    return site->samples ? (uint64_t *)(look->samples.at + (site->samples - 1) * row_bytes) : NULL;
}

static void sample(struct ms_look *look)
{
    look->whole[look->next_sample] = look->live_bytes;
    for (uint32_t id = 0; id < look->site_count; id = ms_look_next(look, id)) {
        struct ms_look_site *site = &look->sites[id];
        uint64_t *samples = site->bytes > 0 ? samples_of(look, site) : NULL;

        if (samples) {
            samples[look->next_sample] = site->bytes;
        }
    }
    look->next_sample++;
}

/* ---- the passing of time ---- */

void ms_look_pass(struct ms_look *look, uint64_t bucket_ns, uint64_t time_ns)
{
    const struct ms_growth_clock *clock = &look->to->growth.clock;

    while (look->next_sample < clock->count && clock->time_ns[look->next_sample] <= time_ns) {
        sample(look);
    }
    if (time_ns / bucket_ns > look->bucket) {
        pass_buckets(look, bucket_ns, time_ns);
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

/* The highest of all slices, unless that was in a part without records. */
static void mark_peak(struct ms_look *look)
{
    const struct ms_aggregate *sums = &look->model->devices[look->device].sums;
    struct ms_survey_moment *all = (struct ms_survey_moment *)look->to->moments.at;

    for (size_t i = 0; i < ms_survey_moment_count(look->to); i++) {
        if (all[i].kind == MS_MOMENT_HIGH &&
            all[i].live_bytes == ms_aggregate_peak_live(sums).live_bytes) {
            all[i].kind = MS_MOMENT_PEAK;
            return;
        }
    }
}

void ms_look_finish(struct ms_look *look, uint64_t bucket_ns)
{
    struct ms_survey_device *to = look->to;

    ms_look_pass(look, bucket_ns, look->model->duration_ns);
    pass_buckets(look, bucket_ns, bucket_ns * MS_SURVEY_BUCKETS);
    close_bucket(look);
    close_slice(look);
    if (look->risen) {
        ms_look_note_headroom(look);
    }
    ms_look_moment(look, MS_MOMENT_END, look->model->duration_ns, 0);
    qsort(to->moments.at, ms_survey_moment_count(to), sizeof(struct ms_survey_moment), by_time);
    mark_peak(look);
}
