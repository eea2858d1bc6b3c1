/* SPDX-License-Identifier: Apache-2.0 */
/* memshim doctor: finds out by trying what this machine can do. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/doctor/findings.h"
#include "shim/tables/host_bytes.h"
#include "shim/tables/probe_codes.h"

struct request {
    bool json, forget;
    const char *interpreter;
};

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct request *request = ctx;
    request->json |= option->id == MS_CLI_DOCTOR_JSON;
    request->forget |= option->id == MS_CLI_DOCTOR_FORGET;
    return option->id != MS_CLI_DOCTOR_PYTHON || ms_cli_take_file(value, &request->interpreter);
}

static void complain(void *ctx, const char *sentence)
{
    (void)ctx;
    ms_complain("memshim doctor: %s", sentence);
}

/* --- as text ---------------------------------------------------------------------------------- */

static void print_text(const struct ms_doctor_report *report,
                       const struct ms_doctor_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct ms_doctor_finding *finding = &findings->list[i];
        struct ms_buffer line = {0};
        ms_buffer_format(&line, "%-8s %-11s ", ms_doctor_level_names[finding->level],
                         finding->topic);
        if (finding->device >= 0) {
            ms_buffer_format(&line, "device %d: ", finding->device);
        }
        ms_buffer_add_plain(&line, finding->says);
        if (finding->advice != NULL) {
            ms_buffer_format(&line, ". To do: %s", finding->advice);
        }
        (void)printf("%.*s\n", (int)line.bytes, line.at != NULL ? line.at : "");
        ms_buffer_free(&line);
    }
    (void)printf("%s\n", ms_doctor_serves(report->facts) ? "memshim can serve here."
                                                         : "memshim cannot serve here.");
}

/* --- as JSON ---------------------------------------------------------------------------------- */

static void add_answer(struct ms_json *json, const char *key, uint8_t answer)
{
    if (answer == MS_DOCTOR_UNKNOWN) {
        ms_json_null(json, key);
    } else {
        ms_json_flag(json, key, answer == MS_DOCTOR_YES);
    }
}

static void add_device(struct ms_json *json, const struct ms_doctor_device *device)
{
    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "ordinal", device->ordinal);
    ms_json_text(json, "name", device->name);
    ms_json_text(json, "uuid", device->uuid);
    ms_json_count(json, "total_bytes", device->total_bytes);
    ms_json_flag(json, "mapping", device->mapping);
    ms_json_count(json, "granule_bytes", device->granule_bytes);
    ms_json_flag(json, "handle_file_descriptor", device->handle_fd);
    ms_json_flag(json, "handle_fabric", device->handle_fabric);
    ms_json_flag(json, "gpudirect", device->rdma == MS_DOCTOR_YES);
    ms_json_flag(json, "spill_offered", device->host_offered);
    const enum ms_probe_answer proved = ms_probe_answer_of(device->host_code);
    if (device->host_offered && proved == MS_PROBE_UNKNOWN) {
        ms_json_null(json, "spill_proved");
    } else {
        ms_json_flag(json, "spill_proved", proved == MS_PROBE_YES);
    }
    ms_json_text(json, "spill_reason",
                 device->host_offered ? ms_probe_why(device->host_code) : NULL);
    ms_json_count(json, "down_bytes_per_s", device->down_bytes_per_s);
    ms_json_count(json, "up_bytes_per_s", device->up_bytes_per_s);
    add_answer(json, "managed_at_birth", device->managed);
    add_answer(json, "pinned_at_birth", device->pinned);
    ms_json_close(json, '}');
}

