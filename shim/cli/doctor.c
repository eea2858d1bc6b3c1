/* memshim doctor: what this machine can do, found out by trying. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "report/buffer.h"
#include "report/json.h"
#include "shim/cli/cli.h"
#include "shim/cli/doctor_findings.h"
#include "shim/probe.h"
#include "shim/serve/host_bytes.h"

static const char usage[] =
    "Usage: memshim doctor [--json] [--python INTERPRETER]\n"
    "Says what this machine can do for memshim: driver, devices, spill and its speed, PyTorch and\n"
    "its mode, what would be forwarded. Tries it, in processes of its own. The exit status is 1\n"
    "where memshim could not serve at all.\n\n"
    "  --json                 for programs\n"
    "  --python INTERPRETER   whose PyTorch is looked at (default python3); it is not imported\n";

struct request {
    bool json, help;
    const char *interpreter;
};

static bool read_request(int argc, char **argv, struct request *out)
{
    *out = (struct request){.interpreter = "python3"};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            out->json = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            out->help = true;
        } else if (strcmp(argv[i], "--python") == 0 && i + 1 < argc) {
            out->interpreter = argv[++i];
        } else {
            (void)fprintf(stderr, "memshim doctor: '%s' is not known%s; --help says what is\n",
                          argv[i], strcmp(argv[i], "--python") == 0 ? " without a name" : "");
            return false;
        }
    }
    return true;
}

static void complain(void *ctx, const char *sentence)
{
    (void)ctx;
    (void)fprintf(stderr, "memshim doctor: %s\n", sentence);
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
    if (device->host_offered && device->host_proven == MS_PROBE_UNKNOWN) {
        ms_json_null(json, "spill_proved");
    } else {
        ms_json_flag(json, "spill_proved", device->host_proven == MS_PROBE_YES);
    }
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
    struct request request;
    if (!read_request(argc, argv, &request)) {
        return MS_CLI_WRONG_CALL;
    }
    if (request.help) {
        (void)fputs(usage, stdout);
        return 0;
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
    ms_doctor_find(&report, &findings);
    (request.json ? print_json : print_text)(&report, &findings);
    bool serves = ms_doctor_serves(facts);
    (void)munmap(facts, sizeof(*facts));
    return serves ? 0 : 1;
}
