/* SPDX-License-Identifier: Apache-2.0 */
/* Finds growth. */
#include <stdlib.h>
#include <string.h>

#include "report/model/ledger.h"
#include "report/model/survey/state.h"
#include "report/model/verdict/leaks.h"

#define MOST_STEPS 9007199254740992.0 /* 2^53 */
#define TIME_PARTS 128u               /* if no steps are known */
#define QUARTERS   4u

/* Growth is worth a line */
#define WORTH_OF_CAP 1000u /* if it is more than 1/n of the cap, or */
#define WORTH_STEPS  1000u /* if it would reach the cap within n times the run's steps */

/* ---- the places of steps ---- */

/* event: 0, if its number is not known. */
static void add_tick(struct ms_growth_clock *clock, uint64_t step, uint64_t time_ns, uint64_t event)
{
    if (clock->count < MS_GROWTH_SAMPLES &&
        (clock->count == 0 ||
         (time_ns >= clock->time_ns[clock->count - 1] && step > clock->step[clock->count - 1]))) {
        clock->step[clock->count] = step;
        clock->time_ns[clock->count] = time_ns;
        clock->event[clock->count] = event;
        clock->count++;
    }
}

static void take_recorded(const struct ms_model_steps *steps, struct ms_growth_clock *clock)
{
    const struct ms_model_step *all = (const struct ms_model_step *)steps->times.at;
    const uint64_t *events = (const uint64_t *)steps->events.at;
    const size_t count = steps->times.bytes / sizeof(*all);
    const size_t stride = (count + MS_GROWTH_SAMPLES - 1) / MS_GROWTH_SAMPLES;

    for (size_t i = 0; i < count; i += stride) {
        add_tick(clock, all[i].number, all[i].time_ns, events[i]);
    }
}

static void take_found(const struct ms_recurrence *found, struct ms_growth_clock *clock)
{
    const uint64_t *all = (const uint64_t *)found->begins.at;
    const uint64_t *events = (const uint64_t *)found->begin_events.at;
    const size_t count = found->begins.bytes / sizeof(*all);
    const size_t stride = (count + MS_GROWTH_SAMPLES - 1) / MS_GROWTH_SAMPLES;

    for (size_t i = 0; i < count; i += stride) {
        add_tick(clock, i * found->every + 1, all[i], events[i]);
    }
}

static void take_time(const struct ms_model *model, struct ms_growth_clock *clock)
{
    const uint64_t begin_ns = model->first_detail_ns;
    const uint64_t whole_ns = model->duration_ns > begin_ns ? model->duration_ns - begin_ns : 0;

    clock->by_time = true;
    for (uint64_t i = 0; i < TIME_PARTS && whole_ns >= TIME_PARTS; i++) {
        add_tick(clock, i, begin_ns + whole_ns / TIME_PARTS * i, 0);
    }
}

/* Whether the steps that were found end before the run does. If only a framework's segments are
 * visible, later steps ask for none, and are not found. */
static bool are_of_first_segments(const struct ms_model *model)
{
    return ms_model_hides_tensors(model) && model->recurrence.count < MS_GROWTH_FEWEST &&
           model->duration_ns >= MS_GROWTH_TIME_NS;
}

void ms_survey_set_clock(const struct ms_model *model, struct ms_growth *growth)
{
    struct ms_growth_clock *clock = &growth->clock;

    if (model->steps.count > 0) {
        take_recorded(&model->steps, clock);
    } else if (model->recurrence.known && model->recurrence.count > 0 &&
               !are_of_first_segments(model)) {
        take_found(&model->recurrence, clock);
    } else {
        take_time(model, clock);
    }
}

/* ---- rows of growth ---- */

struct ms_growing_site ms_sampler_growing(const struct ms_sampler *sampler, uint32_t site,
                                          enum ms_growth_degree degree, enum ms_growth_round round)
{
    const struct ms_sampled_site *is = &sampler->sites[site];