static void add_host(struct ms_json *json, const struct ms_doctor_report *report)
{
    const struct ms_doctor_python *python = &report->python;
    char version[48];
    ms_json_open(json, "host", '{');
    ms_json_count(json, "available_bytes", report->host_available_bytes);
    ms_json_count(json, "spill_limit_bytes", report->spill_limit_bytes);
    ms_json_flag(json, "libunwind", report->libunwind);
    ms_json_flag(json, "libdw", report->libdw);
    ms_json_close(json, '}');
    ms_json_open(json, "python", '{');
    ms_json_flag(json, "found", python->found);
    (void)snprintf(version, sizeof(version), "%u.%u.%u", python->major, python->minor,
                   python->micro);
    ms_json_text(json, "path", python->found ? python->path : NULL);
    ms_json_text(json, "version", python->found ? version : NULL);
    ms_json_flag(json, "frames_readable", python->readable);
    ms_json_text(json, "torch", python->torch[0] != '\0' ? python->torch : NULL);
    ms_json_text(json, "torch_cuda", python->torch_cuda[0] != '\0' ? python->torch_cuda : NULL);
    ms_json_flag(json, "torch_reports_tensors", python->torch_reports);
    ms_json_text(json, "mode", ms_torch_mode_name(report->options->torch));
    ms_json_close(json, '}');
}

static void add_findings(struct ms_json *json, const struct ms_doctor_findings *findings)
{
    ms_json_open(json, "findings", '[');
    for (size_t i = 0; i < findings->count; i++) {
        const struct ms_doctor_finding *finding = &findings->list[i];
        ms_json_open(json, NULL, '{');
        ms_json_text(json, "topic", finding->topic);
        if (finding->device >= 0) {
            ms_json_integer(json, "device", finding->device);
        } else {
            ms_json_null(json, "device");
        }
        ms_json_text(json, "level", ms_doctor_level_names[finding->level]);
        ms_json_text(json, "says", finding->says);
        ms_json_text(json, "advice", finding->advice);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void print_json(const struct ms_doctor_report *report,
                       const struct ms_doctor_findings *findings)
{
    struct ms_buffer out = {0};
    struct ms_json json = {.out = &out};
    ms_json_open(&json, NULL, '{');
    ms_json_text(&json, "schema", "memshim-doctor/1");
    ms_json_text(&json, "memshim", MEMSHIM_VERSION);
    ms_json_flag(&json, "serves", ms_doctor_serves(report->facts));
    ms_json_count(&json, "cuda_version", (uint64_t)report->facts->cuda_version);
    ms_json_open(&json, "devices", '[');
    for (int i = 0; i < report->facts->device_count; i++) {
        add_device(&json, &report->facts->devices[i]);
    }
    ms_json_close(&json, ']');
    add_host(&json, report);
    add_findings(&json, findings);
    ms_json_close(&json, '}');
    (void)fwrite(out.at, 1, out.bytes, stdout);
    (void)putchar('\n');
    ms_buffer_free(&out);
}

/* --- the command ------------------------------------------------------------------------------ */

int ms_cli_doctor(int argc, char **argv)
{
    static struct ms_options options;
    static struct ms_doctor_findings findings;
    static struct ms_doctor_report report;
    static const struct ms_cli_reader reader = {.option = take_option};
    struct request request = {.interpreter = "python3"};
    const int status = ms_cli_parse(MS_CLI_DOCTOR, argc, argv, &reader, &request);
    if (status >= 0) {
        return status;
    }
    ms_options_parse(environ, &options, complain, NULL);
    struct ms_doctor_facts *facts = ms_doctor_ask_driver();
    if (facts == NULL) {
        perror("memshim doctor");
        return 1;
    }
    report.facts = facts;
    report.options = &options;
    report.environment = environ;
    report.interpreter = request.interpreter;
    ms_doctor_ask_python(request.interpreter, &report.python);
    report.host_available_bytes = ms_host_available_bytes("");
    report.spill_limit_bytes = ms_host_spill_bytes(&options, environ, report.host_available_bytes);
    report.libunwind = ms_doctor_finds_library("libunwind.so.8");
    report.libdw = ms_doctor_finds_library("libdw.so.1");
    ms_doctor_read_remembered(facts, environ, request.forget, &report.remembered);
    ms_doctor_find(&report, &findings);
    (request.json ? print_json : print_text)(&report, &findings);
    bool serves = ms_doctor_serves(facts);
    (void)munmap(facts, sizeof(*facts));
    return serves ? 0 : 1;
}
