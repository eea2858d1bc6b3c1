#include "report/cli_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/cli_forms.h"
#include "report/cli_words.h"
#include "report/progress.h"
#include "report/report_files.h"
#include "report/traces.h"

#define DEFAULT_OUTPUT "memshim-out"
#define WRONG_CALL     2
#define WHY_BYTES      (PATH_MAX + 512)

static const char usage[] =
    "Usage: memshim report [DIR|TRACE...] [--format FORM] [--output FILE|-] [--modules DIR]\n"
    "                      [--at MOMENT] [--device N]\n"
    "Says where the memory was, from the traces of processes that ended, were killed, or still run."
    "\n\n"
    "  DIR       an output folder (its latest run), a run's folder (all its processes together) "
    "or\n"
    "            a process's folder; default: the latest run in MEMSHIM_OUTPUT, or in memshim-out\n"
    "  TRACE     a trace.mshm\n"
    "  --format  text        what a person reads first (default)\n"
    "            json        all of it, for programs (report/schema.json)\n"
    "            html        a page for the browser, one file\n"
    "            timeline    opens in Perfetto\n"
    "            folded      stacks of what was live at the peak, for flame-graph tools and "
    "speedscope\n"
    "            pprof       a profile for go tool pprof, speedscope and their like, packed by "
    "gzip\n"
    "            torch-snapshot  of one process: opens in PyTorch's memory_viz\n"
    "            csv         of one process and device: what memshim replay reads\n"
    "  --output  where to write it; default -, which is the terminal\n"
    "  --at      torch-snapshot: peak, oom, end, a time into the run such as 40m or 2.5s, or "
    "step:N;\n"
    "            default: the out-of-memory that ended the run, else the peak\n"
    "  --device  csv: of a process with several devices; default: the one with most events\n"
    "  --modules where to look for the program's libraries that are not at their own paths here, "
    "to\n"
    "            name what is in their code\n\n"
    "Without --format and --output it also writes the files that are missing: report.txt,\n"
    "report.json, timeline.json and report.html beside each trace whose process has ended.\n";

struct call {
    enum ms_form form;
    const char *output;  /* null: the terminal */
    const char *modules; /* null: none */
    struct ms_form_choice choice;
    bool plain; /* neither --format nor --output was given */
    struct ms_buffer traces;
};

/* ---- reading ---- */

static bool is_current(const struct ms_model *model, const char *name)
{
    char path[PATH_MAX];
    struct stat report, trace;

    return snprintf(path, sizeof(path), "%s/%s", model->dir, name) < (int)sizeof(path) &&
           stat(path, &report) == 0 && stat(model->path, &trace) == 0 &&
           (report.st_mtim.tv_sec > trace.st_mtim.tv_sec ||
            (report.st_mtim.tv_sec == trace.st_mtim.tv_sec &&
             report.st_mtim.tv_nsec >= trace.st_mtim.tv_nsec));
}

/* Stores through a mapping leave no time on a file: only a trace that was closed in order, which
 * stamps it, can tell that its reports are of its end. */
static bool wants_files(const struct ms_model *model)
{
    return model->end == MS_PROCESS_KILLED ||
           (model->end == MS_PROCESS_ENDED &&
            !(is_current(model, MS_REPORT_TEXT) && is_current(model, MS_REPORT_JSON) &&
              is_current(model, MS_REPORT_TIMELINE)));
}

static int save_in(const struct ms_buffer *out, const char *dir, const char *name)
{
    char path[PATH_MAX];
    int error = ENAMETOOLONG;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path)) {
        error = ms_buffer_save(out, path);
    }
    if (error) {
        (void)fprintf(stderr, "memshim report: %s/%s cannot be written: %s\n", dir, name,
                      strerror(error));
    }
    return error;
}

/* The page of one process. Here and not in ms_report_save, which the preloaded library has, too: it
 * would carry a page of 300 KB into every process, and write it while a job waits for its end. */
static bool save_page(const struct ms_model *model)
{
    struct ms_buffer out = {0};
    struct ms_merged alone;
    struct ms_page page;
    bool saved;

    ms_merged_begin(&alone);
    ms_merged_add(&alone, model);
    ms_page_begin(&page, &out, 1);
    ms_forms_add_page(&page, model);
    ms_page_end(&page, &alone);
    saved = save_in(&out, model->dir, MS_REPORT_PAGE) == 0;
    ms_buffer_free(&out);
    ms_merged_free(&alone);
    return saved;
}

static bool wants_page(const struct ms_model *model)
{
    return model->end == MS_PROCESS_KILLED ||
           (model->end == MS_PROCESS_ENDED && !is_current(model, MS_REPORT_PAGE));
}