    return (struct ms_growing_site){
        .site = site,
        .path_site = is->path_site ? is->path_site : site,
        .kind = is->kind,
        .degree = (uint8_t)degree,
        .round = (uint8_t)round,
        .before_pass = is->before_pass,
    };
}

bool ms_growing_has(const struct ms_buffer *growing, uint32_t site)
{
    const struct ms_growing_site *rows = (const struct ms_growing_site *)growing->at;

    for (size_t i = 0; rows && i < growing->bytes / sizeof(*rows); i++) {
        if (rows[i].site == site) {
            return true;
        }
    }
    return false;
}

/* ---- growth ---- */

/* Bytes needed at the peak of live bytes, wherever they lay; memory that the driver served is
 * charged separately. */
static uint64_t needed_at_peak(const struct ms_aggregate *sums)
{
    const struct ms_counters *at_peak = ms_aggregate_at_peak(sums);
    const uint64_t charged = ms_counters_charged(at_peak), reserved = ms_counters_reserved(at_peak);

    return ms_aggregate_peak_live(sums).live_bytes - ms_ledger_forwarded_live(at_peak) +
           (charged > reserved ? charged - reserved : 0);
}

/* A framework gives back its cached memory before it reaches the cap. */
static uint64_t most_needed(const struct ms_aggregate *sums)
{
    const uint64_t needed = needed_at_peak(sums);

    return needed < sums->peak_charged.charged_bytes ? needed : sums->peak_charged.charged_bytes;
}

/* Whether more was live than fits the cap: the rest was in host memory. */
static bool is_past_cap(const struct ms_sampler *sampler)
{
    const struct ms_aggregate *sums = &sampler->model->devices[sampler->device].sums;

    return sums->now.cap_bytes > 0 && needed_at_peak(sums) > sums->now.cap_bytes;
}

/* The number of complete steps; the newest one counts if nothing ended the run early. */
static uint64_t steps_over(const struct ms_sampler *sampler)
{
    const struct ms_model *model = sampler->model;
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const uint64_t begun = clock->step[clock->count - 1];
    const uint64_t found = model->steps.count > 0 ? model->steps.count : model->recurrence.count;

    if (ms_model_fatal_oom(model)) {
        return begun > 0 ? begun - 1 : 0;
    }
    return found > begun ? found : begun;
}

static uint64_t cap_at(const struct ms_sampler *sampler, double bytes_per_step)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const struct ms_aggregate *sums = &sampler->model->devices[sampler->device].sums;
    const uint64_t cap = sums->now.cap_bytes, charged = most_needed(sums);

    if (clock->by_time || clock->count == 0 || cap == 0 || bytes_per_step <= 0 ||
        is_past_cap(sampler)) {
        return 0;
    }

    const double left = cap > charged ? (double)(cap - charged) : 0;
    const double step = (double)clock->step[clock->count - 1] + left / bytes_per_step;

    const uint64_t earliest = steps_over(sampler) + 1;

    if (step >= MOST_STEPS) {
        return 0;
    }
    return step > (double)earliest ? (uint64_t)step : earliest;
}

static double per_hour(const struct ms_growth_clock *clock, const struct ms_slope *slope)
{
    const size_t last = clock->count - 1;
    const double steps = (double)(clock->step[last] - clock->step[slope->first]);

    return ms_bytes_per_hour(slope->bytes_per_step * steps,
                             clock->time_ns[last] - clock->time_ns[slope->first]);
}

