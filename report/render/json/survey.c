/* SPDX-License-Identifier: Apache-2.0 */
/* report.json: results of the survey. */
#include "allocator/base/units.h"
#include "report/render/json/parts.h"

#define LISTED_TEMPORARIES 20
#define MILLIONTHS         1e6

/* Limits a value to what millionths can hold in 64 bits: more bytes than any device has. */
static void add_real(struct ms_json *json, const char *key, double value)
{
    const double most = 9e12;
    const double held = value > most ? most : value < -most ? -most : value;
    char number[MS_UNIT_TEXT_BYTES];

    ms_json_number(json, key,
                   ms_decimal_text((int64_t)(held * MILLIONTHS), number, sizeof(number)));
}

static void add_count_or_null(struct ms_json *json, const char *key, uint64_t value, bool known)
{
    if (known) {
        ms_json_count(json, key, value);
    } else {
        ms_json_null(json, key);
    }
}

static void add_real_or_null(struct ms_json *json, const char *key, double value, bool known)
{
    if (known) {
        add_real(json, key, value);
    } else {
        ms_json_null(json, key);
    }
}

/* ---- growth ---- */

static void add_slope(struct ms_json *json, const struct ms_growth *growth)
{
    ms_json_open(json, "slope", '{');
    ms_json_text(json, "by", growth->clock.by_time ? "time" : "step");
    ms_json_text(json, "why", growth->known ? NULL : growth->why);
    ms_json_count(json, "samples", growth->clock.count);
    if (growth->known && !growth->clock.by_time) {
        add_real(json, "bytes_per_step", growth->whole.bytes_per_step);
        add_real(json, "error_bytes_per_step", growth->whole.error);
    } else {
        ms_json_null(json, "bytes_per_step");
        ms_json_null(json, "error_bytes_per_step");
    }
    if (growth->known) {
        add_real(json, "bytes_per_hour", growth->whole_bytes_per_hour);
    } else {
        ms_json_null(json, "bytes_per_hour");
    }
    add_count_or_null(json, "cap_at_step", growth->cap_at_step, growth->cap_at_step > 0);
    ms_json_close(json, '}');
}

static const char *degree_name(const struct ms_growing_site *row)
{
    return row->degree == MS_GROWTH_SEEN ? "seen" : "likely";
}

