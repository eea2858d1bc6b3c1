/* SPDX-License-Identifier: Apache-2.0 */
/* Refines the verdict of an out-of-memory by what the whole run tells. */
#include "report/model/verdict_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/site_rows.h"

#define MOST_LOOKED_AT 100 /* holdings, before lines are put together */

/* Where no steps are known, a program that is still setting itself up grows as well. */
#define FEWEST_NS_BY_TIME (UINT64_C(600) * 1000000000)

/* ---- who held it ---- */

/* The place of the line among those there are, or one at their end; `room` where there is none. */
static size_t place_of(const struct ms_held_line *lines, size_t count, const char *text)
{
    size_t place = 0;

    while (place < count && strcmp(lines[place].text.at, text) != 0) {
        place++;
    }
    return place;
}

/* Keeps the largest first; they are few. */
static void rise(struct ms_held_line *lines, size_t place)
{
    for (; place > 0 && lines[place].bytes > lines[place - 1].bytes; place--) {
        const struct ms_held_line smaller = lines[place - 1];

        lines[place - 1] = lines[place];
        lines[place] = smaller;
    }
}

size_t ms_held_lines(const struct ms_model *model, int device,
                     const struct ms_survey_moment *moment, int kind, struct ms_held_line *lines,
                     size_t room)
{
    struct ms_held_line all[MOST_LOOKED_AT] = {0};
    const struct ms_survey_device *surveyed = &model->survey->devices[device];
    size_t count = 0;

    for (size_t i = 0; i < moment->count && i < MOST_LOOKED_AT; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(surveyed, moment->first + i);
        struct ms_buffer text = {0};

        if (kind != MS_KIND_COUNT && holding->kind != kind) {
            continue;
        }
        ms_site_add_line(model, holding->site, &text);
        ms_buffer_append(&text, "", 1);
        if (text.failed) {
            ms_buffer_free(&text);
            continue;
        }

        const size_t place = place_of(all, count, text.at);

        if (place == count) {
            all[count++] = (struct ms_held_line){.text = text, .kind = holding->kind};
        } else {
            ms_buffer_free(&text);
        }
        all[place].bytes += holding->bytes;
        rise(all, place);
    }

    const size_t kept = count < room ? count : room;

    memcpy(lines, all, kept * sizeof(*lines));
    ms_held_lines_free(all + kept, count - kept);
    return kept;
}

void ms_held_lines_free(struct ms_held_line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ms_buffer_free(&lines[i].text);
    }
}

