/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the memory of each call site on the two sides of a difference. */
#include "report/model/compare/diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/model/site_rows.h"
#include "report/read/events.h"
#include "report/read/instant.h"

/* One process being added to the rows. */
struct adding {
    struct ms_diff *diff;
    enum ms_diff_side_name side;
    const struct ms_model *model;
    const uint64_t *since_ns; /* by device; null: not needed */
    uint64_t until_ns[MS_DEVICE_COUNT];
    struct ms_instant instant;
    bool followed[MS_DEVICE_COUNT]; /* there were records before the moment */
    bool gone[MS_DEVICE_COUNT];     /* the records begin after it */
};

/* Null: memory ran out. */
static struct ms_diff_row *row_of(struct ms_diff *diff, const struct ms_model *model, int device,
                                  uint32_t site)
{
    const size_t number = ms_site_match_add(&diff->match, model, site);

    if (number >= ms_diff_count(diff)) {
        struct ms_diff_row *row = ms_buffer_extend(&diff->rows, sizeof(*row));
        struct ms_site_kinds kinds;

        if (row) {
            ms_site_kinds(model, device, site, &kinds);
            *row = (struct ms_diff_row){.site = number, .kind = kinds.kind};
        }
    }
    return number < ms_diff_count(diff) ? ms_diff_at(diff, number) : NULL;
}

/* ---- at the peak, from the model ---- */

static void add_peak(struct adding *adding, int device)
{
    struct ms_diff_side *side = &adding->diff->sides[adding->side];
    struct ms_buffer rows = {0};

    ms_site_rows(adding->model, device, &rows);
    for (size_t i = 0; i < ms_site_row_count(&rows); i++) {
        const struct ms_site_sums *sums = &ms_site_row_at(&rows, i)->sums;
        struct ms_diff_row *row = sums->peak_bytes > 0 ? row_of(adding->diff, adding->model, device,
                                                                ms_site_row_at(&rows, i)->site)
                                                       : NULL;

        if (row) {
            row->most_bytes[adding->side] += sums->peak_bytes;
            row->bytes[adding->side] += sums->at_peak_bytes;
            row->count[adding->side] += sums->at_peak_count;
            side->live_bytes += sums->at_peak_bytes;
        }
    }
    ms_buffer_free(&rows);
}

/* Other moments that may peak with a larger batch, if the run used one device. */
static void add_turns(struct adding *adding, int device)
{
    const struct ms_survey_device *surveyed = &adding->model->survey->devices[device];

    for (size_t i = 0; i < surveyed->turn_count; i++) {
        const struct ms_buffer *holdings = &surveyed->turns[i].holdings;

        for (size_t j = 0; j < holdings->bytes / sizeof(struct ms_holding); j++) {
            const struct ms_holding *holding = (const struct ms_holding *)holdings->at + j;
            const struct ms_diff_row *row =
                row_of(adding->diff, adding->model, device, holding->site);
            const struct ms_diff_holding of = {row ? row->site : 0, (uint32_t)i, holding->bytes};

            if (row) {
                ms_buffer_append(&adding->diff->turns[adding->side], (const char *)&of, sizeof(of));
            }
        }
    }
}

static bool is_of_one_device(const struct ms_model *model)
{
    size_t used = 0;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        used += model->devices[i].used;
    }
    return used == 1;
}

/* ---- at another moment: the events up to there ---- */

static void take_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct adding *adding = ctx;
    const uint8_t device = event->device & (MS_DEVICE_COUNT - 1);

    if (ms_event_has_device(event) && time_ns <= adding->until_ns[device]) {
        adding->followed[device] = true;
        ms_instant_take(&adding->instant, event, time_ns);
    }
}

static void take_gap(void *ctx, uint8_t device, const struct ms_aggregate *sums, uint64_t time_ns)
{
    struct adding *adding = ctx;

    if (time_ns <= adding->until_ns[device]) {
        ms_instant_gap(&adding->instant, device, sums, time_ns);
    } else if (!adding->followed[device]) {
        adding->gone[device] = true;
    }
}

static void add_standing(struct adding *adding, uint64_t known_bytes[MS_DEVICE_COUNT])
{
    for (size_t i = 0; i < ms_instant_count(&adding->instant); i++) {
        const struct ms_standing *standing = ms_instant_at(&adding->instant, i);
        struct ms_diff_row *row =
            row_of(adding->diff, adding->model, standing->device, standing->site);

        if (!row) {
            continue;
        }
        row->bytes[adding->side] += standing->bytes;
        row->count[adding->side]++;
        known_bytes[standing->device] += standing->bytes;
        if (adding->since_ns && standing->born_ns > adding->since_ns[standing->device]) {
            row->born_bytes += standing->bytes;
            row->born_count++;
        }
    }
}

