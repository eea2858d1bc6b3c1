/* SPDX-License-Identifier: Apache-2.0 */
/* The survey in the data of the page: lines over time, moments, maps and pins. */
#include "report/render/survey.h"

#include <stdio.h>
#include <stdlib.h>

#include "report/model/site_rows.h"
#include "report/render/json/parts.h"

#define FEWEST_HOLDINGS 10
#define COARSEST        16 /* with room for less than 1/n of it, all is left out */
#define SHARES          8  /* steps in which the live share of a cell is shown */

/* ---- named sites ---- */

struct site_names {
    struct ms_buffer sites; /* uint32_t */
};

static void name_site(struct site_names *names, uint32_t site)
{
    ms_buffer_append(&names->sites, (const char *)&site, sizeof(site));
}

static void add_site(struct ms_json *json, const char *key, struct site_names *names, uint32_t site)
{
    ms_json_count(json, key, site);
    name_site(names, site);
}

/* Adds the sites that the report itself names by number. */
static void name_listed(struct site_names *names, const struct ms_model *model, int index)
{
    const struct ms_survey_device *device = &model->survey->devices[index];

    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(model, i);

        if (oom->device == (uint64_t)index) {
            name_site(names, oom->record.state.site);
        }
    }
    for (size_t i = 0; i < device->growth.count; i++) {
        name_site(names, device->growth.sites[i].site);
    }
    for (size_t i = 0; i < device->temporary_count; i++) {
        name_site(names, device->temporaries[i].site);
    }
}

static int by_number(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

static void add_names(struct ms_json *json, const struct ms_model *model, int device,
                      struct site_names *names, struct ms_frame_table *frames)
{
    uint32_t *all = (uint32_t *)names->sites.at;
    const size_t count = names->sites.bytes / sizeof(*all);

    if (count > 0) {
        qsort(all, count, sizeof(*all), by_number);
    }
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || all[i] != all[i - 1]) {
            ms_json_open(json, NULL, '{');
            ms_json_add_site_name(json, model, device, all[i], frames);
            ms_json_close(json, '}');
        }
    }
}

/* ---- over time ---- */

static const char *line_name(int line)
{
    switch (line) {
    case MS_SURVEY_HOLES:
        return "holes";
    case MS_SURVEY_FORWARDED:
        return "forwarded";
    case MS_SURVEY_CONTEXT:
        return "context";
    case MS_SURVEY_APPLICATION:
        return "application";
    default:
        return ms_kind_name((enum ms_kind)line);
    }
}

/* The state when live bytes were highest in each bucket, so that the lines of kinds add up to the
 * live line. A line that is 0 everywhere is left out. */
static void add_lines(struct ms_json *json, const struct ms_survey_device *device)
{
    ms_json_open(json, "lines", '{');
    for (int line = 0; line < MS_SURVEY_LINES; line++) {
        uint64_t most = 0;

        for (size_t i = 0; i < MS_SURVEY_BUCKETS; i++) {
            most |= device->buckets[i].highest_bytes[line];
        }
        if (most == 0) {
            continue;
        }
        ms_json_open(json, line_name(line), '[');
        for (size_t i = 0; i < MS_SURVEY_BUCKETS; i++) {
            ms_json_count(json, NULL, device->buckets[i].highest_bytes[line]);
        }
        ms_json_close(json, ']');
    }
    ms_json_close(json, '}');
    ms_json_open(json, "host_bytes", '[');
    for (size_t i = 0; i < MS_SURVEY_BUCKETS; i++) {
        ms_json_count(json, NULL, device->buckets[i].host_bytes);
    }
    ms_json_close(json, ']');
    ms_json_open(json, "waiting_bytes", '['); /* empty: nothing was ever pending */
    for (size_t i = 0; device->most_waiting_bytes > 0 && i < MS_SURVEY_BUCKETS; i++) {
        ms_json_count(json, NULL, device->buckets[i].most_waiting_bytes);
    }
    ms_json_close(json, ']');
}

/* ---- moments ---- */

static const char *moment_name(enum ms_moment_kind kind)
{
    switch (kind) {
    case MS_MOMENT_PEAK:
        return "peak";
    case MS_MOMENT_OOM:
        return "oom";
    case MS_MOMENT_END:
        return "end";
    default:
        return "high";
    }
}

static void add_moment(struct ms_json *json, const struct ms_survey_device *device,
                       const struct ms_survey_moment *moment, struct site_names *names, size_t most)
{
    const size_t listed = moment->count < most ? moment->count : most;
    uint64_t rest = moment->other_bytes;

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "what", moment_name(moment->kind));
    ms_json_count(json, "time_ns", moment->time_ns);
    ms_json_count(json, "live_bytes", moment->live_bytes);
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < listed; i++) {
        add_site(json, NULL, names, ms_survey_holding_at(device, moment->first + i)->site);
    }
    ms_json_close(json, ']');
    ms_json_open(json, "kinds", '[');
    for (size_t i = 0; i < listed; i++) {
        const uint8_t kind = ms_survey_holding_at(device, moment->first + i)->kind;

        ms_json_text(json, NULL, ms_kind_name((enum ms_kind)kind));
    }
    ms_json_close(json, ']');
    ms_json_open(json, "bytes", '[');
    for (size_t i = 0; i < listed; i++) {
        ms_json_count(json, NULL, ms_survey_holding_at(device, moment->first + i)->bytes);
    }
    ms_json_close(json, ']');
    for (size_t i = listed; i < moment->count; i++) {
        rest += ms_survey_holding_at(device, moment->first + i)->bytes;
    }
    ms_json_count(json, "other_bytes", rest);
    ms_json_close(json, '}');
}