static int by_slope(const void *a, const void *b)
{
    const struct ms_growing_site *left = a, *right = b;

    if (left->bytes_per_round != right->bytes_per_round) {
        return left->bytes_per_round > right->bytes_per_round ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

static bool find_in_few(const struct ms_growth_clock *clock, const uint64_t *samples,
                        struct ms_slope *slope)
{
    size_t first;

    return ms_growth_of_few(samples, clock->count, &first) &&
           ms_growth_fit(clock->step, samples, first, clock->count, slope);
}

/* The first sample after the last out-of-memory that the program survived: what it gave up there
 * does not show that nothing grows. 0: there is none. */
static size_t behind_last_oom(const struct ms_sampler *sampler)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    size_t behind = 0;

    for (size_t i = 0; i < ms_model_oom_count(sampler->model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(sampler->model, i);
        size_t sample = behind;

        while (sample < clock->count && clock->time_ns[sample] <= oom->time_ns) {
            sample++;
        }
        if (oom->device == (uint64_t)sampler->device && sample < clock->count) {
            behind = sample;
        }
    }
    return behind;
}

/* Looks at the whole run first, then at what came after the last out-of-memory. */
static bool find_in_many(const struct ms_growth_clock *clock, const uint64_t *samples,
                         size_t behind_oom, struct ms_slope *slope)
{
    if (ms_growth_find(clock->step, samples, clock->count, slope)) {
        return true;
    }
    if (behind_oom == 0 || !ms_growth_find(clock->step + behind_oom, samples + behind_oom,
                                           clock->count - behind_oom, slope)) {
        return false;
    }
    slope->first += behind_oom;
    return true;
}

/* Whether it rose in a few steps alone. If parts of time are all that is known, nothing is. */
static bool find_pauses(const struct ms_growth_clock *clock, const uint64_t *samples,
                        struct ms_slope *slope, struct ms_rise *rise)
{
    if (clock->by_time || !ms_growth_of_pauses(clock->step, samples, clock->count, rise)) {
        return false;
    }
    slope->first = (size_t)rise->since - 1;
    slope->bytes_per_step = (double)(rise->bytes - rise->first_bytes) /
                            (double)(clock->step[clock->count - 1] - clock->step[slope->first]);
    return true;
}

static double held_of(const struct ms_sampler *sampler, uint32_t id, uint64_t bytes)
{
    struct ms_site_sums sums;

    return ms_site_table_read(sampler->model->sites, sampler->device, id, &sums) && sums.bytes > 0
               ? (double)bytes * (double)sums.allocations / (double)sums.bytes
               : 0;
}

/* Steps from one rise to the next. 0: not every step was sampled, or the bytes also fell. */
static double steps_apart(const struct ms_growth_clock *clock, const uint64_t *samples,
                          size_t first)
{
    size_t rises = 0, first_rise = 0, last_rise = 0;

    for (size_t i = first; i + 1 < clock->count; i++) {
        if (samples[i + 1] < samples[i] || clock->step[i + 1] != clock->step[i] + 1) {
            return 0;
        }
        if (samples[i + 1] > samples[i]) {
            first_rise = rises == 0 ? i : first_rise;
            last_rise = i;
            rises++;
        }
    }
    return rises > 1 ? (double)(last_rise - first_rise) / (double)(rises - 1) : 0;
}

/* A site's row. room: of each, in samples. */
static const uint64_t *row_of(const struct ms_buffer *rows, const struct ms_sampler *sampler,
                              uint32_t id, size_t room)
{
    return (const uint64_t *)rows->at + (size_t)(sampler->sites[id].samples - 1) * room;
}

/* Whether what rose only waits for the device. */
static bool is_queue(const struct ms_sampler *sampler, uint32_t id, size_t samples_room,
                     const struct ms_slope *slope)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const size_t last = clock->count - 1, middle = slope->first + (last - slope->first) / 2;
    const uint64_t *samples = row_of(&sampler->samples, sampler, id, samples_room);

    return ms_growth_drains(&sampler->sites[id].drain, samples[last] - samples[slope->first],
                            clock->time_ns[last] - clock->time_ns[middle]) ||
           (sampler->ages.bytes > 0 &&
            ms_growth_is_queue(samples, row_of(&sampler->ages, sampler, id, samples_room),
                               slope->first, clock->count));
}

/* samples_room: the room of a site's row, in samples. */
static void take_site(const struct ms_sampler *sampler, uint32_t id, size_t samples_room,
                      size_t behind_oom, struct ms_buffer *growing)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const uint64_t *samples = row_of(&sampler->samples, sampler, id, samples_room);
    const bool few = clock->count < MS_GROWTH_FEWEST;
    const size_t last = clock->count - 1;
    struct ms_rise rise = {0}; /* if it rose in a few steps alone */
    struct ms_slope slope = {0};

    if (few ? !find_in_few(clock, samples, &slope)
            : !find_in_many(clock, samples, behind_oom, &slope) &&
                  !find_pauses(clock, samples, &slope, &rise)) {
        return;
    }
    if (is_queue(sampler, id, samples_room, &slope)) {
        return;
    }

    struct ms_growing_site *row = ms_buffer_extend(growing, sizeof(*row));

    if (row) {
        const bool likely = few || (rise.rises > 0 && rise.rises < MS_GROWTH_FEWEST);

        *row = ms_sampler_growing(sampler, id, likely ? MS_GROWTH_LIKELY : MS_GROWTH_SEEN,
                                  clock->by_time ? MS_ROUND_TIME : MS_ROUND_STEP);
        row->rounds = rise.rises;
        row->bytes_per_round = slope.bytes_per_step;
        row->error = slope.error;
        row->bytes_per_hour = per_hour(clock, &slope);
        if (rise.rises > 0) {
            const uint64_t steps = rise.round - clock->step[rise.since];
            row->every = (double)steps / (double)(rise.rises - 1);
        } else {
            row->every = clock->by_time ? 0 : steps_apart(clock, samples, slope.first);
        }
        row->since_step = clock->by_time ? 0 : clock->step[slope.first];
        row->since_ns = clock->time_ns[slope.first];
        row->grown_bytes = samples[last] - samples[slope.first];
        row->cap_at_step = cap_at(sampler, slope.bytes_per_step);
        row->held = held_of(sampler, id, samples[last]);
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

/* Takes sites whose bytes rose at the beginnings of steps; with too few steps for that, only if
 * memory ran out. */
static void take_seen(struct ms_sampler *sampler, struct ms_buffer *growing)
{
    struct ms_growth *growth = &sampler->to->growth;
    const size_t samples_room = growth->clock.count;

    /* The records did not reach the other steps. */
    growth->clock.count = sampler->next_sample;
    if (growth->clock.by_time && (growth->clock.count < MS_GROWTH_FEWEST ||
                                  sampler->model->duration_ns < MS_GROWTH_TIME_NS)) {
        growth->why = "the run is too short";
        return;
    }
    if (growth->clock.count < MS_GROWTH_FEWEST) {
        growth->why = "fewer than 8 steps";
        if (!ms_model_fatal_oom(sampler->model)) {
            return;
        }
    } else {
        growth->known = true;
        take_whole(sampler);
    }

    const size_t behind_oom = behind_last_oom(sampler);

    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        if (sampler->sites[id].samples > 0) {
            take_site(sampler, id, samples_room, behind_oom, growing);
        }
    }
}

/* Takes sites that left something in each round. Rounds say more than parts of equal time. */
static void take_kept(const struct ms_sampler *sampler, struct ms_buffer *growing)
{
    const struct ms_growing_site *kept = (const struct ms_growing_site *)sampler->kept.at;

    if (sampler->to->growth.clock.by_time && sampler->kept.bytes > 0) {
        growing->bytes = 0;
    }
    for (size_t i = 0; i < sampler->kept.bytes / sizeof(*kept); i++) {
        if (!ms_growing_has(growing, kept[i].site)) {
            ms_buffer_append(growing, (const char *)&kept[i], sizeof(kept[i]));
        }
    }
}

/* Growth matters if it is a part of the cap, or will reach the cap soon. If hardly anything is left
 * below the cap, any growth would reach it. */
static bool is_negligible(const struct ms_sampler *sampler, const struct ms_leak *leak)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    const struct ms_aggregate *sums = &sampler->model->devices[sampler->device].sums;
    const uint64_t worth = sums->now.cap_bytes / WORTH_OF_CAP;
    const uint64_t steps = clock->count > 0 ? clock->step[clock->count - 1] : 0;

    return leak->all.grown_bytes < worth &&
           (leak->all.cap_at_step == 0 || leak->all.cap_at_step > WORTH_STEPS * steps ||
            most_needed(sums) + worth > sums->now.cap_bytes);
}

