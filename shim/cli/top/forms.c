/* SPDX-License-Identifier: Apache-2.0 */
/* The figures for programs: JSON, and Prometheus's text. Both are made from the table of
 * statistics. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/json.h"
#include "allocator/base/units.h"
#include "report/render/json/report.h"
#include "shim/cli/top/top.h"

/* --- numbers ---------------------------------------------------------------------------------- */

/* The members of struct memshim_stats after its size are 8 bytes each, in the table's order. */
static void device_number(const struct memshim_stats *stats, size_t row, bool seconds, char *text,
                          size_t text_bytes)
{
    const char *member = (const char *)stats + sizeof(stats->size) + 8 * row;
    uint64_t value;
    if (ms_stat_table[row].unit == MS_STAT_RATIO) {
        double ratio;
        memcpy(&ratio, member, sizeof(ratio));
        (void)ms_decimal_text((int64_t)(ratio * 1e6 + 0.5), text, text_bytes);
        return;
    }
    memcpy(&value, member, sizeof(value));
    if (ms_stat_table[row].unit == MS_STAT_NS && seconds) {
        (void)snprintf(text, text_bytes, "%" PRIu64 ".%09" PRIu64, value / MS_NS_PER_S,
                       value % MS_NS_PER_S);
    } else {
        (void)snprintf(text, text_bytes, "%" PRIu64, value);
    }
}

static uint64_t process_value(const struct ms_top_process *process, size_t row)
{
    const uint64_t values[MS_PROCESS_STAT_ID_COUNT] = {
#define MS_PROCESS_STATISTIC(name, unit, type, metric, meaning) process->name,
#include "shim/tables/stats.def"
    };
    return values[row];
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* From the time when the lines were read, which is not that of the figures. */
static void add_sites_live(struct ms_json *json, const struct ms_top_sites *sites, uint8_t device)
{
    if (sites->unix_ns == 0 || !sites->whole) {
        ms_json_null(json, "sites_live_bytes");
    } else {
        ms_json_count(json, "sites_live_bytes", sites->live_bytes[device]);
    }
}

static void add_device_sites(struct ms_json *json, const struct ms_top_frame *frame,
                             const struct ms_top_sites *sites, uint8_t device)
{
    size_t shown = 0;
    if (frame->most_sites == 0 || sites->unix_ns == 0 || !sites->whole) {
        ms_json_null(json, "sites");
        return;
    }
    ms_json_open(json, "sites", '[');
    for (size_t i = 0; i < ms_top_site_count(sites) && shown < frame->most_sites; i++) {
        const struct ms_top_site *site = ms_top_site_at(sites, i);
        if (site->device == device) {
            ms_json_open(json, NULL, '{');
            ms_json_count(json, "live_bytes", site->bytes);
            ms_json_text(json, "line", site->line);
            ms_json_close(json, '}');
            shown++;
        }
    }
    ms_json_close(json, ']');
}

static void add_device(struct ms_json *json, const struct ms_top_frame *frame, size_t process,
                       const struct ms_top_device *device)
{
    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "index", device->index);
    ms_json_text(json, "name", device->name);
    ms_json_text(json, "uuid", device->uuid[0] != '\0' ? device->uuid : NULL);
    for (size_t row = 0; row < MS_STAT_ID_COUNT; row++) {
        char text[40];
        device_number(&device->stats, row, false, text, sizeof(text));
        if (row == MS_STAT_ID_status) {
            ms_json_text(json, ms_stat_table[row].name, ms_threshold_name(device->stats.status));
        } else {
            ms_json_number(json, ms_stat_table[row].name, text);
        }
    }
    if (device->group[0] != '\0') {
        ms_json_open(json, "cap_of", '{');
        ms_json_text(json, "group", device->group);
        ms_json_count(json, "processes", device->group_processes);
        ms_json_close(json, '}');
    } else {
        ms_json_null(json, "cap_of");
    }
    add_sites_live(json, &frame->sites[process], device->index);
    add_device_sites(json, frame, &frame->sites[process], device->index);
    ms_json_close(json, '}');
}

