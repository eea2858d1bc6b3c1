/* SPDX-License-Identifier: Apache-2.0 */
/* report.json: the memory that would have been enough. */
#include "report/model/verdict/what_if.h"
#include "allocator/base/units.h"
#include "report/render/json/parts.h"

static void add_fraction(struct ms_json *json, const char *key, uint64_t cap_bytes,
                         uint64_t device_bytes)
{
    char number[MS_UNIT_TEXT_BYTES];

    if (cap_bytes == 0 || cap_bytes > device_bytes) {
        ms_json_null(json, key);
    } else {
        ms_json_number(
            json, key,
            ms_decimal_text(ms_what_if_fraction(cap_bytes, device_bytes), number, sizeof(number)));
    }
}

static void add_cap(struct ms_json *json, const char *key, const struct ms_what_if_cap *cap,
                    uint64_t device_bytes)
{
    if (cap->cap_bytes == 0) {
        ms_json_null(json, key);
        return;
    }
    ms_json_open(json, key, '{');
    ms_json_count(json, "cap_bytes", cap->cap_bytes);
    add_fraction(json, "fraction", cap->cap_bytes, device_bytes);
    ms_json_count(json, "too_small_bytes", cap->too_small_bytes);
    ms_json_count(json, "peak_host_bytes", cap->host_bytes);
    ms_json_close(json, '}');
}

void ms_what_if_json(struct ms_json *json, const struct ms_model *model)
{
    const struct ms_what_if *found = &model->what_if;

    if (!found->tried && !found->why) {
        ms_json_null(json, "what_if");
        return;
    }
    ms_json_open(json, "what_if", '{');
    ms_json_text(json, "why", found->why);
    ms_json_count(json, "oom", found->oom);
    ms_json_count(json, "request_bytes", found->request_bytes);
    add_cap(json, "without_spill", &found->plain, found->device_bytes);
    add_cap(json, "with_spill", &found->spilled, found->device_bytes);
    if (found->tried) {
        ms_json_flag(json, "own_cap_with_spill", found->own_cap_spilled);
    } else {
        ms_json_null(json, "own_cap_with_spill");
    }
    ms_json_count(json, "own_cap_host_bytes", found->own_cap_host_bytes);
    ms_json_count(json, "replays", found->replays);
    ms_json_close(json, '}');
}

/* As a decimal: 1 is the same. */
static void add_ratio(struct ms_json *json, const char *key, uint64_t bytes, uint64_t of_bytes)
{
    char number[MS_UNIT_TEXT_BYTES];

    if (bytes == 0 || of_bytes == 0) {
        ms_json_null(json, key);
    } else {
        ms_json_number(json, key,
                       ms_decimal_text((int64_t)((double)bytes / (double)of_bytes * 1e6 + 0.5),
                                       number, sizeof(number)));
    }
}

void ms_overhead_json(struct ms_json *json, const struct ms_model *model, int device)
{
    const struct ms_overhead *found = &model->what_if.overhead;
    const bool known = found->min_cap_bytes > 0 && found->device == device;

    if (!known && !(found->why && found->device == device)) {
        ms_json_null(json, "overhead");
        return;
    }
    ms_json_open(json, "overhead", '{');
    ms_json_text(json, "why", found->why);
    ms_json_count(json, "min_cap_bytes", found->min_cap_bytes);
    add_ratio(json, "ratio", found->min_cap_bytes, found->peak_live_bytes);
    add_ratio(json, "torch_ratio", ms_what_if_alone_bytes(model, device),
              ms_aggregate_peak_live(&model->devices[device].sums).live_bytes);
    if (found->part_events > 0) {
        ms_json_count(json, "part_events", found->part_events);
    } else {
        ms_json_null(json, "part_events");
    }
    ms_json_count(json, "replays", found->replays);
    ms_json_close(json, '}');
}
