/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `memshim diff`: text and JSON. */
#include "report/render/commands/diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/json.h"
#include "allocator/base/units.h"

#define SCHEMA            "memshim-diff/1"
#define MOST_LINES        20
#define MOST_ROWS         20
#define MOST_ELSEWHERE    5
#define MOMENT_TEXT_BYTES 96

/* ---- text ---- */

static void add_side(const struct ms_diff *diff, enum ms_diff_side_name name, struct ms_buffer *out)
{
    const struct ms_diff_side *side = &diff->sides[name];
    char moment[MOMENT_TEXT_BYTES], live[MS_UNIT_TEXT_BYTES];

    ms_buffer_add(out, name == MS_DIFF_A ? "  A  " : "  B  ");
    ms_buffer_add_plain(out, side->path);
    ms_buffer_add(out, "   ");
    ms_buffer_add_plain(out, side->program);
    if (side->processes > 1) {
        ms_buffer_format(out, ", %zu processes, each", side->processes);
    } else if (side->rank >= 0) {
        ms_buffer_format(out, " rank %d,", (int)side->rank);
    } else {
        ms_buffer_add(out, ",");
    }
    ms_buffer_format(out, " %s: %s live\n",
                     ms_moment_text(&side->moment, side->time_ns, moment, sizeof(moment)),
                     ms_bytes_text(side->live_bytes, live, sizeof(live)));
    if (side->incomplete) {
        ms_buffer_add(out, "     its oldest records were overwritten: what was allocated in them "
                           "has no call site\n");
    }
    if (side->damaged) {
        ms_buffer_add(out, "     it is damaged: what could not be read passes for a difference\n");
    }
}

static void add_answer(const struct ms_diff *diff, struct ms_buffer *out)
{
    const uint64_t a = diff->sides[MS_DIFF_A].live_bytes, b = diff->sides[MS_DIFF_B].live_bytes;
    uint64_t more = 0, less = 0, born = 0;
    size_t rising = 0, falling = 0, sites = 0;
    char all[MS_UNIT_TEXT_BYTES], up[MS_UNIT_TEXT_BYTES], down[MS_UNIT_TEXT_BYTES];

    for (size_t i = 0; i < ms_diff_count(diff); i++) {
        const struct ms_diff_row *row = ms_diff_at(diff, i);
        const uint64_t *bytes = row->bytes;

        more += bytes[MS_DIFF_B] > bytes[MS_DIFF_A] ? bytes[MS_DIFF_B] - bytes[MS_DIFF_A] : 0;
        less += bytes[MS_DIFF_A] > bytes[MS_DIFF_B] ? bytes[MS_DIFF_A] - bytes[MS_DIFF_B] : 0;
        rising += bytes[MS_DIFF_B] > bytes[MS_DIFF_A];
        falling += bytes[MS_DIFF_A] > bytes[MS_DIFF_B];
        born += row->born_bytes;
        sites += row->born_bytes > 0;
    }
    if (diff->between) {
        ms_buffer_format(out, "Allocated between the two and still live: %s, by %zu call sites.\n",
                         ms_bytes_text(born, all, sizeof(all)), sites);
    }
    ms_buffer_format(out, "B holds %s %s than A: %s more at %zu call sites, %s less at %zu.\n",
                     ms_bytes_text(a > b ? a - b : b - a, all, sizeof(all)),
                     a > b ? "less" : "more", ms_bytes_text(more, up, sizeof(up)), rising,
                     ms_bytes_text(less, down, sizeof(down)), falling);
}

static void add_change(uint64_t from, uint64_t to, char *text, size_t text_bytes)
{
    char bytes[MS_UNIT_TEXT_BYTES];

    ms_bytes_text(to > from ? to - from : from - to, bytes, sizeof(bytes));
    (void)snprintf(text, text_bytes, "%s%s", to > from ? "+" : from > to ? "-" : "", bytes);
}