static uint64_t all_parts(const struct ms_kept_part *parts, size_t count, uint32_t site)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += parts[i].site == site ? parts[i].bytes : 0;
    }
    return bytes;
}

/* Adds a row for each caller of autograd, as far as they are known. */
static void add_parts(const struct ms_sampler *sampler, const struct ms_growing_site *row,
                      struct ms_buffer *split)
{
    const struct ms_kept_part *parts = (const struct ms_kept_part *)sampler->parts.at;
    const size_t count = sampler->parts.bytes / sizeof(*parts);
    const uint64_t all = all_parts(parts, count, row->site);

    for (size_t i = 0; i < count; i++) {
        struct ms_growing_site *part =
            parts[i].site == row->site ? ms_buffer_extend(split, sizeof(*part)) : NULL;

        if (part) {
            const double share = (double)parts[i].bytes / (double)all;

            *part = *row;
            part->path_site = parts[i].caller ? parts[i].caller : row->path_site;
            part->bytes_per_round *= share;
            part->error *= share;
            part->bytes_per_hour *= share;
            part->grown_bytes = (uint64_t)((double)row->grown_bytes * share);
        }
    }
    if (all == 0) {
        ms_buffer_append(split, (const char *)row, sizeof(*row));
    }
}

static void take_leaks(struct ms_sampler *sampler, const struct ms_growing_site *rows, size_t count)
{
    struct ms_growth *growth = &sampler->to->growth;
    struct ms_buffer split = {0};

    for (size_t i = 0; i < count; i++) {
        add_parts(sampler, &rows[i], &split);
    }
    growth->leak_count =
        ms_leaks_find(sampler->model, sampler->device, (const struct ms_growing_site *)split.at,
                      split.bytes / sizeof(*rows), growth->leaks);
    ms_buffer_free(&split);
    for (size_t i = 0; i < growth->leak_count; i++) {
        struct ms_leak *leak = &growth->leaks[i];

        leak->all.cap_at_step =
            leak->all.round == MS_ROUND_STEP ? cap_at(sampler, leak->all.bytes_per_round) : 0;
        leak->negligible = is_negligible(sampler, leak);
    }
}