/* ---- addresses ---- */

static void add_address(struct ms_json *json, const char *key, uint64_t address)
{
    char text[32];

    snprintf(text, sizeof(text), "0x%llx", (unsigned long long)address);
    ms_json_text(json, key, text);
}

static unsigned share_of(const struct ms_map_cell *cell)
{
    return (unsigned)(cell->live_share * SHARES + UINT8_MAX - 1) / UINT8_MAX;
}

static bool are_alike(const struct ms_map_cell *a, const struct ms_map_cell *b)
{
    return a->state == b->state && a->site == b->site && share_of(a) == share_of(b);
}

/* A row of cells as repeated groups: state, live eighths, site and number of columns. */
static void add_row(struct ms_json *json, const struct ms_map_cell *row, struct site_names *names)
{
    ms_json_open(json, NULL, '[');
    for (size_t i = 0, end = 0; i < MS_MAP_COLUMNS; i = end) {
        for (end = i + 1; end < MS_MAP_COLUMNS && are_alike(&row[i], &row[end]); end++) {
        }
        ms_json_count(json, NULL, row[i].state);
        ms_json_count(json, NULL, share_of(&row[i]));
        add_site(json, NULL, names, row[i].site);
        ms_json_count(json, NULL, end - i);
    }
    ms_json_close(json, ']');
}

static void add_map(struct ms_json *json, const struct ms_survey_device *device,
                    struct site_names *names, size_t most)
{
    ms_json_open(json, "segments", '[');
    for (size_t i = 0; i < device->segment_count && i < most; i++) {
        const struct ms_map_segment *segment = &device->segments[i];

        ms_json_open(json, NULL, '{');
        add_address(json, "address", segment->addr);
        ms_json_count(json, "bytes", segment->bytes);
        ms_json_count(json, "begin_ns", segment->begin_ns);
        ms_json_count(json, "end_ns", segment->end_ns);
        ms_json_flag(json, "framework", segment->framework);
        ms_json_open(json, "rows", '[');
        for (size_t row = 0; row < MS_MAP_ROWS; row++) {
            add_row(json, segment->cells[row], names);
        }
        ms_json_close(json, ']');
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_arena(struct ms_json *json, const struct ms_pinned_arena *arena,
                      struct site_names *names)
{
    ms_json_open(json, NULL, '{');
    add_address(json, "address", arena->addr);
    ms_json_count(json, "bytes", arena->bytes);
    ms_json_count(json, "live_bytes", arena->live_bytes);
    ms_json_count(json, "backed_hole_bytes", arena->backed_hole_bytes);
    ms_json_count(json, "taken_hole_bytes", arena->taken_hole_bytes);
    ms_json_count(json, "largest_hole_bytes", arena->largest_hole_bytes);
    ms_json_count(json, "tensors", arena->tensors);
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < arena->site_count; i++) {
        add_site(json, NULL, names, arena->sites[i]);
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

static void add_pins(struct ms_json *json, const struct ms_survey_pins *pins,
                     struct site_names *names)
{
    if (!pins) {
        ms_json_null(json, "pins");
        return;
    }
    ms_json_open(json, "pins", '{');
    ms_json_count(json, "time_ns", pins->time_ns);
    ms_json_count(json, "backed_hole_bytes", pins->backed_hole_bytes);
    ms_json_open(json, "arenas", '[');
    for (size_t i = 0; i < pins->arena_count; i++) {
        add_arena(json, &pins->arenas[i], names);
    }
    ms_json_close(json, ']');
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < pins->site_count; i++) {
        ms_json_open(json, NULL, '{');
        add_site(json, "site", names, pins->sites[i].site);
        ms_json_count(json, "tensors", pins->sites[i].tensors);
        ms_json_count(json, "live_bytes", pins->sites[i].live_bytes);
        ms_json_count(json, "pinned_bytes", pins->sites[i].pinned_bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

/* ---- the whole ---- */

static void add_device(struct ms_json *json, const struct ms_model *model, int index,
                       struct site_names *names, size_t scale)
{
    const struct ms_survey_device *device = &model->survey->devices[index];
    const size_t holdings = MS_SURVEY_HOLDINGS / scale;

    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "device", index);
    ms_json_count(json, "bucket_ns", model->survey->bucket_ns);
    add_lines(json, device);
    ms_json_open(json, "moments", '[');
    for (size_t i = 0; i < ms_survey_moment_count(device); i++) {
        add_moment(json, device, ms_survey_moment_at(device, i), names,
                   holdings > FEWEST_HOLDINGS ? holdings : FEWEST_HOLDINGS);
    }
    ms_json_close(json, ']');
    add_map(json, device, names, MS_MAP_SEGMENTS / scale);
    add_pins(json, device->pins, names);
    name_listed(names, model, index);
    ms_json_close(json, '}');
}

void ms_json_add_surveys(struct ms_json *json, const struct ms_model *model,
                         struct ms_frame_table *frames, size_t scale)
{
    struct site_names names[MS_DEVICE_COUNT] = {0};

    ms_json_open(json, "surveys", '[');
    for (int i = 0; model->survey && scale <= COARSEST && i < MS_DEVICE_COUNT; i++) {
        if (model->survey->devices[i].used) {
            add_device(json, model, i, &names[i], scale);
        }
    }
    ms_json_close(json, ']');
    ms_json_open(json, "more_sites", '[');
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        add_names(json, model, i, &names[i], frames);
        ms_buffer_free(&names[i].sites);
    }
    ms_json_close(json, ']');
}