static void add_row(const struct ms_diff *diff, const struct ms_diff_row *row,
                    struct ms_buffer *out)
{
    char a[MS_UNIT_TEXT_BYTES], b[MS_UNIT_TEXT_BYTES], born[MS_UNIT_TEXT_BYTES];
    char change[MS_UNIT_TEXT_BYTES + 1];

    add_change(row->bytes[MS_DIFF_A], row->bytes[MS_DIFF_B], change, sizeof(change));
    ms_buffer_format(out, "  %11s  %11s  %12s", ms_bytes_text(row->bytes[MS_DIFF_A], a, sizeof(a)),
                     ms_bytes_text(row->bytes[MS_DIFF_B], b, sizeof(b)), change);
    if (diff->between) {
        ms_buffer_format(out, "  %11s  %6" PRIu64,
                         ms_bytes_text(row->born_bytes, born, sizeof(born)), row->born_count);
    }
    ms_buffer_format(out, "  %-16s  ", ms_kind_name((enum ms_kind)row->kind));
    ms_site_match_add_line(&diff->match, row->site, out);
    if (diff->predicts) {
        ms_buffer_format(out, "   %s", ms_shape_name((enum ms_shape)row->fit.shape));
    }
    ms_buffer_add(out, "\n");
}

static bool is_worth_a_row(const struct ms_diff *diff, const struct ms_diff_row *row)
{
    return row->bytes[MS_DIFF_A] != row->bytes[MS_DIFF_B] || row->born_bytes > 0 ||
           (diff->predicts && row->bytes[MS_DIFF_A] > 0);
}

static void add_rows(const struct ms_diff *diff, struct ms_buffer *out)
{
    size_t shown = 0, left = 0;

    for (size_t i = 0; i < ms_diff_count(diff); i++) {
        const struct ms_diff_row *row = ms_diff_at(diff, i);

        if (!is_worth_a_row(diff, row)) {
            continue;
        }
        if (shown == MOST_ROWS) {
            left++;
            continue;
        }
        if (shown++ == 0) {
            ms_buffer_format(out, "\n  %11s  %11s  %12s%s  %-16s  call site, by its whole stack\n",
                             "A", "B", "change", diff->between ? "    allocated  blocks" : "",
                             "kind");
        }
        add_row(diff, row, out);
    }
    if (left > 0) {
        ms_buffer_format(
            out, "  and %zu more call sites with a smaller difference (--format json lists all)\n",
            left);
    }
}

/* Sites that were live at neither peak may have changed, too. */
static void add_elsewhere(const struct ms_diff *diff, struct ms_buffer *out)
{
    char a[MS_UNIT_TEXT_BYTES], b[MS_UNIT_TEXT_BYTES], change[MS_UNIT_TEXT_BYTES + 1];
    size_t shown = 0;

    for (size_t i = 0; i < ms_diff_count(diff) && shown < MOST_ELSEWHERE; i++) {
        const struct ms_diff_row *row = ms_diff_at(diff, i);
        const uint64_t *most = row->most_bytes;

        if (row->bytes[MS_DIFF_A] > 0 || row->bytes[MS_DIFF_B] > 0 ||
            most[MS_DIFF_A] == most[MS_DIFF_B]) {
            continue;
        }
        if (shown++ == 0) {
            ms_buffer_add(
                out, "\nNot live at either peak: the most that each call site held at any time\n");
        }
        add_change(most[MS_DIFF_A], most[MS_DIFF_B], change, sizeof(change));
        ms_buffer_format(out, "  %11s  %11s  %12s  %-16s  ",
                         ms_bytes_text(most[MS_DIFF_A], a, sizeof(a)),
                         ms_bytes_text(most[MS_DIFF_B], b, sizeof(b)), change,
                         ms_kind_name((enum ms_kind)row->kind));
        ms_site_match_add_line(&diff->match, row->site, out);
        if (diff->predicts) {
            ms_buffer_format(out, "   %s", ms_shape_name((enum ms_shape)row->fit.shape));
        }
        ms_buffer_add(out, "\n");
    }
}

/* ---- lines of code ---- */