static void add_growing(struct ms_json *json, const struct ms_model *model,
                        const struct ms_growth *growth)
{
    ms_json_open(json, "growth", '[');
    for (size_t i = 0; i < growth->count; i++) {
        const struct ms_growing_site *row = &growth->sites[i];

        const bool steps = row->round == MS_ROUND_STEP;

        ms_json_open(json, NULL, '{');
        ms_json_count(json, "site", row->site);
        ms_json_add_site_line(json, "line", model, row->site);
        ms_json_text(json, "kind", ms_kind_name((enum ms_kind)row->kind));
        ms_json_text(json, "degree", degree_name(row));
        add_real_or_null(json, "bytes_per_step", row->bytes_per_round, steps);
        add_real_or_null(json, "error_bytes_per_step", row->error, steps && row->rounds == 0);
        add_real(json, "bytes_per_hour", row->bytes_per_hour);
        add_count_or_null(json, "since_step", row->since_step, row->since_step > 0);
        ms_json_count(json, "since_ns", row->since_ns);
        ms_json_count(json, "grown_bytes", row->grown_bytes);
        add_count_or_null(json, "cap_at_step", row->cap_at_step, row->cap_at_step > 0);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_frame(struct ms_json *json, const char *key, const struct ms_frame *frame)
{
    ms_json_open(json, key, '{');
    ms_json_text(json, "function", frame->function);
    ms_json_text(json, "file", frame->file);
    add_count_or_null(json, "line", frame->line, frame->line > 0);
    ms_json_close(json, '}');
}

static void add_leak(struct ms_json *json, const struct ms_model *model, const struct ms_leak *leak)
{
    static const char *const rounds[] = {"step", "backward_pass", "call", "time"};
    const struct ms_growing_site *all = &leak->all;
    const bool paced = all->round != MS_ROUND_TIME;

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "degree", degree_name(all));
    ms_json_flag(json, "negligible", leak->negligible);
    if (leak->has_culprit) {
        add_frame(json, "common_frame", &leak->culprit);
    } else {
        ms_json_null(json, "common_frame");
    }
    ms_json_open(json, "callers", '[');
    for (size_t i = 0; i < leak->caller_count; i++) {
        add_frame(json, NULL, &leak->callers[i]);
    }
    ms_json_close(json, ']');
    ms_json_text(json, "by", rounds[all->round]);
    add_real_or_null(json, "bytes_per_round", all->bytes_per_round, paced);
    add_real(json, "bytes_per_hour", all->bytes_per_hour);
    add_count_or_null(json, "rounds", all->rounds, all->rounds > 0);
    add_count_or_null(json, "since_step", all->since_step, all->since_step > 0);
    ms_json_count(json, "since_ns", all->since_ns);
    ms_json_count(json, "grown_bytes", all->grown_bytes);
    add_count_or_null(json, "cap_at_step", all->cap_at_step, all->cap_at_step > 0);
    ms_json_count(json, "sites", leak->sites);
    ms_json_open(json, "largest", '{');
    ms_json_count(json, "site", all->site);
    ms_json_add_site_line(json, "line", model, all->site);
    ms_json_count(json, "grown_bytes", leak->largest_bytes);
    add_real_or_null(json, "bytes_per_round", leak->largest_bytes_per_round, paced);
    ms_json_close(json, '}');
    ms_json_close(json, '}');
}

static void add_leaks(struct ms_json *json, const struct ms_model *model,
                      const struct ms_growth *growth)
{
    ms_json_open(json, "leaks", '[');
    for (size_t i = 0; i < growth->leak_count; i++) {
        add_leak(json, model, &growth->leaks[i]);
    }
    ms_json_close(json, ']');
}

/* ---- headroom ---- */

static void add_factors(struct ms_json *json, const struct ms_headroom *headroom)
{
    ms_json_open(json, "factors", '[');
    for (size_t i = 0; i < MS_HEADROOM_FACTORS; i++) {
        const uint64_t ppm = ms_headroom_factor_ppm(i);
        const uint64_t charged = headroom->peak_bytes[i] + headroom->beside_bytes;

        ms_json_open(json, NULL, '{');
        add_real(json, "factor", (double)ppm / MILLIONTHS);
        add_count_or_null(json, "batch", headroom->batch * ppm / (uint64_t)MILLIONTHS,
                          headroom->batch > 0);
        ms_json_count(json, "estimated_peak_live_bytes", headroom->peak_bytes[i]);
        ms_json_count(json, "estimated_peak_charged_bytes", charged);
        ms_json_flag(json, "fits", charged <= headroom->cap_bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_headroom(struct ms_json *json, const struct ms_headroom *headroom)
{
    ms_json_open(json, "headroom", '{');
    ms_json_text(json, "why", headroom->known ? NULL : headroom->why);
    add_count_or_null(json, "batch", headroom->batch, headroom->batch > 0);
    ms_json_count(json, "estimated_persistent_bytes", headroom->persistent_bytes);
    ms_json_count(json, "estimated_per_step_bytes", headroom->per_step_bytes);
    ms_json_count(json, "beside_bytes", headroom->beside_bytes);
    if (headroom->known) {
        add_factors(json, headroom);
        add_real(json, "estimated_largest_factor", headroom->largest_factor);
    } else {
        ms_json_open(json, "factors", '[');
        ms_json_close(json, ']');
        ms_json_null(json, "estimated_largest_factor");
    }
    ms_json_flag(json, "unbounded", headroom->known && headroom->unbounded);
    add_count_or_null(json, "estimated_largest_batch", headroom->largest_batch,
                      headroom->known && headroom->batch > 0);
    ms_json_close(json, '}');
}

/* ---- sizes and temporaries ---- */

static void add_histogram(struct ms_json *json, const struct ms_survey_device *device)
{
    ms_json_open(json, "histogram", '[');
    for (size_t i = 0; i < MS_SURVEY_SIZES; i++) {
        const struct ms_size_class *size = &device->sizes[i];

        if (size->count > 0) {
            ms_json_open(json, NULL, '{');
            ms_json_count(json, "from_bytes", UINT64_C(1) << i);
            ms_json_count(json, "count", size->count);
            ms_json_count(json, "bytes", size->bytes);
            ms_json_close(json, '}');
        }
    }
    ms_json_close(json, ']');
}

static void add_temporary(struct ms_json *json, const struct ms_model *model,
                          const struct ms_survey_device *device)
{
    ms_json_open(json, "temporary", '{');
    ms_json_count(json, "allocations", device->temporary_allocations);
    ms_json_count(json, "bytes", device->temporary_bytes);
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < device->temporary_count && i < LISTED_TEMPORARIES; i++) {
        const struct ms_temporary *row = &device->temporaries[i];

        ms_json_open(json, NULL, '{');
        ms_json_count(json, "site", row->site);
        ms_json_add_site_line(json, "line", model, row->site);
        ms_json_count(json, "allocations", row->count);
        ms_json_count(json, "bytes", row->bytes);
        ms_json_count(json, "mean_lifetime_ns", row->lifetime_ns / row->count);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

/* ---- caches that were emptied ---- */

static void add_emptied(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_survey_device *device = &model->survey->devices[index];
    const struct ms_emptied emptied = ms_survey_emptied(model, index);

    ms_json_open(json, "emptied_cache", '{');
    ms_json_count(json, "calls", emptied.calls);
    ms_json_count(json, "bytes", emptied.bytes);
    ms_json_count(json, "chunks_made_since", emptied.chunks_made);
    ms_json_count(json, "driver_calls_since", emptied.driver_calls);
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < device->emptying_count; i++) {
        const struct ms_emptying *row = &device->emptyings[i];

        ms_json_open(json, NULL, '{');
        ms_json_count(json, "site", row->site);
        ms_json_add_site_line(json, "line", model, row->site);
        ms_json_count(json, "calls", row->calls);
        ms_json_count(json, "pieces", row->pieces);
        ms_json_count(json, "bytes", row->bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

/* ---- waits ---- */

static void add_waits(struct ms_json *json, const struct ms_survey *survey,
                      const struct ms_survey_device *device)
{
    const bool any = device->most_waiting_bytes > 0;

    ms_json_open(json, "waits", '{');
    ms_json_count(json, "most_bytes", device->most_waiting_bytes);
    add_count_or_null(json, "most_ns", device->most_waiting_ns, any);
    ms_json_count(json, "bucket_ns", survey->bucket_ns);
    ms_json_open(json, "most_in_bucket_bytes", '[');
    for (size_t i = 0; any && i < MS_SURVEY_BUCKETS; i++) {
        ms_json_count(json, NULL, device->buckets[i].most_waiting_bytes);
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

void ms_json_add_survey(struct ms_json *json, const struct ms_model *model, int index)
{
    static const char *const members[] = {"slope",     "growth",    "leaks",         "headroom",
                                          "histogram", "temporary", "emptied_cache", "waits"};
    const struct ms_survey_device *device =
        model->survey && model->survey->devices[index].used ? &model->survey->devices[index] : NULL;

    if (!device) {
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            ms_json_null(json, members[i]);
        }
        return;
    }
    add_slope(json, &device->growth);
    add_growing(json, model, &device->growth);
    add_leaks(json, model, &device->growth);
    add_headroom(json, &device->headroom);
    add_histogram(json, device);
    add_temporary(json, model, device);
    add_emptied(json, model, index);
    add_waits(json, model->survey, device);
}

void ms_json_add_oom_kinds(struct ms_json *json, const struct ms_model *model, size_t index)
{
    const struct ms_survey_oom *oom =
        model->survey && model->survey->ooms.bytes > index * sizeof(*oom)
            ? ms_survey_oom_at(model->survey, index)
            : NULL;

    if (!oom || !oom->known || ms_model_hides_tensors(model)) {
        ms_json_null(json, "kinds");
        return;
    }
    ms_json_open(json, "kinds", '[');
    for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
        if (oom->kind_bytes[kind] > 0) {
            ms_json_open(json, NULL, '{');
            ms_json_text(json, "kind", ms_kind_name((enum ms_kind)kind));
            ms_json_count(json, "bytes", oom->kind_bytes[kind]);
            ms_json_close(json, '}');
        }
    }
    ms_json_close(json, ']');
}
