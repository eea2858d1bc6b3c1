/* SPDX-License-Identifier: Apache-2.0 */
/* What grew. */
#include <stdlib.h>
#include <string.h>

#include "report/model/survey_state.h"

#define NS_PER_HOUR 3.6e12
#define MOST_STEPS  9007199254740992.0 /* 2^53 */
#define TIME_PARTS  128u               /* where no steps are known */
#define QUARTERS    4u

/* ---- where steps lie ---- */

static void add_tick(struct ms_growth_clock *clock, uint64_t step, uint64_t time_ns)
{
    if (clock->count < MS_GROWTH_SAMPLES &&
        (clock->count == 0 ||
         (time_ns >= clock->time_ns[clock->count - 1] && step > clock->step[clock->count - 1]))) {
        clock->step[clock->count] = step;
        clock->time_ns[clock->count] = time_ns;
        clock->count++;
    }
}

static void take_recorded(const struct ms_model_steps *steps, struct ms_growth_clock *clock)
{
    const struct ms_model_step *all = (const struct ms_model_step *)steps->times.at;
    const size_t count = steps->times.bytes / sizeof(*all);
    const size_t stride = (count + MS_GROWTH_SAMPLES - 1) / MS_GROWTH_SAMPLES;

    for (size_t i = 0; i < count; i += stride) {
        add_tick(clock, all[i].number, all[i].time_ns);
    }
}

static void take_found(const struct ms_recurrence *found, struct ms_growth_clock *clock)
{
    const uint64_t *all = (const uint64_t *)found->begins.at;
    const size_t count = found->begins.bytes / sizeof(*all);
    const size_t stride = (count + MS_GROWTH_SAMPLES - 1) / MS_GROWTH_SAMPLES;

    for (size_t i = 0; i < count; i += stride) {
        add_tick(clock, i * found->every + 1, all[i]);
    }
}

static void take_time(const struct ms_model *model, struct ms_growth_clock *clock)
{
    const uint64_t begin_ns = model->first_detail_ns;
    const uint64_t whole_ns = model->duration_ns > begin_ns ? model->duration_ns - begin_ns : 0;

    clock->by_time = true;
    for (uint64_t i = 0; i < TIME_PARTS && whole_ns >= TIME_PARTS; i++) {
        add_tick(clock, i, begin_ns + whole_ns / TIME_PARTS * i);
    }
}

void ms_survey_set_clock(const struct ms_model *model, struct ms_growth *growth)
{
    struct ms_growth_clock *clock = &growth->clock;

    if (model->steps.count > 0) {
        take_recorded(&model->steps, clock);
    } else if (model->recurrence.known && model->recurrence.count > 0) {
        take_found(&model->recurrence, clock);
    } else {
        take_time(model, clock);
    }
}

/* ---- growth ---- */

static uint64_t cap_at(const struct ms_sampler *sampler, double bytes_per_step)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const struct ms_aggregate *sums = &sampler->model->devices[sampler->device].sums;
    const uint64_t cap = sums->now.cap_bytes, charged = sums->peak_charged.charged_bytes;

    if (clock->by_time || clock->count == 0 || cap == 0 || bytes_per_step <= 0) {
        return 0;
    }

    const double left = cap > charged ? (double)(cap - charged) : 0;
    const double step = (double)clock->step[clock->count - 1] + left / bytes_per_step;

    return step < MOST_STEPS ? (uint64_t)step : 0;
}

static double per_hour(const struct ms_growth_clock *clock, const struct ms_slope *slope)
{
    const size_t last = clock->count - 1;
    const double ns = (double)(clock->time_ns[last] - clock->time_ns[slope->first]);
    const double steps = (double)(clock->step[last] - clock->step[slope->first]);

    return ns > 0 ? slope->bytes_per_step * steps / ns * NS_PER_HOUR : 0;
}

static int by_slope(const void *a, const void *b)
{
    const struct ms_growing_site *left = a, *right = b;

    if (left->bytes_per_step != right->bytes_per_step) {
        return left->bytes_per_step > right->bytes_per_step ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

static void take_site(const struct ms_sampler *sampler, uint32_t id, struct ms_buffer *growing)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const struct ms_sampled_site *site = &sampler->sites[id];
    const uint64_t *samples =
        (const uint64_t *)sampler->samples.at + (size_t)(site->samples - 1) * clock->count;
    struct ms_slope slope;

    if (!ms_growth_find(clock->step, samples, clock->count, &slope)) {
        return;
    }

    struct ms_growing_site *row = ms_buffer_extend(growing, sizeof(*row));
    const size_t last = clock->count - 1;

    if (row) {
        *row = (struct ms_growing_site){
            .site = id,
            .kind = site->kind,
            .bytes_per_step = slope.bytes_per_step,
            .error = slope.error,
            .bytes_per_hour = per_hour(clock, &slope),
            .since_step = clock->step[slope.first],
            .since_ns = clock->time_ns[slope.first],
            .grown_bytes = samples[last] - samples[slope.first],
            .cap_at_step = cap_at(sampler, slope.bytes_per_step),
        };
    }
}

static void take_whole(struct ms_sampler *sampler)
{
    struct ms_growth *growth = &sampler->to->growth;
    const struct ms_growth_clock *clock = &growth->clock;

    if (ms_growth_fit(clock->step, sampler->whole, clock->count / QUARTERS, clock->count,
                      &growth->whole)) {
        growth->whole_bytes_per_hour = per_hour(clock, &growth->whole);
    }
}

void ms_survey_judge_growth(struct ms_sampler *sampler)
{
    struct ms_growth *growth = &sampler->to->growth;
    struct ms_buffer growing = {0};
    double together = 0;

    /* Steps that the records did not reach. */
    growth->clock.count = sampler->next_sample;
    if (growth->clock.count < MS_GROWTH_FEWEST) {
        growth->why = growth->clock.by_time ? "the run is too short" : "fewer than 8 steps";
        return;
    }
    growth->known = true;
    take_whole(sampler);
    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        if (sampler->sites[id].samples > 0) {
            take_site(sampler, id, &growing);
        }
    }
    growth->count = growing.bytes / sizeof(struct ms_growing_site);
    if (growth->count > 0) {
        qsort(growing.at, growth->count, sizeof(struct ms_growing_site), by_slope);
    }
    for (size_t i = 0; i < growth->count; i++) {
        together += ((const struct ms_growing_site *)growing.at)[i].bytes_per_step;
    }
    growth->cap_at_step = cap_at(sampler, together);
    growth->count = growth->count < MS_GROWING_SITES ? growth->count : MS_GROWING_SITES;
    if (growth->count > 0) {
        memcpy(growth->sites, growing.at, growth->count * sizeof(struct ms_growing_site));
    }
    ms_buffer_free(&growing);
}
