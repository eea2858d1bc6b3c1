/* SPDX-License-Identifier: Apache-2.0 */
/* memshim report: reads traces, writes the requested form, and the files that are missing. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "report/read/traces.h"
#include "report/render/forms.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/output.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/browser.h"
#include "shim/cli/launch/latest.h"
#include "shim/cli/launch/report_files.h"

#define WHY_BYTES (PATH_MAX + 512)

struct report_call {
    enum ms_form form;
    const char *output;  /* -: the terminal */
    const char *modules; /* null: none */
    struct ms_form_choice choice;
    bool plain; /* neither --format nor --output was given */
    bool open;  /* open the page in a browser */
    struct ms_buffer traces;
};

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct report_call *call = ctx;

    switch ((int)option->id) {
    case MS_CLI_REPORT_FORMAT:
        call->plain = false;
        return ms_form_find(value, &call->form);
    case MS_CLI_REPORT_OUTPUT:
        call->plain = false;
        return ms_cli_take_file(value, &call->output);
    case MS_CLI_REPORT_OPEN:
        call->open = true;
        return true;
    case MS_CLI_REPORT_NO_SOURCE:
        call->choice.no_source = true;
        return true;
    case MS_CLI_REPORT_DEVICE: {
        uint64_t device = 0;
        const bool good = ms_cli_take_count(value, MS_DEVICE_COUNT - 1, &device);

        call->plain = false;
        call->choice.device = (int)device;
        return good;
    }
    case MS_CLI_REPORT_AT:
        call->plain = false;
        call->choice.at = true;
        return ms_moment_parse(value, &call->choice.moment);
    default:
        return ms_cli_take_folder(value, &call->modules);
    }
}

static bool is_taken(const struct ms_buffer *traces, const char *path)
{
    struct stat one, other;

    for (size_t i = 0; i < ms_traces_count(traces); i++) {
        if (stat(path, &one) == 0 && stat(ms_traces_at(traces, i), &other) == 0 &&
            one.st_dev == other.st_dev && one.st_ino == other.st_ino) {
            return true;
        }
    }
    return false;
}

/* Each once: a shell that lists an output folder names its latest run twice. */
static int take_trace(void *ctx, const char *word)
{
    struct report_call *call = ctx;
    struct ms_buffer found = {0};
    char why[WHY_BYTES] = "";
    const bool there = ms_traces_find(word, &found, why, sizeof(why));

    if (!there) {
        ms_complain("memshim report: %s", why);
    }
    for (size_t i = 0; i < ms_traces_count(&found); i++) {
        if (!is_taken(&call->traces, ms_traces_at(&found, i))) {
            ms_buffer_append(&call->traces, ms_traces_at(&found, i), sizeof(struct ms_trace_path));
        }
    }
    ms_buffer_free(&found);
    return there ? -1 : 1;
}

/* Rejects options that the chosen form would silently ignore. -1 if there are none, otherwise the
 * status. */
static int check_choice(const struct report_call *call)
{
    const char *form = ms_form_rows[call->form].name;

    if (call->choice.at && !ms_form_has(call->form, MS_FORM_TAKES_MOMENT)) {
        return ms_cli_wrong(MS_CLI_REPORT,
                            "--at is for --format %s (memshim diff takes RUN@MOMENT), not for '%s'",
                            ms_form_rows[ms_form_with(MS_FORM_TAKES_MOMENT)].name, form);
    }
    if (call->choice.device >= 0 && !ms_form_has(call->form, MS_FORM_TAKES_DEVICE)) {
        return ms_cli_wrong(MS_CLI_REPORT, "--device is for --format %s, not for '%s'",
                            ms_form_rows[ms_form_with(MS_FORM_TAKES_DEVICE)].name, form);
    }
    if (call->choice.no_source && !call->plain && !call->open &&
        !ms_form_has(call->form, MS_FORM_HAS_SOURCE)) {
        return ms_cli_wrong(MS_CLI_REPORT, "--no-source is for --format %s, not for '%s'",
                            ms_form_rows[ms_form_with(MS_FORM_HAS_SOURCE)].name, form);
    }
    return -1;
}

static int find_latest(struct report_call *call)
{
    char why[WHY_BYTES] = "";

    if (!ms_cli_find_latest(&call->traces, "", why, sizeof(why))) {
        ms_complain("memshim report: %s", why);
        return 1;
    }
    return -1;
}

static void take_into_form(void *ctx, const struct ms_model *model)
{
    ms_forms_take(ctx, model);
    ms_forms_say(ctx);
}

static int write_report(const struct report_call *call)
{
    char run_dir[PATH_MAX];
    const bool of_run = call->plain && ms_report_run_folder(&call->traces, run_dir);
    const struct ms_report_reading how = {
        .modules = call->modules,
        .write_files = call->plain,
        .run_dir = of_run ? run_dir : NULL,
        .no_source = call->choice.no_source,
        .survey = ms_form_has(call->form, MS_FORM_SURVEY),
        .depth = ms_form_has(call->form, MS_FORM_ADDRESSES) ? MS_SURVEY_WHOLE : MS_SURVEY_SUMS};
    struct ms_forms forms;
    struct ms_merged merged;
    bool good;

    ms_forms_begin(&forms, call->form, ms_traces_count(&call->traces), &call->choice);
    ms_merged_begin(&merged);
    good = ms_report_read(&call->traces, &how, &merged, take_into_form, &forms);
    if (forms.processes == 0) {
        good = false;
    } else {
        forms.of_run = of_run && !ms_merged_runs(&merged);
        good &=
            ms_forms_finish(&forms, &merged) && ms_cli_put(MS_CLI_REPORT, &forms.out, call->output);
    }
    ms_forms_free(&forms);
    ms_merged_free(&merged);
    return good ? 0 : 1;
}

static int open_page(const struct report_call *call)
{
    char path[PATH_MAX], why[WHY_BYTES] = "";

    if (ms_report_page(&call->traces, call->modules, call->choice.no_source, path, why,
                       sizeof(why)) != 0) {
        ms_complain("memshim report: %s", why);
        return 1;
    }
    ms_complain("memshim report: %s", path);
    if (!ms_browser_open(path, why, sizeof(why))) {
        ms_complain("memshim report: no browser was opened: %s", why);
        return 1;
    }
    return 0;
}

int ms_cli_report(int argc, char **argv)
{
    static const struct ms_cli_reader reader = {.option = take_option, .operand = take_trace};
    struct report_call call = {.output = "-", .plain = true, .choice.device = -1};
    int status = ms_cli_parse(MS_CLI_REPORT, argc, argv, &reader, &call);

    if (status < 0) {
        status = check_choice(&call);
    }
    if (status < 0 && call.traces.bytes == 0) {
        status = find_latest(&call);
    }
    if (status < 0 && ms_form_has(call.form, MS_FORM_OF_ONE) && ms_traces_count(&call.traces) > 1) {
        status = ms_cli_wrong(MS_CLI_REPORT,
                              "this form is of one process, and there are %zu; name the folder of "
                              "one, such as %s",
                              ms_traces_count(&call.traces), ms_traces_at(&call.traces, 0));
    }
    if (status < 0) {
        status = write_report(&call);
        status |= call.open ? open_page(&call) : 0;
    }
    ms_buffer_free(&call.traces);
    return status;
}