struct reading {
    const char *modules; /* null: none */
    bool write_files;    /* that are missing beside the traces */
    bool survey;         /* of this depth is wanted; the files need a whole one */
    enum ms_survey_depth depth;
};

/* Reads every trace once. `each` (may be null) sees each model. False where one could not be read
 * or its files not be written; what could is in `merged`. */
static bool read_traces(const struct ms_buffer *traces, const struct reading *how,
                        struct ms_merged *merged,
                        void (*each)(void *ctx, const struct ms_model *model), void *ctx)
{
    bool whole = true;

    for (size_t i = 0; i < ms_traces_count(traces); i++) {
        char why[WHY_BYTES] = "";

        ms_progress_begin();

        struct ms_model *model = ms_model_new(ms_traces_at(traces, i), why, sizeof(why));

        if (!model) {
            ms_progress_end();
            (void)fprintf(stderr, "memshim report: %s\n", why);
            whole = false;
            continue;
        }
        ms_model_name_sites(model, MS_STACKS_LINES, how->modules);
        if (how->survey || how->write_files) {
            ms_model_survey(model, how->write_files ? MS_SURVEY_WHOLE : how->depth);
            ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
        }
        ms_progress_end();
        if (how->write_files && wants_files(model) && !ms_report_save(model, why, sizeof(why))) {
            (void)fprintf(stderr, "memshim report: %s\n", why);
            whole = false;
        }
        if (how->write_files && wants_page(model)) {
            whole &= save_page(model);
        }
        ms_merged_add(merged, model);
        if (each) {
            each(ctx, model);
        }
        ms_model_delete(model);
    }
    return whole;
}

/* ---- a run's own files ---- */

static bool save_merged(const struct ms_merged *merged, const char *run_dir, const char *name,
                        void (*format)(const struct ms_merged *, struct ms_buffer *))
{
    struct ms_buffer out = {0};
    int error;

    format(merged, &out);
    error = save_in(&out, run_dir, name);
    ms_buffer_free(&out);
    return error == 0;
}

static void add_to_page(void *ctx, const struct ms_model *model)
{
    ms_forms_add_page(ctx, model);
}

int ms_report_complete(const char *run_dir)
{
    const struct reading how = {.write_files = true};
    struct ms_buffer traces = {0}, html = {0};
    struct ms_merged merged;
    struct ms_page page;
    char why[WHY_BYTES] = "";
    bool whole;

    ms_merged_begin(&merged);
    if (!ms_traces_find(run_dir, &traces, why, sizeof(why))) {
        (void)fprintf(stderr, "memshim report: %s\n", why);
        whole = false;
    } else {
        ms_page_begin(&page, &html, ms_traces_count(&traces));
        whole = read_traces(&traces, &how, &merged, add_to_page, &page);
        ms_page_end(&page, &merged);
        if (merged.ranks.bytes > 0) {
            whole &= save_merged(&merged, run_dir, MS_REPORT_JSON, ms_merged_json) &&
                     save_merged(&merged, run_dir, MS_REPORT_TEXT, ms_merged_text) &&
                     save_in(&html, run_dir, MS_REPORT_PAGE) == 0;
        }
    }
    ms_merged_free(&merged);
    ms_buffer_free(&html);
    ms_buffer_free(&traces);
    return whole ? 0 : -1;
}

/* ---- the command ---- */

static int wrong(const char *what, const char *given)
{
    (void)fprintf(stderr, "memshim report: %s '%s' (memshim report --help)\n", what, given);
    return WRONG_CALL;
}

static bool take_device(const char *text, int *device)
{
    char *end;
    const long number = strtol(text, &end, 10);

    *device = (int)number;
    return end != text && *end == '\0' && number >= 0 && number < MS_DEVICE_COUNT;
}

/* A word that begins with a dash. -1 where it is good, else the exit status. */
static int parse_option(const char *word, const char *next, struct call *call, bool *took_next)
{
    const char *form = ms_cli_value("--format", word, next);
    const char *output = ms_cli_value("--output", word, next);
    const char *modules = ms_cli_value("--modules", word, next);
    const char *device = ms_cli_value("--device", word, next);
    const char *at = ms_cli_value("--at", word, next);

    if (!form && !output && !modules && !device && !at) {
        return wrong("there is no option", word);
    }
    if (form && !ms_form_find(form, &call->form)) {
        return wrong("--format is " MS_FORM_NAMES ", not", form);
    }
    if (device && !take_device(device, &call->choice.device)) {
        return wrong("--device wants a device's number, 0 to 63, not", device);
    }
    if (at && !ms_moment_parse(at, &call->choice.moment)) {
        return wrong("--at is " MS_MOMENT_WORDS ", not", at);
    }
    call->choice.at |= at != NULL;
    if (output && output[0] == '\0') {
        return wrong("--output wants a file, or - for the terminal, not", output);
    }
    if (output) {
        call->output = strcmp(output, "-") == 0 ? NULL : output;
    }
    if (modules && !ms_cli_is_folder(modules)) {
        return wrong("--modules wants a folder, not", modules);
    }
    call->modules = modules ? modules : call->modules;
    call->plain &= modules != NULL;
    *took_next = !strchr(word, '=');
    return -1;
}

