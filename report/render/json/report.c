/* SPDX-License-Identifier: Apache-2.0 */
/* report.json as a whole. Its larger parts are in parts.h. */
#include "report/render/json/report.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/render/json/parts.h"
#include "report/render/text/answer.h"
#include "report/symbols/symbols.h"

#define SCHEMA "memshim-report/1"

#define MOST_SITES         1000
#define MOST_SITES_OF_MANY 30 /* in a run's report, which has the sites of all its processes */

void ms_json_add_optional(struct ms_json *json, const char *key, const char *text)
{
    ms_json_text(json, key, text[0] ? text : NULL);
}

static void add_versions(struct ms_json *json, const struct ms_file_header *header)
{
    ms_json_open(json, "versions", '{');
    ms_json_text(json, "memshim", header->memshim_version);
    ms_json_add_optional(json, "driver", header->versions[MS_VERSION_DRIVER]);
    ms_json_add_optional(json, "cuda", header->versions[MS_VERSION_CUDA]);
    ms_json_add_optional(json, "torch", header->versions[MS_VERSION_TORCH]);
    ms_json_close(json, '}');
}

/* The options are NAME=value lines. */
static void add_options(struct ms_json *json, const char *options)
{
    char name[MS_NAME_BYTES];

    ms_json_open(json, "options", '{');
    while (*options) {
        const size_t line = strcspn(options, "\n");
        const char *equals = memchr(options, '=', line);

        if (equals) {
            snprintf(name, sizeof(name), "%.*s", (int)(equals - options), options);
            ms_json_part(json, name, equals + 1, (size_t)(options + line - equals - 1));
        }
        options += line + (options[line] == '\n');
    }
    ms_json_close(json, '}');
}

void ms_json_add_process(struct ms_json *json, const struct ms_file_header *header)
{
    ms_json_text(json, "run_id", header->run_id);
    ms_json_integer(json, "pid", header->pid);
    ms_json_integer_unless(json, "rank", header->rank, -1);
    ms_json_integer_unless(json, "local_rank", header->local_rank, -1);
    ms_json_integer_unless(json, "world_size", header->world_size, 0);
    ms_json_text(json, "host", header->host);
    ms_json_text(json, "program", header->program);
    ms_json_text(json, "command", header->command);
}

static void add_process(struct ms_json *json, const struct ms_model *model)
{
    const struct ms_file_header *header = &model->header;
    char date[MS_UNIT_TEXT_BYTES];

    ms_json_open(json, "process", '{');
    ms_json_add_process(json, header);
    ms_json_text(json, "start_time", ms_date_text(header->start_unix_ns, date, sizeof(date)));
    ms_json_integer(json, "clock_ahead_ns", header->clock_ahead_ns);
    ms_json_text(json, "state", ms_end_name(model->end));
    if (ms_model_exit_known(model)) {
        ms_json_integer(json, "exit", header->exit_status);
    } else {
        ms_json_null(json, "exit");
    }
    ms_json_count(json, "duration_ns", model->duration_ns);
    ms_json_add_optional(json, "torch_mode", header->torch_mode);
    ms_json_close(json, '}');
}

void ms_json_add_ledger(struct ms_json *json, const struct ms_ledger_row *rows, size_t count)
{
    ms_json_open(json, "ledger", '[');
    for (size_t i = 0; i < count; i++) {
        ms_json_open(json, NULL, '{');
        ms_json_text(json, "name", rows[i].name);
        if (rows[i].negative) {
            ms_json_integer(json, "bytes", -(int64_t)(rows[i].bytes & INT64_MAX));
        } else {
            ms_json_count(json, "bytes", rows[i].bytes);
        }
        ms_json_flag(json, "exact", !rows[i].estimated);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_thresholds(struct ms_json *json, const struct ms_model *model, size_t most)
{
    const struct ms_model_threshold *all = (const struct ms_model_threshold *)model->thresholds.at;
    const size_t count = model->thresholds.bytes / sizeof(*all);

    ms_json_open(json, "thresholds", '[');
    for (size_t i = count > most ? count - most : 0; i < count; i++) {
        ms_json_open(json, NULL, '{');
        ms_json_count(json, "time_ns", all[i].time_ns);
        ms_json_count(json, "device", all[i].device);
        ms_json_text(json, "state", ms_threshold_name(all[i].state));
        ms_json_count(json, "charged_bytes", all[i].charged_bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_lines(struct ms_json *json, const char *key, const struct ms_buffer *lines,
                      uint64_t count)
{
    const char *at = lines->at;

    ms_json_open(json, key, '[');
    for (uint64_t i = 0; i < count; i++) {
        ms_json_text(json, NULL, at);
        at += strlen(at) + 1;
    }
    ms_json_close(json, ']');
}

static void add_trace(struct ms_json *json, const struct ms_model *model)
{
    ms_json_open(json, "trace", '{');
    ms_json_count(json, "events", model->events);
    ms_json_count(json, "events_in_detail", model->read_events);
    ms_json_count(json, "detail_since_ns", model->first_detail_ns);
    ms_json_count(json, "recycled_events", model->recycled_events);
    ms_json_flag(json, "sites_exact", !model->beginning_lost && model->lost_events == 0);
    ms_json_count(json, "lost_events", model->lost_events);
    ms_json_count(json, "lost_definitions", model->lost_definitions);
    ms_json_flag(json, "sums_exact", model->sums_exact && !model->one_event_torn);
    ms_json_flag(json, "native_names", ms_symbols_can_read());
    add_lines(json, "warnings", &model->warnings, model->warning_count);
    ms_json_close(json, '}');
}

void ms_format_json_limited(const struct ms_model *model, struct ms_json *json, const char *key,
                            const char *folder, const struct ms_json_limits *limits)
{
    ms_json_open(json, key, '{');
    ms_json_text(json, "schema", SCHEMA);
    if (folder) {
        ms_json_text(json, "folder", folder);
    }
    add_versions(json, &model->header);
    add_options(json, model->header.options);
    add_process(json, model);
    ms_answer_json(json, model);
    ms_json_open(json, "devices", '[');
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (model->devices[i].used) {
            ms_json_add_device(json, model, i);
        }
    }
    ms_json_close(json, ']');
    ms_json_add_ooms(json, model, limits->ooms);
    ms_what_if_json(json, model);
    add_thresholds(json, model, limits->thresholds);
    ms_json_add_sites(json, model, limits);
    add_lines(json, "notes", &model->notes, model->note_count);
    add_trace(json, model);
    ms_json_close(json, '}');
}

void ms_format_json_member(const struct ms_model *model, struct ms_json *json, const char *folder)
{
    const struct ms_json_limits limits = {
        .sites = folder ? MOST_SITES_OF_MANY : MOST_SITES,
        .ooms = SIZE_MAX,
        .thresholds = SIZE_MAX,
        .tags = SIZE_MAX,
    };

    ms_format_json_limited(model, json, NULL, folder, &limits);
}

void ms_format_json(const struct ms_model *model, struct ms_buffer *out)
{
    struct ms_json json = {.out = out};

    ms_format_json_member(model, &json, NULL);
    ms_buffer_add(out, "\n");
}
