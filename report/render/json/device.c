/* SPDX-License-Identifier: Apache-2.0 */
/* report.json's row of a device. */
#include <stdio.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/moved_lines.h"
#include "report/model/verdict/held_lines.h"
#include "report/model/verdict/what_if.h"
#include "report/render/json/parts.h"

#define LISTED_MOVED_SITES  20
#define LISTED_PINNED_SITES 20

static void add_peak(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_moment peak = ms_aggregate_peak_live(&model->devices[index].sums);
    struct ms_ledger_row rows[MS_LEDGER_ROWS];

    ms_json_open(json, "peak", '{');
    ms_json_count(json, "time_ns", peak.time_ns);
    ms_json_count(json, "live_bytes", peak.live_bytes);
    ms_json_count(json, "reserved_bytes", peak.reserved_bytes);
    ms_json_count(json, "charged_bytes", peak.charged_bytes);
    ms_json_add_ledger(json, rows, ms_ledger_at_peak(model, index, rows));
    ms_json_close(json, '}');
}

static void add_tensors(struct ms_json *json, const struct ms_aggregate *sums)
{
    if (sums->tensor_allocations == 0) {
        ms_json_null(json, "tensors");
        return;
    }
    ms_json_open(json, "tensors", '{');
    ms_json_count(json, "births", sums->tensor_allocations);
    ms_json_count(json, "deaths", sums->tensor_frees);
    ms_json_count(json, "peak_live_bytes", sums->peak_tensor_bytes);
    ms_json_close(json, '}');
}

/* The most that PyTorch held reserved (ms_what_if_torch_bytes); null: unknown. */
static void add_torch(struct ms_json *json, const struct ms_model *model, int index)
{
    const uint64_t bytes = ms_what_if_torch_bytes(model, index);

    if (bytes > 0) {
        ms_json_count(json, "torch_reserved_bytes", bytes);
    } else {
        ms_json_null(json, "torch_reserved_bytes");
    }
    ms_overhead_json(json, model, index);
}

static void add_most(struct ms_json *json, const char *key, uint64_t bytes)
{
    if (bytes > 0) {
        ms_json_count(json, key, bytes);
    } else {
        ms_json_null(json, key);
    }
}

/* For loading, and for training. */
static void add_parts(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_survey_device *device = model->survey ? &model->survey->devices[index] : NULL;

    add_most(json, "peak_before_steps_bytes", device ? device->most_before_steps_bytes : 0);
    add_most(json, "peak_in_steps_bytes", device ? device->most_in_steps_bytes : 0);
}