/* "4.00x less", "the same". */
static void add_factor(const uint64_t bytes[MS_DIFF_SIDES], struct ms_buffer *out)
{
    const uint64_t a = bytes[MS_DIFF_A], b = bytes[MS_DIFF_B];
    const uint64_t larger = a > b ? a : b, smaller = a > b ? b : a;
    char number[MS_UNIT_TEXT_BYTES], text[MS_UNIT_TEXT_BYTES + 8] = "";

    if (larger - smaller <= larger / 200) {
        (void)snprintf(text, sizeof(text), "the same");
    } else if (smaller == 0) {
        (void)snprintf(text, sizeof(text), "%s", a > b ? "gone" : "new");
    } else {
        const double factor = (double)larger / (double)smaller;

        (void)snprintf(text, sizeof(text), "%sx %s",
                       factor < 1e6 ? ms_decimal_text((int64_t)(factor * 100 + 0.5) * 10000, number,
                                                      sizeof(number))
                                    : "> 1000000",
                       a > b ? "less" : "more");
    }
    ms_buffer_format(out, "  %-12s", text);
}

/* Sites of one line whose stacks differ between the runs share a row. */
static void add_lines(const struct ms_diff *diff, struct ms_buffer *out)
{
    char a[MS_UNIT_TEXT_BYTES], b[MS_UNIT_TEXT_BYTES];
    size_t shown = 0;

    for (size_t i = 0; i < ms_diff_line_count(diff) && shown < MOST_LINES; i++) {
        const struct ms_diff_line *line = ms_diff_line_at(diff, i);

        if (line->bytes[MS_DIFF_A] == line->bytes[MS_DIFF_B] && !diff->predicts) {
            continue;
        }
        if (shown++ == 0) {
            ms_buffer_format(out, "\n  %11s  %11s  %-12s  %-16s  line of code\n", "A", "B",
                             "factor", "kind");
        }
        ms_buffer_format(out, "  %11s  %11s", ms_bytes_text(line->bytes[MS_DIFF_A], a, sizeof(a)),
                         ms_bytes_text(line->bytes[MS_DIFF_B], b, sizeof(b)));
        add_factor(line->bytes, out);
        ms_buffer_format(out, "  %-16s  %s", ms_kind_name((enum ms_kind)line->kind),
                         ms_strings_at(&diff->line_texts, line->text, NULL));
        if (diff->predicts) {
            ms_buffer_format(out, "   %s", ms_shape_name((enum ms_shape)line->fit.shape));
        }
        ms_buffer_add(out, "\n");
    }
}

/* The C library's format of fractions follows the locale. */
static const char *number_text(double x, bool whole, char *text, size_t text_bytes)
{
    if (whole) {
        return ms_count_text((uint64_t)x, text, text_bytes);
    }
    return ms_decimal_text((int64_t)(x * 100) * 10000, text, text_bytes);
}

static void add_fit(const struct ms_prediction *prediction, struct ms_buffer *out)
{
    char low[MS_UNIT_TEXT_BYTES], high[MS_UNIT_TEXT_BYTES], cap[MS_UNIT_TEXT_BYTES];

    ms_bytes_text(prediction->cap_bytes, cap, sizeof(cap));
    number_text(prediction->fits, prediction->whole, low, sizeof(low));
    number_text(prediction->fits_at_most, prediction->whole, high, sizeof(high));
    if (prediction->cap_bytes == 0) {
        ms_buffer_add(out, "  What fits is unknown: the run has no cap, and its trace does not say "
                           "the device's size.\n");
    } else if (prediction->fits_all) {
        ms_buffer_format(out, "  Everything up to %s %s fits in %s.\n", prediction->name, low, cap);
    } else if (prediction->fits_at_most <= 0) {
        ms_buffer_format(out, "  Nothing fits in %s.\n", cap);
    } else if (prediction->fits == prediction->fits_at_most) {
        ms_buffer_format(out, "  %s %s fits in %s, and nothing larger does (estimate).\n",
                         prediction->name, low, cap);
    } else {
        ms_buffer_format(out, "  %s %s fits in %s, and up to %s may fit (estimate).\n",
                         prediction->name, low, cap, high);
    }
}