/* The rest of the device's live memory: it was allocated in records that are gone. */
static void add_unknown(struct adding *adding, const uint64_t known_bytes[MS_DEVICE_COUNT])
{
    struct ms_diff_side *side = &adding->diff->sides[adding->side];

    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        const uint64_t live = ms_counters_live(&adding->instant.sums[device].now);
        const uint64_t unknown = live > known_bytes[device] && adding->instant.since_ns[device] > 0
                                     ? live - known_bytes[device]
                                     : 0;
        struct ms_diff_row *row =
            unknown > 0 ? row_of(adding->diff, adding->model, device, 0) : NULL;

        side->live_bytes += known_bytes[device] + unknown;
        side->incomplete |= adding->instant.since_ns[device] > 0;
        if (row) {
            row->bytes[adding->side] += unknown;
        }
    }
}

static bool add_moment(struct adding *adding, char *why, size_t why_bytes)
{
    const struct ms_events_visitor visitor = {.ctx = adding, .event = take_event, .gap = take_gap};
    uint64_t known_bytes[MS_DEVICE_COUNT] = {0};
    bool good = ms_instant_begin(&adding->instant);

    if (!good) {
        (void)snprintf(why, why_bytes, "%s: out of memory while reading it", adding->model->path);
    } else {
        good = ms_events_visit(adding->model->path, &visitor, why, why_bytes);
    }
    for (int i = 0; i < MS_DEVICE_COUNT && good; i++) {
        if (adding->gone[i]) {
            (void)snprintf(why, why_bytes, "%s: the records of that moment were overwritten",
                           adding->model->path);
            good = false;
        }
    }
    if (good) {
        add_standing(adding, known_bytes);
        add_unknown(adding, known_bytes);
    }
    ms_instant_free(&adding->instant);
    return good;
}

/* ---- the whole ---- */

static void fill_side(struct ms_diff_side *side, const struct ms_model *model)
{
    const int device = ms_model_main_device(model);

    (void)snprintf(side->program, sizeof(side->program), "%s", model->header.program);
    side->rank = side->processes == 0 ? model->header.rank : -1;
    side->processes++;
    if (device >= 0) {
        const struct ms_aggregate *sums = &model->devices[device].sums;

        side->charged_peak_bytes = sums->peak_charged.charged_bytes;
        side->live_peak_bytes = ms_aggregate_peak_live(sums).live_bytes;
        side->cap_bytes = sums->now.cap_bytes;
    }
}

bool ms_diff_add(struct ms_diff *diff, enum ms_diff_side_name side, const struct ms_model *model,
                 const uint64_t *since_ns, char *why, size_t why_bytes)
{
    struct ms_diff_side *to = &diff->sides[side];
    struct adding adding = {.diff = diff, .side = side, .model = model, .since_ns = since_ns};
    const bool at_peak = to->moment.word == MS_AT_PEAK && !diff->between;
    const int main_device = ms_model_main_device(model);

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (!model->devices[i].used) {
            continue;
        }
        if (!ms_moment_find(model, &to->moment, i, &adding.until_ns[i], why, why_bytes)) {
            return false;
        }
        if (at_peak) {
            add_peak(&adding, i);
        }
        if (at_peak && model->survey && is_of_one_device(model)) {
            add_turns(&adding, i);
        }
    }
    if (to->processes == 0 && main_device >= 0) {
        to->time_ns = adding.until_ns[main_device];
    }
    fill_side(to, model);
    to->damaged |= model->warning_count > 0;
    return at_peak || add_moment(&adding, why, why_bytes);
}

static uint64_t distance(const uint64_t bytes[MS_DIFF_SIDES])
{
    const uint64_t a = bytes[MS_DIFF_A], b = bytes[MS_DIFF_B];

    return a > b ? a - b : b - a;
}

