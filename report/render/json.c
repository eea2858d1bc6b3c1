/* SPDX-License-Identifier: Apache-2.0 */
/* report.json, but for its call sites and what the survey tells (json_sites.c, json_survey.c). */
#include "report/render/formats.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/verdict_report.h"
#include "report/model/what_if.h"
#include "report/render/answer.h"
#include "report/render/forms.h"
#include "report/render/json_survey.h"
#include "report/render/sites.h"
#include "report/render/what_if.h"
#include "report/trace/verdict_rule.h"

#define SCHEMA "memshim-report/1"

#define LISTED_MOVED_SITES  20
#define LISTED_PINNED_SITES 20
#define MOST_SITES          1000
#define MOST_SITES_OF_MANY  30 /* in a run's report, which holds those of all its processes */

const char *ms_threshold_name(uint64_t state)
{
    static const char *const names[] = {"normal", "warning", "critical", "emergency"};

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

const char *ms_end_name(enum ms_process_end end)
{
    switch (end) {
    case MS_PROCESS_RUNNING:
        return "running";
    case MS_PROCESS_ENDED:
        return "ended";
    default:
        return "killed";
    }
}

static void add_optional(struct ms_json *json, const char *key, const char *text)
{
    ms_json_text(json, key, text[0] ? text : NULL);
}

static void add_versions(struct ms_json *json, const struct ms_file_header *header)
{
    ms_json_open(json, "versions", '{');
    ms_json_text(json, "memshim", header->memshim_version);
    add_optional(json, "driver", header->versions[MS_VERSION_DRIVER]);
    add_optional(json, "cuda", header->versions[MS_VERSION_CUDA]);
    add_optional(json, "torch", header->versions[MS_VERSION_TORCH]);
    ms_json_close(json, '}');
}

/* The options come as NAME=value lines. */
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
    ms_json_text(json, "state", ms_end_name(model->end));
    if (model->end == MS_PROCESS_ENDED && header->exit_known) {
        ms_json_integer(json, "exit", header->exit_status);
    } else {
        ms_json_null(json, "exit");
    }
    ms_json_count(json, "duration_ns", model->duration_ns);
    add_optional(json, "torch_mode", header->torch_mode);
    ms_json_close(json, '}');
}

static void add_ledger(struct ms_json *json, const struct ms_ledger_row *rows, size_t count)
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

static void add_peak(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_moment peak = ms_aggregate_peak_live(&model->devices[index].sums);
    struct ms_ledger_row rows[MS_LEDGER_ROWS];

    ms_json_open(json, "peak", '{');
    ms_json_count(json, "time_ns", peak.time_ns);
    ms_json_count(json, "live_bytes", peak.live_bytes);
    ms_json_count(json, "reserved_bytes", peak.reserved_bytes);
    ms_json_count(json, "charged_bytes", peak.charged_bytes);
    add_ledger(json, rows, ms_ledger_at_peak(model, index, rows));
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

/* What PyTorch held reserved when it counted most; null where it reported no tensors. */
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

/* Of loading, and of training. */
static void add_parts(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_survey_device *device = model->survey ? &model->survey->devices[index] : NULL;

    add_most(json, "peak_before_steps_bytes", device ? device->most_before_steps_bytes : 0);
    add_most(json, "peak_in_steps_bytes", device ? device->most_in_steps_bytes : 0);
}

/* Who asked for pinned host memory, those with most of it at once first. */
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

static void add_uuid(struct ms_json *json, const struct ms_model_device *device)
{
    char text[64] = "GPU";
    size_t used = 3;

    if (!device->has_uuid) {
        ms_json_null(json, "uuid");
        return;
    }
    for (int i = 0; i < MS_UUID_BYTES; i++) {
        const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%02x", dash ? "-" : "",
                                 device->uuid[i]);
    }
    ms_json_text(json, "uuid", text);
}

/* The lines of code of what moved, those with most of it first. */
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

/* What would have been enough; null where that is more than the device has. */
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

