/* SPDX-License-Identifier: Apache-2.0 */
/* The page: page/page.html around the data, which is one JSON document. Names are inert in it, as
 * json.h promises, and the page's script inserts them as text only. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/arithmetic.h"
#include "report/render/formats.h"
#include "report/render/forms.h"
#include "report/render/json/parts.h"
#include "report/render/merged/merged.h"
#include "report/render/page_parts.h"
#include "report/render/source.h"
#include "report/render/survey.h"
#include "report/symbols/stacks_roles.h"

#define SCHEMA "memshim-page/1"

#define MOST_SITES      1000 /* of a device, before anything is left out */
#define FEWEST_SITES    4
#define MOST_OOMS       200
#define MOST_THRESHOLDS 200
#define MOST_TAGS       500
#define MOST_RANGES     4000
#define MOST_MOVES      2000
#define MOST_SOURCES    24
#define COARSE          32    /* there is little room: less than for 1/n of the usual amounts */
#define CARDS_BYTES     16384 /* for the table of cards of a dry run */
#define ENDING_BYTES    65536 /* for everything around the processes: the run's own members */

/* ---- the timeline ---- */

enum value { VALUE_MIN, VALUE_MAX, VALUE_LAST };

static uint64_t value_in(const struct ms_bucket *bucket, enum value value, enum ms_line line)
{
    switch (value) {
    case VALUE_MIN:
        return bucket->min_bytes[line];
    case VALUE_MAX:
        return bucket->max_bytes[line];
    default:
        return bucket->last_bytes[line];
    }
}

static void add_values(struct ms_json *json, const struct ms_series *series, const char *key,
                       enum value value, enum ms_line line)
{
    ms_json_open(json, key, '[');
    for (uint32_t i = 0; i < series->used; i++) {
        if (series->buckets[i].samples > 0) {
            ms_json_count(json, NULL, value_in(&series->buckets[i], value, line));
        }
    }
    ms_json_close(json, ']');
}

/* If a line's three values are equal everywhere, it has `last` alone. */
static bool is_flat(const struct ms_series *series, enum ms_line line)
{
    for (uint32_t i = 0; i < series->used; i++) {
        const struct ms_bucket *bucket = &series->buckets[i];

        if (bucket->samples > 0 && (bucket->min_bytes[line] != bucket->last_bytes[line] ||
                                    bucket->max_bytes[line] != bucket->last_bytes[line])) {
            return false;
        }
    }
    return true;
}

/* Only buckets with events: `at` has their numbers. With little room, `last` alone. */
static void add_series(struct ms_json *json, const struct ms_model *model, int device, size_t scale)
{
    static const char *const lines[MS_LINE_COUNT] = {"live", "reserved", "charged", "cap"};
    const struct ms_series *series = ms_model_series(&model->devices[device]);

    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "device", device);
    ms_json_count(json, "bucket_ns", UINT64_C(1) << series->shift);
    ms_json_open(json, "at", '[');
    for (uint32_t i = 0; i < series->used; i++) {
        if (series->buckets[i].samples > 0) {
            ms_json_count(json, NULL, i);
        }
    }
    ms_json_close(json, ']');
    for (int line = 0; line < MS_LINE_COUNT; line++) {
        ms_json_open(json, lines[line], '{');
        if (scale < COARSE && !is_flat(series, line)) {
            add_values(json, series, "min", VALUE_MIN, line);
            add_values(json, series, "max", VALUE_MAX, line);
        }
        add_values(json, series, "last", VALUE_LAST, line);
        ms_json_close(json, '}');
    }
    ms_json_close(json, '}');
}

/* ---- tags on their threads ---- */