static int by_difference(const void *a, const void *b)
{
    const struct ms_diff_row *left = a, *right = b;

    if (left->born_bytes != right->born_bytes) {
        return left->born_bytes > right->born_bytes ? -1 : 1;
    }
    if (distance(left->bytes) != distance(right->bytes)) {
        return distance(left->bytes) > distance(right->bytes) ? -1 : 1;
    }
    if (distance(left->most_bytes) != distance(right->most_bytes)) {
        return distance(left->most_bytes) > distance(right->most_bytes) ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

/* ---- by line of code ---- */

static int by_line_difference(const void *a, const void *b)
{
    const struct ms_diff_line *left = a, *right = b;

    if (distance(left->bytes) != distance(right->bytes)) {
        return distance(left->bytes) > distance(right->bytes) ? -1 : 1;
    }
    return left->text < right->text ? -1 : left->text > right->text;
}

/* The number of the text of the row's line. Memory that a backward pass computes again belongs to
 * the same line. */
static size_t line_text(struct ms_diff *diff, const struct ms_diff_row *row)
{
    static const char backward[] = ", backward";
    const size_t ending = sizeof(backward) - 1;
    struct ms_buffer text = {0};
    size_t bytes, number;

    ms_site_match_add_line(&diff->match, row->site, &text);
    bytes = text.bytes;
    if (bytes > ending && memcmp(text.at + bytes - ending, backward, ending) == 0) {
        bytes -= ending;
    }
    number = ms_strings_add(&diff->line_texts, text.at ? text.at : "", bytes, NULL);
    ms_buffer_free(&text);
    return number;
}

/* Lines have the numbers of their texts: each new text is a new line. */
static void collect_lines(struct ms_diff *diff)
{
    for (size_t i = 0; i < ms_diff_count(diff); i++) {
        const struct ms_diff_row *row = ms_diff_at(diff, i);
        const uint64_t both = row->bytes[MS_DIFF_A] + row->bytes[MS_DIFF_B];
        const size_t number = both > 0 ? line_text(diff, row) : SIZE_MAX;
        struct ms_diff_line *line = NULL;

        if (number == ms_diff_line_count(diff)) {
            line = ms_buffer_extend(&diff->lines, sizeof(*line));
            if (line) {
                *line = (struct ms_diff_line){.text = number};
            }
        } else if (number < ms_diff_line_count(diff)) {
            line = (struct ms_diff_line *)diff->lines.at + number;
        }
        if (line) {
            line->bytes[MS_DIFF_A] += row->bytes[MS_DIFF_A];
            line->bytes[MS_DIFF_B] += row->bytes[MS_DIFF_B];
            line->most_bytes[MS_DIFF_A] += row->most_bytes[MS_DIFF_A];
            line->most_bytes[MS_DIFF_B] += row->most_bytes[MS_DIFF_B];
            line->kind = both > line->largest_bytes ? row->kind : line->kind;
            line->largest_bytes = both > line->largest_bytes ? both : line->largest_bytes;
        }
    }
    if (diff->lines.at) {
        qsort(diff->lines.at, ms_diff_line_count(diff), sizeof(struct ms_diff_line),
              by_line_difference);
    }
}

/* Adds these after the peak's, for the run with these turns. */
static void add_courses(struct ms_diff *diff, int side, double x)
{
    const struct ms_diff_holding *all = (const struct ms_diff_holding *)diff->turns[side].at;
    struct ms_prediction *prediction = &diff->prediction;

    prediction->course_count = 1;
    for (size_t i = 0; i < diff->turns[side].bytes / sizeof(*all); i++) {
        const size_t course = all[i].turn + 1;

        ms_course_add(&prediction->courses[course], &ms_diff_at(diff, all[i].site)->fit, x,
                      all[i].bytes);
        prediction->course_count =
            course >= prediction->course_count ? course + 1 : prediction->course_count;
    }
}

_Static_assert(MS_MOST_COURSES == MS_SURVEY_TURNS + 1, "the peak, and each turn");

/* small: the side with the smaller x. */
static struct ms_fit fit_of(const double x[2], const uint64_t bytes[MS_DIFF_SIDES], int small)
{
    const uint64_t by_x[2] = {bytes[small], bytes[MS_DIFF_B - small]};

    return ms_fit_find(x, by_x);
}

static void predict(struct ms_diff *diff)
{
    struct ms_prediction *prediction = &diff->prediction;
    const bool swapped = prediction->x[MS_DIFF_A] > prediction->x[MS_DIFF_B];
    const int small = swapped ? MS_DIFF_B : MS_DIFF_A, large = swapped ? MS_DIFF_A : MS_DIFF_B;
    const double x[2] = {prediction->x[small], prediction->x[large]};
    const struct ms_diff_side *larger = &diff->sides[large];
    const bool of_peaks = diff->sides[MS_DIFF_A].moment.word == MS_AT_PEAK &&
                          diff->sides[MS_DIFF_B].moment.word == MS_AT_PEAK;

    for (size_t i = 0; i < ms_diff_count(diff); i++) {
        struct ms_diff_row *row = ms_diff_at(diff, i);

        row->fit = of_peaks ? fit_of(x, row->most_bytes, small) : fit_of(x, row->bytes, small);
        ms_course_add(&prediction->courses[0], &row->fit, x[1], row->bytes[large]);
    }
    add_courses(diff, large, x[1]);
    for (size_t i = 0; diff->lines.at && i < ms_diff_line_count(diff); i++) {
        struct ms_diff_line *line = (struct ms_diff_line *)diff->lines.at + i;

        line->fit = of_peaks ? fit_of(x, line->most_bytes, small) : fit_of(x, line->bytes, small);
    }
    prediction->smaller_bytes = diff->sides[small].live_bytes;
    prediction->beside_bytes = larger->charged_peak_bytes > larger->live_peak_bytes
                                   ? larger->charged_peak_bytes - larger->live_peak_bytes
                                   : 0;
    prediction->cap_bytes = larger->cap_bytes;
    ms_prediction_finish(prediction);
}

void ms_diff_sort(struct ms_diff *diff)
{
    collect_lines(diff);
    if (diff->predicts) {
        predict(diff);
    }
    if (ms_diff_count(diff) > 0) {
        qsort(diff->rows.at, ms_diff_count(diff), sizeof(struct ms_diff_row), by_difference);
    }
}

void ms_diff_free(struct ms_diff *diff)
{
    ms_site_match_free(&diff->match);
    ms_buffer_free(&diff->rows);
    ms_buffer_free(&diff->turns[MS_DIFF_A]);
    ms_buffer_free(&diff->turns[MS_DIFF_B]);
    ms_strings_free(&diff->line_texts);
    ms_buffer_free(&diff->lines);
}