/* The sites with pinned host memory, those with most at once first. */
static void add_pinned(struct ms_json *json, const struct ms_model *model, int index)
{
    struct ms_buffer lines = {0};

    ms_pinned_lines(model, index, &lines);
    ms_json_open(json, "host_pinned", '[');
    for (size_t i = 0; i < ms_pinned_line_count(&lines) && i < LISTED_PINNED_SITES; i++) {
        const struct ms_pinned_line *line = (const struct ms_pinned_line *)lines.at + i;

        ms_json_open(json, NULL, '{');
        ms_json_add_site_line(json, "line", model, line->site);
        ms_json_count(json, "bytes", line->bytes);
        ms_json_count(json, "peak_bytes", line->peak_bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_buffer_free(&lines);
}

/* The lines of code of moved memory, those with most first. */
static void add_moved_lines(struct ms_json *json, const struct ms_model *model, int device)
{
    struct ms_buffer lines = {0};

    ms_moved_lines(model, device, &lines);
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < ms_moved_line_count(&lines) && i < LISTED_MOVED_SITES; i++) {
        const struct ms_moved_line *line = (const struct ms_moved_line *)lines.at + i;

        ms_json_open(json, NULL, '{');
        ms_json_text(json, "line", line->text.at);
        ms_json_count(json, "spilled_bytes", line->spilled_bytes);
        ms_json_count(json, "spilled_blocks", line->spilled_blocks);
        ms_json_count(json, "promoted_bytes", line->promoted_bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
    ms_moved_lines_free(&lines);
}

/* The cap that would have been enough; null: more than the device has. */
static void add_enough(struct ms_json *json, const struct ms_aggregate *sums)
{
    const uint64_t cap_bytes = ms_cap_without_spill(sums);
    const uint64_t total_bytes = sums->now.total_bytes;
    char number[MS_UNIT_TEXT_BYTES];

    ms_json_count(json, "estimated_cap_without_bytes", cap_bytes);
    if (cap_bytes > total_bytes) {
        ms_json_null(json, "estimated_fraction_without");
    } else {
        ms_json_number(
            json, "estimated_fraction_without",
            ms_decimal_text(ms_fraction_without_spill(sums, 1000000), number, sizeof(number)));
    }
}

static void add_spill(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_aggregate *sums = &model->devices[index].sums;

    ms_json_open(json, "spill", '{');
    ms_json_count(json, "spills", sums->kind_events[MS_EVENT_SPILL]);
    ms_json_count(json, "spilled_bytes", sums->spilled_bytes);
    ms_json_count(json, "promotes", sums->kind_events[MS_EVENT_PROMOTE]);
    ms_json_count(json, "promoted_bytes", sums->promoted_bytes);
    ms_json_count(json, "held_ns", sums->held_ns);
    ms_json_count(json, "lost", sums->kind_events[MS_EVENT_LOST]);
    ms_json_count(json, "host_uses", sums->host_uses);
    if (sums->kind_events[MS_EVENT_USE] > 0) {
        ms_json_count(json, "estimated_bus_bytes", sums->host_use_bytes);
    } else {
        ms_json_null(json, "estimated_bus_bytes");
    }
    ms_json_count(json, "peak_host_bytes", sums->peak_host_chunk_bytes);
    add_enough(json, sums);
    add_moved_lines(json, model, index);
    ms_json_close(json, '}');
}

void ms_json_add_device(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_model_device *device = &model->devices[index];
    static const char *const calls[MS_CALL_COUNT] = {"create", "map", "set_access", "unmap",
                                                     "release"};
    const struct ms_aggregate *sums = &device->sums;
    const int64_t fragmentation = ms_aggregate_fragmentation_ppm(sums);
    char number[MS_UNIT_TEXT_BYTES], uuid[MS_UUID_TEXT_BYTES];

    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "index", index);
    ms_json_text(json, "uuid", device->has_uuid ? ms_uuid_text(device->uuid, uuid) : NULL);
    ms_json_add_optional(json, "name", device->name);
    ms_json_count(json, "total_bytes", sums->now.total_bytes);
    ms_json_count(json, "cap_bytes", sums->now.cap_bytes);
    ms_json_count(json, "peak_live_bytes", ms_aggregate_peak_live(sums).live_bytes);
    ms_json_count(json, "peak_reserved_bytes", sums->peak_reserved.reserved_bytes);
    ms_json_count(json, "peak_charged_bytes", sums->peak_charged.charged_bytes);
    if (fragmentation < 0) {
        ms_json_null(json, "fragmentation_at_peak");
    } else {
        ms_json_number(json, "fragmentation_at_peak",
                       ms_decimal_text(fragmentation, number, sizeof(number)));
    }
    ms_json_count(json, "allocations", sums->allocations);
    ms_json_count(json, "frees", sums->frees);
    ms_json_count(json, "failed_allocations", sums->failed_allocations);
    ms_json_open(json, "driver_calls", '{');
    for (int call = 0; call < MS_CALL_COUNT; call++) {
        ms_json_count(json, calls[call], sums->driver_calls[call]);
    }
    ms_json_close(json, '}');
    add_tensors(json, sums);
    add_peak(json, model, index);
    add_torch(json, model, index);
    add_parts(json, model, index);
    ms_json_count(json, "peak_host_pinned_bytes", sums->peak_host_pinned_bytes);
    add_pinned(json, model, index);
    ms_json_count(json, "peak_host_chunk_bytes", sums->peak_host_chunk_bytes);
    add_spill(json, model, index);
    ms_json_add_survey(json, model, index);
    ms_json_close(json, '}');
}