/* The prediction starts from the larger run; the smaller one shows whether it is right. */
static void add_failure(const struct ms_prediction *prediction, struct ms_buffer *out)
{
    const double *x = prediction->x;
    const double smaller = x[MS_DIFF_A] < x[MS_DIFF_B] ? x[MS_DIFF_A] : x[MS_DIFF_B];

    ms_buffer_format(
        out,
        "\nNo prediction for %s: judged by the larger run, the smaller one should have held "
        "%s, and it held %s. Something else differs between the two runs.\n",
        prediction->name, MS_BYTES((uint64_t)ms_prediction_high(prediction, smaller)),
        MS_BYTES(prediction->smaller_bytes));
}

static void add_prediction(const struct ms_prediction *prediction, struct ms_buffer *out)
{
    char x[MS_UNIT_TEXT_BYTES], low[MS_UNIT_TEXT_BYTES], high[MS_UNIT_TEXT_BYTES];

    if (prediction->fails) {
        add_failure(prediction, out);
        return;
    }
    ms_buffer_format(out, "\nPrediction for %s, from two runs (estimates):\n", prediction->name);
    for (size_t i = 0; i < MS_PREDICTED; i++) {
        const uint64_t least = (uint64_t)ms_prediction_low(prediction, prediction->at[i]);
        const uint64_t most = (uint64_t)ms_prediction_high(prediction, prediction->at[i]);

        ms_buffer_format(out, "  %10s  peak live %s",
                         number_text(prediction->at[i], prediction->whole, x, sizeof(x)),
                         ms_bytes_text(least, low, sizeof(low)));
        if (strcmp(low, ms_bytes_text(most, high, sizeof(high))) != 0) {
            ms_buffer_format(out, " to %s", high);
        }
        ms_buffer_format(out, ", charged at most %s\n",
                         ms_bytes_text(most + prediction->beside_bytes, high, sizeof(high)));
    }
    add_fit(prediction, out);
}

void ms_diff_text(const struct ms_diff *diff, struct ms_buffer *out)
{
    ms_buffer_add(out, "memshim diff, by call site\n");
    add_side(diff, MS_DIFF_A, out);
    add_side(diff, MS_DIFF_B, out);
    add_answer(diff, out);
    if (diff->predicts) {
        add_prediction(&diff->prediction, out);
    }
    if (!diff->between) {
        add_lines(diff, out);
    }
    add_rows(diff, out);
    add_elsewhere(diff, out);
}

/* ---- JSON ---- */

static void add_json_side(const struct ms_diff *diff, enum ms_diff_side_name name,
                          struct ms_json *json)
{
    const struct ms_diff_side *side = &diff->sides[name];
    char moment[MOMENT_TEXT_BYTES];

    ms_json_open(json, name == MS_DIFF_A ? "a" : "b", '{');
    ms_json_text(json, "path", side->path);
    ms_json_text(json, "program", side->program);
    ms_json_count(json, "processes", side->processes);
    ms_json_text(json, "moment",
                 ms_moment_text(&side->moment, side->time_ns, moment, sizeof(moment)));
    ms_json_count(json, "time_ns", side->time_ns);
    ms_json_count(json, "live_bytes", side->live_bytes);
    ms_json_flag(json, "complete", !side->incomplete && !side->damaged);
    ms_json_close(json, '}');
}

static void add_json_row(const struct ms_diff *diff, const struct ms_diff_row *row,
                         struct ms_json *json)
{
    ms_json_open(json, NULL, '{');
    ms_site_match_json(&diff->match, row->site, json);
    ms_json_text(json, "kind", ms_kind_name((enum ms_kind)row->kind));
    ms_json_count(json, "a_bytes", row->bytes[MS_DIFF_A]);
    ms_json_count(json, "b_bytes", row->bytes[MS_DIFF_B]);
    ms_json_integer(json, "change_bytes", (int64_t)(row->bytes[MS_DIFF_B] - row->bytes[MS_DIFF_A]));
    ms_json_count(json, "a_count", row->count[MS_DIFF_A]);
    ms_json_count(json, "b_count", row->count[MS_DIFF_B]);
    if (diff->between) {
        ms_json_count(json, "born_bytes", row->born_bytes);
        ms_json_count(json, "born_count", row->born_count);
    } else {
        ms_json_count(json, "a_most_bytes", row->most_bytes[MS_DIFF_A]);
        ms_json_count(json, "b_most_bytes", row->most_bytes[MS_DIFF_B]);
    }
    if (diff->predicts) {
        ms_json_text(json, "shape", ms_shape_name((enum ms_shape)row->fit.shape));
    }
    ms_json_close(json, '}');
}