static void add_device(struct ms_json *json, const struct ms_model *model, int index)
{
    const struct ms_model_device *device = &model->devices[index];
    static const char *const calls[MS_CALL_COUNT] = {"create", "map", "set_access", "unmap",
                                                     "release"};
    const struct ms_aggregate *sums = &device->sums;
    const int64_t fragmentation = ms_aggregate_fragmentation_ppm(sums);
    char number[MS_UNIT_TEXT_BYTES];

    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "index", index);
    add_uuid(json, device);
    add_optional(json, "name", device->name);
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

/* Who else had memory on the device; null where NVML did not tell. */
static void add_others(struct ms_json *json, const struct ms_others *others)
{
    if (!others->known) {
        ms_json_null(json, "other_processes");
        return;
    }
    ms_json_open(json, "other_processes", '[');
    for (size_t i = 0; i < MS_OTHERS_NAMED && others->named[i].bytes > 0; i++) {
        const struct ms_other_process *other = &others->named[i];

        ms_json_open(json, NULL, '{');
        ms_json_count(json, "pid", other->pid);
        ms_json_part(json, "name", other->name, strnlen(other->name, sizeof(other->name)));
        ms_json_count(json, "bytes", other->bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_limit(struct ms_json *json, const struct ms_oom_state *state)
{
    static const char *const names[MS_LIMITED_BY_COUNT] = {
        [MS_LIMITED_BY_CGROUP] = "cgroup",
        [MS_LIMITED_BY_MPS] = "mps",
        [MS_LIMITED_BY_TORCH_CONF] = "torch",
    };

    if (state->limited_by >= MS_LIMITED_BY_COUNT || !names[state->limited_by]) {
        ms_json_null(json, "driver_limit");
        return;
    }
    ms_json_open(json, "driver_limit", '{');
    ms_json_text(json, "by", names[state->limited_by]);
    ms_json_count(json, "bytes", state->limit_bytes);
    ms_json_count(json, "used_bytes", state->limit_used_bytes);
    ms_json_close(json, '}');
}

/* Null where the cap was the process's own. */
static void add_shared_cap(struct ms_json *json, const struct ms_shared_cap *shared)
{
    const struct ms_other_process *largest = &shared->largest;

    if (shared->bytes == 0) {
        ms_json_null(json, "shared_cap");
        return;
    }
    ms_json_open(json, "shared_cap", '{');
    ms_json_count(json, "bytes", shared->bytes);
    ms_json_count(json, "others", shared->others);
    ms_json_count(json, "others_bytes", shared->others_bytes);
    if (shared->others == 0) {
        ms_json_null(json, "largest");
    } else {
        ms_json_open(json, "largest", '{');
        ms_json_integer(json, "rank", shared->largest_rank);
        ms_json_count(json, "pid", largest->pid);
        ms_json_part(json, "name", largest->name, strnlen(largest->name, sizeof(largest->name)));
        ms_json_count(json, "bytes", largest->bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, '}');
}

/* What the rule decided by, so that anybody can decide it again. */
static void add_terms(struct ms_json *json, const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);

    ms_json_open(json, "rule", '{');
    ms_json_text(json, "verdict", ms_verdict_name(ms_verdict_rule(&terms)));
    ms_json_count(json, "fixed_bytes", terms.fixed_bytes);
    ms_json_count(json, "live_bytes", terms.live_bytes);
    ms_json_count(json, "waiting_bytes", terms.pending_bytes);
    ms_json_count(json, "request_bytes", terms.request_bytes);
    ms_json_count(json, "hole_bytes", terms.hole_bytes);
    ms_json_count(json, "spillable_bytes", terms.spillable_bytes);
    ms_json_count(json, "spillable_without_limit_bytes", terms.movable_bytes);
    ms_json_count(json, "need_bytes", ms_verdict_need_bytes(&terms));
    ms_json_count(json, "piece_bytes", terms.piece_bytes);
    ms_json_count(json, "free_bytes", terms.free_bytes);
    ms_json_count(json, "device_bytes", terms.device_bytes);
    ms_json_count(json, "others_leave_bytes", terms.others_leave_bytes);
    ms_json_count(json, "cap_bytes", terms.cap_bytes);
    if (terms.driver_bytes == UINT64_MAX) {
        ms_json_null(json, "driver_leaves_bytes");
    } else {
        ms_json_count(json, "driver_leaves_bytes", terms.driver_bytes);
    }
    ms_json_flag(json, "torch_refused", terms.torch_refused);
    ms_json_flag(json, "of_host", terms.of_host);
    ms_json_close(json, '}');
}

static void add_oom(struct ms_json *json, const struct ms_model *model, size_t index)
{
    const struct ms_model_oom *oom = ms_model_oom_at(model, index);
    struct ms_ledger_row rows[MS_LEDGER_ROWS];
    struct ms_judgement judgement;
    char sentence[4 * MS_SENTENCE_BYTES];

    ms_judge(model, index, &judgement);
    (void)snprintf(sentence, sizeof(sentence), "OUT OF MEMORY: %s. %s.%s%s%s", judgement.what,
                   judgement.why, judgement.beside[0] ? " Beside it, " : "", judgement.beside,
                   judgement.beside[0] ? "." : "");
    ms_json_open(json, NULL, '{');
    ms_json_count(json, "time_ns", oom->time_ns);
    ms_json_count(json, "device", oom->device);
    ms_json_text(json, "source",
                 oom->record.state.source == MS_OOM_TORCH  ? "torch"
                 : oom->record.state.source == MS_OOM_HOST ? "host"
                                                           : "driver");
    ms_json_count(json, "site", oom->record.state.site);
    ms_json_add_site_line(json, "line", model, oom->record.state.site);
    ms_json_count(json, "requested_bytes", oom->record.state.requested_bytes);
    ms_json_count(json, "short_bytes", oom->short_bytes);
    ms_json_count(json, "asked_times", oom->times);
    if (judgement.step > 0) {
        ms_json_count(json, "step", judgement.step);
    } else {
        ms_json_null(json, "step");
    }
    if (judgement.fitting_factor > 0) {
        char number[MS_UNIT_TEXT_BYTES];

        ms_json_number(
            json, "estimated_factor_that_fits",
            ms_decimal_text((int64_t)(judgement.fitting_factor * 1e6), number, sizeof(number)));
    } else {
        ms_json_null(json, "estimated_factor_that_fits");
    }
    if (judgement.most_factor > 0) {
        char number[MS_UNIT_TEXT_BYTES];

        ms_json_number(
            json, "factor_at_most",
            ms_decimal_text((int64_t)(judgement.most_factor * 1e6) + 1, number, sizeof(number)));
    } else {
        ms_json_null(json, "factor_at_most");
    }
    ms_json_text(json, "verdict", ms_verdict_name(judgement.verdict));
    ms_json_text(json, "sentence", sentence);
    ms_json_count(json, "largest_free_bytes", oom->record.state.largest_free_bytes);
    ms_json_flag(json, "evaluating", oom->evaluating);
    ms_json_flag(json, "recovered", oom->recovered);
    ms_json_flag(json, "judged", index == ms_judged_fatal(model));
    ms_json_count(json, "waiting_bytes", oom->record.state.pending_bytes);
    add_others(json, &oom->record.state.others);
    add_limit(json, &oom->record.state);
    add_shared_cap(json, &oom->record.state.shared);
    add_terms(json, &oom->record.state);
    add_ledger(json, rows, ms_ledger_at_oom(model, index, rows));
    ms_json_add_oom_kinds(json, model, index);
    ms_json_close(json, '}');
}

static void add_ooms(struct ms_json *json, const struct ms_model *model, size_t most)
{
    const size_t count = ms_model_oom_count(model);

    ms_json_open(json, "oom_events", '[');
    for (size_t i = count > most ? count - most : 0; i < count; i++) {
        add_oom(json, model, i);
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
            add_device(json, model, i);
        }
    }
    ms_json_close(json, ']');
    add_ooms(json, model, limits->ooms);
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

void ms_form_json(struct ms_forms *forms, const struct ms_model *model,
                  const struct ms_merged *merged)
{
    if (model && !ms_forms_is_merged(forms)) {
        ms_format_json(model, &forms->out);
    } else if (!model && ms_forms_is_merged(forms)) {
        ms_merged_json(merged, &forms->out);
    }
}