static void add_process(struct ms_json *json, const struct ms_top_frame *frame, size_t index)
{
    const struct ms_top_process *process = &frame->processes[index];
    const struct ms_top_sites *sites = &frame->sites[index];
    char start[MS_UNIT_TEXT_BYTES], read[MS_UNIT_TEXT_BYTES];
    ms_json_open(json, NULL, '{');
    ms_json_text(json, "path", process->path);
    ms_json_add_process(json, &process->header);
    ms_json_text(json, "state", ms_top_state_name(process->state));
    if (process->exit_known) {
        ms_json_integer(json, "exit_status", process->header.exit_status);
    } else {
        ms_json_null(json, "exit_status");
    }
    ms_json_text(json, "start_time",
                 ms_date_text(process->header.start_unix_ns, start, sizeof(start)));
    for (size_t row = 0; row < MS_PROCESS_STAT_ID_COUNT; row++) {
        ms_json_count(json, ms_process_stat_table[row].name, process_value(process, row));
    }
    if (sites->whole) {
        ms_json_count(json, "steps", sites->steps);
        ms_json_text(json, "sites_time", ms_date_text(sites->unix_ns, read, sizeof(read)));
        ms_json_flag(json, "sites_sampled", sites->sampled);
    } else {
        ms_json_null(json, "steps");
        ms_json_null(json, "sites_time");
        ms_json_null(json, "sites_sampled");
    }
    ms_json_open(json, "devices", '[');
    for (size_t i = 0; i < ms_top_device_count(process); i++) {
        add_device(json, frame, index, ms_top_device_at(process, i));
    }
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

void ms_top_json(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    struct ms_json json = {.out = out, .dense = true};
    char host[MS_HOST_BYTES] = "", date[MS_UNIT_TEXT_BYTES];
    (void)gethostname(host, sizeof(host) - 1);
    ms_json_open(&json, NULL, '{');
    ms_json_text(&json, "schema", "memshim-top/1");
    ms_json_text(&json, "host", host);
    ms_json_text(&json, "time", ms_date_text(frame->unix_ns, date, sizeof(date)));
    ms_json_open(&json, "processes", '[');
    for (size_t i = 0; i < frame->count; i++) {
        if (frame->processes[i].why[0] == '\0') {
            add_process(&json, frame, i);
        }
    }
    ms_json_close(&json, ']');
    ms_json_open(&json, "unreadable", '[');
    for (size_t i = 0; i < frame->count; i++) {
        if (frame->processes[i].why[0] != '\0') {
            ms_json_open(&json, NULL, '{');
            ms_json_text(&json, "path", frame->processes[i].path);
            ms_json_text(&json, "why", frame->processes[i].why);
            ms_json_close(&json, '}');
        }
    }
    ms_json_close(&json, ']');
    ms_json_close(&json, '}');
    ms_buffer_add(out, "\n");
}

/* --- Prometheus ------------------------------------------------------------------------------- */

/* A label's value is UTF-8, with backslash, quote and newline escaped. Unprintable characters are
 * escaped first. */
static void add_label(struct ms_buffer *out, const char *name, const char *value)
{
    struct ms_buffer plain = {0};
    ms_buffer_add_plain(&plain, value);
    ms_buffer_format(out, "%s=\"", name);
    for (size_t i = 0; i < plain.bytes; i++) {
        if (plain.at[i] == '\\' || plain.at[i] == '"') {
            ms_buffer_add(out, "\\");
        }
        ms_buffer_append(out, &plain.at[i], 1);
    }
    ms_buffer_add(out, "\"");
    ms_buffer_free(&plain);
}

static void add_identity(struct ms_buffer *out, const struct ms_top_process *process)
{
    char number[16] = "";
    add_label(out, "run", process->header.run_id);
    ms_buffer_add(out, ",");
    add_label(out, "program", process->header.program);
    ms_buffer_add(out, ",");
    add_label(out, "host", process->header.host);
    ms_buffer_format(out, ",pid=\"%" PRId32 "\",", process->header.pid);
    if (process->header.rank >= 0) {
        (void)snprintf(number, sizeof(number), "%" PRId32, process->header.rank);
    }
    add_label(out, "rank", number);
}

/* In OpenMetrics, a counter's samples end in _total, and its family does not. */
static void add_family(struct ms_buffer *out, const struct ms_stat *stat, enum ms_top_metrics form)
{
    const bool counts = stat->type == MS_STAT_COUNTER;
    const size_t bytes = strlen(stat->metric);
    const size_t cut = counts && form == MS_TOP_OPENMETRICS ? sizeof("_total") - 1 : 0;
    const int length = (int)(bytes - cut);
    ms_buffer_format(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", length, stat->metric, stat->meaning,
                     length, stat->metric, counts ? "counter" : "gauge");
}

static void add_device_sample(struct ms_buffer *out, const struct ms_top_process *process,
                              const struct ms_top_device *device, size_t row)
{
    char text[40];
    device_number(&device->stats, row, true, text, sizeof(text));
    ms_buffer_add(out, ms_stat_table[row].metric);
    ms_buffer_add(out, "{");
    add_identity(out, process);
    ms_buffer_format(out, ",device=\"%u\",", (unsigned)device->index);
    add_label(out, "uuid", device->uuid);
    ms_buffer_format(out, "} %s\n", text);
}

static void add_process_sample(struct ms_buffer *out, const struct ms_top_process *process,
                               size_t row)
{
    const uint64_t value = process_value(process, row);
    ms_buffer_add(out, ms_process_stat_table[row].metric);
    ms_buffer_add(out, "{");
    add_identity(out, process);
    if (ms_process_stat_table[row].unit == MS_STAT_NS) {
        ms_buffer_format(out, "} %" PRIu64 ".%09" PRIu64 "\n", value / MS_NS_PER_S,
                         value % MS_NS_PER_S);
    } else {
        ms_buffer_format(out, "} %" PRIu64 "\n", value);
    }
}

/* A process that does not run holds no memory any more: its row only says that it does not run. */
void ms_top_print_metrics(const struct ms_top_frame *frame, enum ms_top_metrics form,
                          struct ms_buffer *out)
{
    for (size_t row = 0; row < MS_PROCESS_STAT_ID_COUNT; row++) {
        add_family(out, &ms_process_stat_table[row], form);
        for (size_t i = 0; i < frame->count; i++) {
            if (frame->processes[i].why[0] == '\0') {
                add_process_sample(out, &frame->processes[i], row);
            }
        }
    }
    for (size_t row = 0; row < MS_STAT_ID_COUNT; row++) {
        add_family(out, &ms_stat_table[row], form);
        for (size_t i = 0; i < frame->count; i++) {
            const struct ms_top_process *process = &frame->processes[i];
            const bool holds = process->why[0] == '\0' && process->running;
            for (size_t d = 0; d < ms_top_device_count(process) && holds; d++) {
                add_device_sample(out, process, ms_top_device_at(process, d), row);
            }
        }
    }
    if (form == MS_TOP_OPENMETRICS) {
        ms_buffer_add(out, "# EOF\n");
    }
}
