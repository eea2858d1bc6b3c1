/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt and its neighbours, as a reader of them meets them. */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "shim/cli/launch/report_files.h"
#include "synthetic.h"

static char dir[PATH_MAX];

static ms_trace_t *begin(struct synthetic *run)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(run, trace, 1);
    synthetic_churn(run, 5000);
    snprintf(dir, sizeof(dir), "%s", ms_trace_dir(trace));
    return trace;
}

static char *file(const char *name)
{
    char path[PATH_MAX + 32];
    size_t bytes;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return synthetic_read(path, &bytes);
}

static void cut_lines(char *text, int lines)
{
    for (; *text && lines > 0; text++) {
        lines -= *text == '\n';
    }
    *text = '\0';
}

Test(report, the_first_five_lines_are_the_answer)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);
    const struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);
    char why[512] = "";

    ms_trace_oom(trace, 0, &state);
    ms_trace_close(trace, true, 1);
    cr_assert_eq(ms_report_of_process(dir, why, sizeof(why)), 0, "%s", why);

    char *text = file("report.txt");

    cut_lines(text, 5);
    cr_assert_not_null(strstr(text, "train.py  rank 0 of 2  node-a  pid 4711"), "%s", text);
    cr_assert_not_null(strstr(text, "exit 1"));
    cr_assert_not_null(strstr(text, "OUT OF MEMORY after "));
    cr_assert_not_null(strstr(text, "asked for 30.00 GiB, 11.39 GiB short of the cap (23.00 GiB, "
                                    "fraction 0.95)"));
    cr_assert_not_null(strstr(text, "why    demand: "));
    cr_assert_not_null(strstr(text, "holds  "));
    cr_assert_not_null(strstr(text, "next   "));
    free(text);
}

Test(report, a_run_that_went_well)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);
    char why[512] = "";

    ms_trace_close(trace, true, 0);
    cr_assert_eq(ms_report_of_process(dir, why, sizeof(why)), 0, "%s", why);

    char *text = file("report.txt");

    cut_lines(text, 5);
    cr_assert_not_null(strstr(text, "exit 0"));
    cr_assert_not_null(strstr(text, "Peak 4.39 GiB of 23.00 GiB (19.1 %) charged on device 0"));
    cr_assert_not_null(strstr(text, "no out-of-memory"));
    free(text);
}

Test(report, tensors_that_were_not_reported_are_not_zero)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    char why[512] = "";

    snprintf(dir, sizeof(dir), "%s", ms_trace_dir(trace));
    ms_trace_device(trace, 0, "GPU", NULL, 24 * GIB, 24 * GIB);
    ms_trace_version(trace, "torch", "1.13");
    ms_trace_close(trace, true, 0);
    cr_assert_eq(ms_report_of_process(dir, why, sizeof(why)), 0, "%s", why);

    char *text = file("report.txt"), *json = file("report.json");

    cr_assert_not_null(strstr(text, "PyTorch did not report its tensors"));
    cr_assert_null(strstr(text, "\n  tensors: "));
    cr_assert_not_null(strstr(json, "\"tensors\": null"));
    cr_assert_not_null(strstr(json, "\"fragmentation_at_peak\": null"));
    free(text);
    free(json);
}

Test(report, tensors_that_are_allocations_are_not_missing)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    char why[512] = "";

    config.process.torch_mode = "tensor";
    ms_trace_t *trace = ms_trace_open(&config, why, sizeof(why));

    cr_assert_not_null(trace, "%s", why);
    snprintf(dir, sizeof(dir), "%s", ms_trace_dir(trace));
    ms_trace_device(trace, 0, "GPU", NULL, 24 * GIB, 24 * GIB);
    ms_trace_version(trace, "torch", "2.15");
    ms_trace_close(trace, true, 0);
    cr_assert_eq(ms_report_of_process(dir, why, sizeof(why)), 0, "%s", why);

    char *text = file("report.txt");

    cr_assert_not_null(strstr(text, "each of PyTorch's tensors is an allocation of its own"));
    cr_assert_null(strstr(text, "did not report its tensors"));
    free(text);
}

Test(report, hostile_names)
{
    const char *folder = synthetic_folder();
    struct ms_trace_config config = synthetic_config(folder);
    char why[512] = "";

    config.process.command = "python \"x\" <script>\n\x1b[2J\xff";
    config.process.program = "<b>\n..//\xff";
    config.process.host = "h\"ost\n";
    config.process.options = "MEMSHIM_OUTPUT=a\"b\x1b\n=\nnonsense\nMEMSHIM_X=1=2\n";

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    snprintf(dir, sizeof(dir), "%s", ms_trace_dir(trace));
    ms_trace_device(trace, 0, "G\"P\\U\n<i>", NULL, GIB, GIB);
    ms_trace_note(trace, "note\r\n\"quoted\"");
    ms_trace_close(trace, true, 0);
    cr_assert_eq(ms_report_of_process(dir, why, sizeof(why)), 0, "%s", why);

    char *text = file("report.txt"), *json = file("report.json"), *line = file("timeline.json");

    cr_assert_null(strchr(text, '\x1b'));
    cr_assert_not_null(strstr(text, "<script>\\x0a\\x1b[2J\\xff"));
    cr_assert_null(strchr(json, '<'));
    cr_assert_null(strchr(line, '<'));
    cr_assert_null(strchr(json, '\x1b'));
    cr_assert_not_null(strstr(json, "\"MEMSHIM_X\": \"1=2\""));
    free(text);
    free(json);
    free(line);
}

Test(report, fractions_do_not_follow_the_locale)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);
    char why[512] = "";

    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8")) {
        cr_skip("no locale with a comma is installed");
    }
    ms_trace_close(trace, true, 0);
    cr_assert_eq(ms_report_of_process(dir, why, sizeof(why)), 0, "%s", why);

    char *json = file("report.json");

    cr_assert_not_null(strstr(json, "\"fragmentation_at_peak\": 0."));
    free(json);
}

Test(report, a_file_that_is_missing_is_named)
{
    char why[512] = "";

    cr_assert_eq(ms_report_of_process("/nonexistent/folder", why, sizeof(why)), -1);
    cr_assert_not_null(strstr(why, "/nonexistent/folder: "), "%s", why);
}

static bool exists(const char *name)
{
    char path[PATH_MAX + 32];
    struct stat status;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &status) == 0;
}

/* torchrun ends ranks by a signal: their reports are made afterwards. */
Test(report, a_run_is_completed)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);
    char run_dir[PATH_MAX];

    snprintf(run_dir, sizeof(run_dir), "%s", dir);
    *strrchr(run_dir, '/') = '\0';

    /* Still running: nothing is written beside the trace, the run's own report is. */
    cr_assert_eq(ms_report_complete(run_dir), 0);
    cr_assert_not(exists("report.txt"));
    cr_assert(exists("../report.txt"));

    ms_trace_close(trace, true, 0);
    cr_assert_eq(ms_report_complete(run_dir), 0);
    cr_assert(exists("report.txt"));
    cr_assert(exists("report.json"));
    cr_assert(exists("timeline.json"));
    cr_assert(exists("../report.json"));
}
