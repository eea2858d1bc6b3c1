/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the holders of memory to lines of code. */
#include "report/model/verdict/held_lines.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/site_rows.h"

#define WORTH_OF_LINE 16u /* a kind with 1/n of what a line holds is named */

#define MOST_HOLDINGS 100 /* holdings, before lines are joined */

/* ---- live memory ---- */

/* The place of the line among the present ones, or after them; `room`: there is none. */
static size_t place_of(const struct ms_held_line *lines, size_t count, const char *text)
{
    size_t place = 0;

    while (place < count && strcmp(lines[place].text.at, text) != 0) {
        place++;
    }
    return place;
}

/* Moves it up, the largest first; they are few. */
static void rise(struct ms_held_line *lines, size_t place)
{
    for (; place > 0 && lines[place].bytes > lines[place - 1].bytes; place--) {
        const struct ms_held_line smaller = lines[place - 1];

        lines[place - 1] = lines[place];
        lines[place] = smaller;
    }
}

static void add_holding(struct ms_held_line *line, const struct ms_holding *holding)
{
    line->bytes += holding->bytes;
    line->kind_bytes[holding->kind] += holding->bytes;
    line->kind =
        line->kind_bytes[holding->kind] > line->kind_bytes[line->kind] ? holding->kind : line->kind;
}

size_t ms_held_lines(const struct ms_model *model, int device,
                     const struct ms_survey_moment *moment, int kind, struct ms_held_line *lines,
                     size_t room)
{
    struct ms_held_line all[MOST_HOLDINGS] = {0};
    const struct ms_survey_device *surveyed = &model->survey->devices[device];
    size_t count = 0;

    for (size_t i = 0; i < moment->count && i < MOST_HOLDINGS; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(surveyed, moment->first + i);
        struct ms_buffer text = {0};

        if (kind != MS_KIND_COUNT && holding->kind != kind) {
            continue;
        }
        ms_site_add_line(model, holding->site, &text);
        ms_site_add_user(model, holding->site, &text);
        ms_buffer_append(&text, "", 1);
        if (text.failed) {
            ms_buffer_free(&text);
            continue;
        }

        const size_t place = place_of(all, count, text.at);

        if (place == count) {
            all[count++] = (struct ms_held_line){.text = text};
        } else {
            ms_buffer_free(&text);
        }
        add_holding(&all[place], holding);
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

const char *ms_held_kind_name(const struct ms_model *model, enum ms_kind kind)
{
    return kind == MS_KIND_PERSISTENT && ms_model_fatal_oom(model) && model->recurrence.passes <= 1
               ? "kept so far"
               : ms_kind_name(kind);
}

/* The kind of what a line holds; where another one has a share in it, the two largest. */
static void add_kinds(const struct ms_model *model, const struct ms_held_line *line,
                      struct ms_buffer *out)
{
    int second = line->kind == 0 ? 1 : 0;

    for (int kind = second; kind < MS_KIND_COUNT; kind++) {
        if (kind != line->kind && line->kind_bytes[kind] > line->kind_bytes[second]) {
            second = kind;
        }
    }
    ms_buffer_add(out, ms_held_kind_name(model, (enum ms_kind)line->kind));
    if (line->kind_bytes[second] >= line->bytes / WORTH_OF_LINE && line->kind_bytes[second] > 0) {
        ms_buffer_format(out, " %s, %s %s", MS_BYTES(line->kind_bytes[line->kind]),
                         ms_held_kind_name(model, (enum ms_kind)second),
                         MS_BYTES(line->kind_bytes[second]));
    }
}

void ms_held_line_add(const struct ms_model *model, const struct ms_held_line *line,
                      uint64_t live_bytes, struct ms_buffer *out)
{
    ms_buffer_format(out, "%s (%s of live) ", MS_BYTES(line->bytes),
                     MS_PERCENT(line->bytes, live_bytes));
    ms_buffer_add(out, line->text.at);
    ms_buffer_add(out, "   ");
    /* What lies in a segment may be of any kind. */
    if (ms_model_hides_tensors(model)) {
        ms_buffer_add(out, "segments");
    } else {
        add_kinds(model, line, out);
    }
}

/* ---- pinned host memory ---- */

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