static void add_json_x(struct ms_json *json, const char *key, double x)
{
    char text[MS_UNIT_TEXT_BYTES];

    ms_json_number(json, key,
                   x < 1e12 ? ms_decimal_text((int64_t)(x * 1000000 + 0.5), text, sizeof(text))
                            : "1000000000000");
}

static void add_json_line(const struct ms_diff *diff, const struct ms_diff_line *line,
                          struct ms_json *json)
{
    const uint64_t a = line->bytes[MS_DIFF_A], b = line->bytes[MS_DIFF_B];

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "line", ms_strings_at(&diff->line_texts, line->text, NULL));
    ms_json_text(json, "kind", ms_kind_name((enum ms_kind)line->kind));
    ms_json_count(json, "a_bytes", a);
    ms_json_count(json, "b_bytes", b);
    if (a > 0) {
        add_json_x(json, "factor", (double)b / (double)a);
    } else {
        ms_json_null(json, "factor");
    }
    if (diff->predicts) {
        ms_json_text(json, "shape", ms_shape_name((enum ms_shape)line->fit.shape));
    }
    ms_json_close(json, '}');
}

static void add_json_prediction(const struct ms_prediction *prediction, struct ms_json *json)
{
    ms_json_open(json, "predict", '{');
    ms_json_text(json, "name", prediction->name);
    add_json_x(json, "a", prediction->x[MS_DIFF_A]);
    add_json_x(json, "b", prediction->x[MS_DIFF_B]);
    ms_json_count(json, "beside_bytes", prediction->beside_bytes);
    ms_json_count(json, "cap_bytes", prediction->cap_bytes);
    ms_json_flag(json, "refused", prediction->fails);
    add_json_x(json, "fits", prediction->fits);
    add_json_x(json, "fits_at_most", prediction->fits_at_most);
    ms_json_open(json, "at", '[');
    for (size_t i = 0; i < MS_PREDICTED && !prediction->fails; i++) {
        ms_json_open(json, NULL, '{');
        add_json_x(json, "value", prediction->at[i]);
        ms_json_count(json, "low_bytes",
                      (uint64_t)ms_prediction_low(prediction, prediction->at[i]));
        ms_json_count(json, "high_bytes",
                      (uint64_t)ms_prediction_high(prediction, prediction->at[i]));
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

void ms_diff_json(const struct ms_diff *diff, struct ms_buffer *out)
{
    struct ms_json json = {.out = out};

    ms_json_open(&json, NULL, '{');
    ms_json_text(&json, "schema", SCHEMA);
    add_json_side(diff, MS_DIFF_A, &json);
    add_json_side(diff, MS_DIFF_B, &json);
    ms_json_flag(&json, "moments_of_one_run", diff->between);
    if (diff->predicts) {
        add_json_prediction(&diff->prediction, &json);
    }
    ms_json_open(&json, "lines", '[');
    for (size_t i = 0; i < ms_diff_line_count(diff); i++) {
        add_json_line(diff, ms_diff_line_at(diff, i), &json);
    }
    ms_json_close(&json, ']');
    ms_json_open(&json, "sites", '[');
    for (size_t i = 0; i < ms_diff_count(diff); i++) {
        add_json_row(diff, ms_diff_at(diff, i), &json);
    }
    ms_json_close(&json, ']');
    ms_json_close(&json, '}');
    ms_buffer_add(out, "\n");
}