static void add_ranges(struct ms_json *json, const struct ms_model *model, size_t most)
{
    const struct ms_model_range *all = (const struct ms_model_range *)model->tags.ranges.at;
    const size_t count = model->tags.ranges.bytes / sizeof(*all);

    ms_json_open(json, "tag_ranges", '[');
    for (size_t i = 0; i < count && i < most; i++) {
        const struct ms_tag_read *tag =
            ms_definitions_tag(model->definitions, (uint32_t)all[i].tag);

        ms_json_open(json, NULL, '{');
        ms_json_text(json, "name", tag ? tag->name : "(a tag that is not known)");
        ms_json_count(json, "thread", all[i].thread);
        ms_json_count(json, "begin_ns", all[i].begin_ns);
        ms_json_count(json, "end_ns",
                      all[i].end_ns == UINT64_MAX ? model->duration_ns : all[i].end_ns);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_json_count(json, "tag_ranges_left_out",
                  model->tags.left_out + (count > most ? count - most : 0));
}

/* ---- moves to host memory, and back ---- */

static void add_moves(struct ms_json *json, const struct ms_model *model, size_t most)
{
    const struct ms_model_move *all = (const struct ms_model_move *)model->moves.at;
    const size_t count = model->moves.bytes / sizeof(*all);

    ms_json_open(json, "moves", '[');
    for (size_t i = 0; i < count && i < most; i++) {
        ms_json_open(json, NULL, '{');
        ms_json_integer(json, "device", all[i].device);
        ms_json_flag(json, "down", all[i].down);
        ms_json_count(json, "time_ns", all[i].time_ns);
        ms_json_count(json, "held_ns", all[i].held_ns);
        ms_json_count(json, "bytes", all[i].bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

/* ---- source lines of growth ---- */

struct sources {
    struct ms_json *json;
    const struct ms_frame *taken[MOST_SOURCES];
    size_t count;
    uint64_t before_unix_ns;
};

static void add_source(struct sources *sources, const struct ms_frame *frame)
{
    if (!frame->file || frame->line == 0) {
        return;
    }
    for (size_t i = 0; i < sources->count; i++) {
        if (sources->taken[i]->line == frame->line &&
            strcmp(sources->taken[i]->file, frame->file) == 0) {
            return;
        }
    }
    if (sources->count < MOST_SOURCES) {
        sources->taken[sources->count++] = frame;
        ms_source_json(sources->json, frame, sources->before_unix_ns);
    }
}

/* The program's own lines of one stack. */
static void add_sources_of(struct sources *sources, const struct ms_model *model, uint32_t site)
{
    size_t count = 0;
    const struct ms_frame *frames = ms_stacks_frames(model->stacks, site, &count);

    for (size_t i = 0; i < count; i++) {
        if (frames[i].language == MS_FRAME_PYTHON && frames[i].file &&
            !ms_is_library_script(frames[i].file, frames[i].function)) {
            add_source(sources, &frames[i]);
        }
    }
}

/* First the lines that keep memory, then all lines that led to growing memory, the steepest
 * first. */
static void add_sources(struct ms_json *json, const struct ms_model *model, bool left_out)
{
    struct sources sources = {.json = json, .before_unix_ns = model->header.start_unix_ns};
    const char *why = left_out ? "left out by --no-source" : ms_source_forbidden(model);

    ms_json_text(json, "sources_why", why);
    ms_json_open(json, "sources", '[');
    for (int i = 0; !why && model->survey && i < MS_DEVICE_COUNT; i++) {
        const struct ms_growth *growth = &model->survey->devices[i].growth;

        for (size_t k = 0; growth->known && k < growth->leak_count; k++) {
            if (growth->leaks[k].has_culprit &&
                growth->leaks[k].culprit.language == MS_FRAME_PYTHON) {
                add_source(&sources, &growth->leaks[k].culprit);
            }
        }
        for (size_t k = 0; growth->known && k < growth->count; k++) {
            add_sources_of(&sources, model, growth->sites[k].site);
        }
    }
    ms_json_close(json, ']');
}

/* ---- one process ---- */

/* One in `scale` of the usual amounts. */
static void add_process(struct ms_json *json, const struct ms_model *model, size_t scale,
                        bool no_source)
{
    struct ms_frame_table frames = {0};
    const struct ms_json_limits limits = {
        .sites = MOST_SITES / scale,
        .ooms = MOST_OOMS / scale,
        .thresholds = MOST_THRESHOLDS / scale,
        .tags = MOST_TAGS / scale,
        .frames = &frames,
    };

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "folder", strrchr(model->dir, '/') ? strrchr(model->dir, '/') + 1 : "");
    ms_json_integer(json, "main_device", ms_model_main_device(model));
    ms_format_json_limited(model, json, "report", NULL, &limits);
    ms_json_add_surveys(json, model, &frames, scale);
    ms_json_add_frame_table(json, "frames", &frames);
    ms_json_count(json, "ooms_left_out", ms_less(ms_model_oom_count(model), limits.ooms));
    ms_json_count(
        json, "thresholds_left_out",
        ms_less(model->thresholds.bytes / sizeof(struct ms_model_threshold), limits.thresholds));
    ms_json_open(json, "series", '[');
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (model->devices[i].used) {
            add_series(json, model, i, scale);
        }
    }
    ms_json_close(json, ']');
    add_ranges(json, model, MOST_RANGES / scale);
    add_moves(json, model, MOST_MOVES / scale);
    add_sources(json, model, no_source);
    ms_json_close(json, '}');
    ms_frame_table_free(&frames);
}

/* ---- the run ---- */

/* As text, because the file may be anything by now. Null: the run was not dry. */
static void add_cards(struct ms_json *json, const char *run_dir)
{
    char path[PATH_MAX + sizeof("/" MS_PAGE_CARDS)], text[CARDS_BYTES];
    FILE *file;
    size_t bytes = 0;

    (void)snprintf(path, sizeof(path), "%s/" MS_PAGE_CARDS, run_dir);
    file = fopen(path, "re");
    if (file) {
        bytes = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    ms_json_text(json, "cards", bytes > 0 ? text : NULL);
}

void ms_page_begin(struct ms_page *page, struct ms_buffer *out, size_t processes, bool no_source)
{
    const size_t around = ms_page_head_bytes + ms_page_tail_bytes + ENDING_BYTES;

    *page = (struct ms_page){
        .json = {.out = out, .dense = true, .shown = true},
        .no_source = no_source,
        .share_bytes = (MS_PAGE_MOST_BYTES - around) / (processes ? processes : 1),
    };
    ms_buffer_append(out, (const char *)ms_page_head, ms_page_head_bytes);
    ms_json_open(&page->json, NULL, '{');
    ms_json_text(&page->json, "schema", SCHEMA);
    ms_json_open(&page->json, "processes", '[');
}

bool ms_page_add(struct ms_page *page, const struct ms_model *model)
{
    struct ms_buffer *out = page->json.out;
    const struct ms_json before = page->json;
    const size_t start = out->bytes;
    const char *folder = strrchr(model->dir, '/');

    if (!page->run_dir[0] && folder) {
        (void)snprintf(page->run_dir, sizeof(page->run_dir), "%.*s", (int)(folder - model->dir),
                       model->dir);
    }
    for (size_t scale = 1; scale <= MOST_SITES / FEWEST_SITES; scale *= 2) {
        add_process(&page->json, model, scale, page->no_source);
        if (out->bytes - start <= page->share_bytes) {
            return true;
        }
        out->bytes = start;
        page->json = before;
    }
    page->left_out++;
    return false;
}

void ms_page_end(struct ms_page *page, const struct ms_merged *merged)
{
    struct ms_json *json = &page->json;

    ms_json_close(json, ']');
    ms_json_count(json, "processes_left_out", page->left_out);
    add_cards(json, page->run_dir);
    ms_json_open(json, "run", '{');
    ms_merged_json_run(merged, json);
    ms_json_close(json, '}');
    ms_json_close(json, '}');
    ms_buffer_append(json->out, (const char *)ms_page_tail, ms_page_tail_bytes);
}

void ms_form_html(struct ms_forms *forms, const struct ms_model *model,
                  const struct ms_merged *merged)
{
    if (!model) {
        ms_page_end(&forms->page, merged);
        return;
    }
    if (forms->processes == 0) {
        ms_page_begin(&forms->page, &forms->out, forms->expected, forms->choice.no_source);
    }
    if (!ms_page_add(&forms->page, model)) {
        ms_forms_complain(forms,
                          "%s is not in the page: so many processes leave no room for it; a page "
                          "of its own: memshim report %s --format html",
                          model->path, model->dir);
    }
}