void ms_survey_judge_growth(struct ms_sampler *sampler)
{
    struct ms_growth *growth = &sampler->to->growth;
    struct ms_buffer growing = {0};
    double together = 0;

    take_seen(sampler, &growing);
    if (!growth->clock.by_time) {
        growing.bytes = ms_growth_drop_longer((struct ms_growing_site *)growing.at,
                                              growing.bytes / sizeof(struct ms_growing_site),
                                              growth->clock.step[growth->clock.count - 1]) *
                        sizeof(struct ms_growing_site);
    }
    take_kept(sampler, &growing);

    const struct ms_growing_site *rows = (const struct ms_growing_site *)growing.at;
    const size_t count = rows ? growing.bytes / sizeof(*rows) : 0;

    if (count > 0) {
        qsort(growing.at, count, sizeof(*rows), by_slope);
    }
    for (size_t i = 0; i < count; i++) {
        together += rows[i].round == MS_ROUND_STEP ? rows[i].bytes_per_round : 0;
    }
    growth->past_cap = is_past_cap(sampler);
    growth->cap_at_step = cap_at(sampler, together);
    take_leaks(sampler, rows, count);
    growth->count = count < MS_GROWING_SITES ? count : MS_GROWING_SITES;
    if (count > 0) {
        memcpy(growth->sites, rows, growth->count * sizeof(*rows));
    }
    ms_buffer_free(&growing);
}