/* -1 where the call is good so far, else the exit status. */
static int parse(int argc, char **argv, struct call *call)
{
    bool paths_only = false;

    call->plain = true;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const bool option = !paths_only && word[0] == '-' && word[1] != '\0';
        char why[WHY_BYTES] = "";
        bool took_next = false;
        int status = -1;

        if (option && strcmp(word, "--") == 0) {
            paths_only = true;
        } else if (option && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            (void)fputs(usage, stdout);
            status = 0;
        } else if (option) {
            status = parse_option(word, i + 1 < argc ? argv[i + 1] : NULL, call, &took_next);
        } else if (!ms_traces_find(word, &call->traces, why, sizeof(why))) {
            (void)fprintf(stderr, "memshim report: %s\n", why);
            status = 1;
        }
        if (status >= 0) {
            return status;
        }
        i += took_next;
    }
    return -1;
}

/* What another form would leave unused without a word. -1 where there is none, else the status. */
static int check_choice(const struct call *call)
{
    if (call->choice.at && call->form != MS_FORM_SNAPSHOT) {
        return wrong("--at is for --format torch-snapshot (memshim diff takes RUN@MOMENT), not for",
                     ms_form_name(call->form));
    }
    if (call->choice.device >= 0 && call->form != MS_FORM_CSV) {
        return wrong("--device is for --format csv, not for", ms_form_name(call->form));
    }
    return -1;
}

static int find_latest(struct call *call)
{
    const char *output = getenv("MEMSHIM_OUTPUT");
    char why[WHY_BYTES] = "", latest[PATH_MAX];

    if (!output || !output[0]) {
        output = DEFAULT_OUTPUT;
    }
    if (snprintf(latest, sizeof(latest), "%s/latest", output) >= (int)sizeof(latest) ||
        !ms_traces_find(latest, &call->traces, why, sizeof(why))) {
        (void)fprintf(stderr,
                      "memshim report: no run is found in %s (%s); name the folder of one, or set "
                      "MEMSHIM_OUTPUT\n",
                      output, why);
        return 1;
    }
    return -1;
}

static bool put(const struct call *call, const struct ms_buffer *out)
{
    const char *name = call->output ? call->output : "the standard output";
    int error = 0;

    (void)fflush(stdout);
    if (!call->output) {
        error = ms_buffer_write(out, STDOUT_FILENO);
    } else {
        const int fd = open(call->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        error = fd < 0 ? errno : ms_buffer_write(out, fd);
        if (fd >= 0 && close(fd) != 0 && !error) {
            error = errno;
        }
    }
    if (error) {
        (void)fprintf(stderr, "memshim report: %s cannot be written: %s\n", name, strerror(error));
    }
    return error == 0;
}

static int write_report(const struct call *call)
{
    const struct reading how = {.modules = call->modules,
                                .write_files = call->plain,
                                .survey = ms_form_wants_survey(call->form),
                                .depth =
                                    call->form == MS_FORM_HTML ? MS_SURVEY_WHOLE : MS_SURVEY_SUMS};
    struct ms_forms forms;
    struct ms_merged merged;
    bool good;

    ms_forms_begin(&forms, call->form, ms_traces_count(&call->traces), &call->choice);
    ms_merged_begin(&merged);
    good = read_traces(&call->traces, &how, &merged, ms_forms_take, &forms);
    if (forms.processes == 0) {
        good = false;
    } else {
        good &= ms_forms_end(&forms, &merged) && put(call, &forms.out);
    }
    ms_forms_free(&forms);
    ms_merged_free(&merged);
    return good ? 0 : 1;
}

int ms_cli_report(int argc, char **argv)
{
    struct call call = {.choice.device = -1};
    int status = parse(argc, argv, &call);

    if (status < 0) {
        status = check_choice(&call);
    }
    if (status < 0 && call.traces.bytes == 0) {
        status = find_latest(&call);
    }
    if (status < 0 && ms_form_is_of_one(call.form) && ms_traces_count(&call.traces) > 1) {
        (void)fprintf(stderr,
                      "memshim report: this form is of one process, and there are %zu; name the "
                      "folder of one, such as %s\n",
                      ms_traces_count(&call.traces), ms_traces_at(&call.traces, 0));
        status = WRONG_CALL;
    }
    if (status < 0) {
        status = write_report(&call);
    }
    ms_buffer_free(&call.traces);
    return status;
}