static int by_pinned(const void *a, const void *b)
{
    const struct ms_pinned_line *left = a, *right = b;

    if (left->peak_bytes != right->peak_bytes) {
        return left->peak_bytes > right->peak_bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : 1;
}

void ms_pinned_lines(const struct ms_model *model, int device, struct ms_buffer *lines)
{
    struct ms_buffer rows = {0};

    ms_site_rows(model, device, &rows);
    for (size_t i = 0; i < ms_site_row_count(&rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(&rows, i);
        struct ms_pinned_line *line =
            row->sums.pinned_peak_bytes > 0 ? ms_buffer_extend(lines, sizeof(*line)) : NULL;

        if (line) {
            *line = (struct ms_pinned_line){row->site, row->sums.pinned_bytes,
                                            row->sums.pinned_peak_bytes};
        }
    }
    ms_buffer_free(&rows);
    if (lines->bytes > 0) {
        qsort(lines->at, ms_pinned_line_count(lines), sizeof(struct ms_pinned_line), by_pinned);
    }
}

/* ---- when ---- */

static uint64_t recorded_step_at(const struct ms_model_steps *steps, uint64_t time_ns)
{
    const struct ms_model_step *all = (const struct ms_model_step *)steps->times.at;
    const size_t count = steps->times.bytes / sizeof(*all);
    uint64_t number = 0;

    for (size_t i = 0; i < count && all[i].time_ns <= time_ns; i++) {
        number = all[i].number;
    }
    /* Of the steps one in `stride` was kept: which of them it was cannot be said. */
    return steps->stride <= 1 || number == steps->number ? number : 0;
}

uint64_t ms_step_at(const struct ms_model *model, uint64_t time_ns)
{
    const struct ms_recurrence *found = &model->recurrence;
    const uint64_t *begins = (const uint64_t *)found->begins.at;
    const size_t count = found->begins.bytes / sizeof(*begins);
    size_t before = 0;

    if (model->steps.count > 0) {
        return recorded_step_at(&model->steps, time_ns);
    }
    if (!found->known || found->every > 1) {
        return 0;
    }
    while (before < count && begins[before] <= time_ns) {
        before++;
    }
    return before + (before > 0 && time_ns > found->ended_ns);
}

size_t ms_judged_fatal(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);

    return fatal ? (size_t)(fatal - ms_model_oom_at(model, 0)) : SIZE_MAX;
}

/* ---- growth ---- */

static const struct ms_growth *growth_of(const struct ms_model *model, uint64_t device)
{
    const struct ms_growth *growth = model->survey ? &model->survey->devices[device].growth : NULL;

    return growth && growth->known && growth->count > 0 ? growth : NULL;
}

/* What all sites together have grown by, and their pace. */
static uint64_t grown_bytes(const struct ms_growth *growth, double *bytes_per_step)
{
    uint64_t bytes = 0;

    *bytes_per_step = 0;
    for (size_t i = 0; i < growth->count; i++) {
        bytes += growth->sites[i].grown_bytes;
        *bytes_per_step += growth->sites[i].bytes_per_step;
    }
    return bytes;
}

/* How many steps more there would have been without any cap. */
static uint64_t further(const struct ms_oom_state *state, uint64_t short_bytes,
                        double bytes_per_step)
{
    const uint64_t taken = state->other_process_bytes + state->cap_bytes;
    const uint64_t above =
        state->device_total_bytes > taken ? state->device_total_bytes - taken : 0;

    return above > short_bytes && bytes_per_step >= 1
               ? (uint64_t)((double)(above - short_bytes) / bytes_per_step)
               : 0;
}

static void say_growth(const struct ms_model *model, const struct ms_growth *growth,
                       struct ms_judgement *judgement)
{
    const struct ms_growing_site *site = judgement->growing;
    struct ms_buffer line = {0};
    char more[64] = "";

    ms_site_add_line(model, site->site, &line);
    ms_buffer_append(&line, "", 1);
    if (growth->count > 1) {
        (void)snprintf(more, sizeof(more), " (and %zu other call site%s)", growth->count - 1,
                       growth->count > 2 ? "s" : "");
    }
    if (growth->clock.by_time) {
        (void)snprintf(judgement->why, sizeof(judgement->why),
                       "growth: %.300s%s keeps more and more, %s an hour",
                       line.failed ? "?" : line.at, more, MS_BYTES((uint64_t)site->bytes_per_hour));
    } else {
        (void)snprintf(judgement->why, sizeof(judgement->why),
                       "growth: %.300s%s has kept %s more every step since step %s",
                       line.failed ? "?" : line.at, more, MS_BYTES((uint64_t)site->bytes_per_step),
                       MS_COUNT(site->since_step));
    }
    ms_buffer_free(&line);
}

/* What an optimizer asks for is of the step that it ends. */
static uint64_t step_of(const struct ms_model *model, const struct ms_model_oom *oom)
{
    const enum ms_doing doing =
        (enum ms_doing)ms_landmarks_of(model->landmarks, oom->record.state.site)->doing;
    const bool ends = doing == MS_DOING_OPTIMIZER || doing == MS_DOING_STEP;
    const uint64_t ended_ns = model->recurrence.ended_ns;

    return ms_step_at(model, ends && oom->time_ns > ended_ns ? ended_ns : oom->time_ns);
}

void ms_judge(const struct ms_model *model, size_t oom, struct ms_judgement *judgement)
{
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    const struct ms_growth *growth = growth_of(model, at->device);
    double bytes_per_step = 0;

    *judgement = (struct ms_judgement){.step = step_of(model, at)};
    judgement->verdict =
        ms_verdict_parts(&at->record.state, &judgement->short_bytes, judgement->what,
                         sizeof(judgement->what), judgement->why, sizeof(judgement->why));
    if (model->survey && at == ms_model_fatal_oom(model) &&
        (judgement->verdict == MS_VERDICT_DEMAND || judgement->verdict == MS_VERDICT_CAP)) {
        judgement->fitting_factor = model->survey->devices[at->device].headroom.fitting_factor;
    }
    if (!growth || at->recovered || judgement->short_bytes == 0 ||
        (growth->clock.by_time && at->time_ns < FEWEST_NS_BY_TIME)) {
        return;
    }
    judgement->grown_bytes = grown_bytes(growth, &bytes_per_step);
    if (judgement->grown_bytes < judgement->short_bytes) {
        return;
    }
    judgement->verdict = MS_VERDICT_GROWTH;
    judgement->growing = &growth->sites[0];
    judgement->further_steps =
        growth->clock.by_time ? 0
                              : further(&at->record.state, judgement->short_bytes, bytes_per_step);
    say_growth(model, growth, judgement);
}
