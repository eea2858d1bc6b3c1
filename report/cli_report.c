#include "report/cli_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/formats.h"
#include "report/merged.h"
#include "report/report_files.h"
#include "report/traces.h"

#define DEFAULT_OUTPUT "memshim-out"
#define WRONG_CALL     2
#define WHY_BYTES      (PATH_MAX + 512)

enum form { FORM_TEXT, FORM_JSON, FORM_TIMELINE, FORM_FOLDED, FORM_HTML };

static const char usage[] =
    "Usage: memshim report [DIR|TRACE...] [--format text|json|html|timeline|folded]\n"
    "                      [--output FILE|-] [--modules DIR]\n"
    "Says where the memory was, from the traces of processes that ended, were killed, or still run."
    "\n\n"
    "  DIR       an output folder (its latest run), a run's folder (all its processes together) "
    "or\n"
    "            a process's folder; default: the latest run in MEMSHIM_OUTPUT, or in memshim-out\n"
    "  TRACE     a trace.mshm\n"
    "  --format  text (default), json (report/schema.json), html (a page for the\n"
    "            browser, one file), timeline (opens in Perfetto) or folded\n"
    "            (stacks of what was live at the peak, for flame-graph tools and speedscope)\n"
    "  --output  where to write it; default -, which is the terminal\n"
    "  --modules where to look for the program's libraries that are not at their own paths here, "
    "to\n"
    "            name what is in their code\n\n"
    "Without --format and --output it also writes the files that are missing: report.txt,\n"
    "report.json, timeline.json and report.html beside each trace whose process has ended.\n";

struct call {
    enum form form;
    const char *output;  /* null: the terminal */
    const char *modules; /* null: none */
    bool plain;          /* neither --format nor --output was given */
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
    ms_page_add(&page, model);
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

/* Reads every trace once. `each` (may be null) sees each model. False where one could not be read
 * or its files not be written; what could is in `merged`. */
static bool read_traces(const struct ms_buffer *traces, const char *modules, bool write_files,
                        struct ms_merged *merged,
                        void (*each)(void *ctx, const struct ms_model *model), void *ctx)
{
    bool whole = true;

    for (size_t i = 0; i < ms_traces_count(traces); i++) {
        char why[WHY_BYTES] = "";
        struct ms_model *model = ms_model_new(ms_traces_at(traces, i), why, sizeof(why));

        if (!model) {
            (void)fprintf(stderr, "memshim report: %s\n", why);
            whole = false;
            continue;
        }
        ms_model_name_sites(model, MS_STACKS_LINES, modules);
        if (write_files && wants_files(model) && !ms_report_save(model, why, sizeof(why))) {
            (void)fprintf(stderr, "memshim report: %s\n", why);
            whole = false;
        }
        if (write_files && wants_page(model)) {
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
    ms_page_add(ctx, model);
}

int ms_report_complete(const char *run_dir)
{
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
        whole = read_traces(&traces, NULL, true, &merged, add_to_page, &page);
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

static bool find_form(const char *name, enum form *form)
{
    static const char *const names[] = {[FORM_TEXT] = "text",
                                        [FORM_JSON] = "json",
                                        [FORM_TIMELINE] = "timeline",
                                        [FORM_FOLDED] = "folded",
                                        [FORM_HTML] = "html"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            *form = (enum form)i;
            return true;
        }
    }
    return false;
}

/* The value of "--name=VALUE", or of "--name VALUE", where `next` is the word after; empty where it
 * is missing. Null where `word` is another one. */
static const char *value_of(const char *name, const char *word, const char *next)
{
    const size_t length = strlen(name);

    if (strncmp(word, name, length) != 0) {
        return NULL;
    }
    if (word[length] == '=') {
        return word + length + 1;
    }
    if (word[length] != '\0') {
        return NULL;
    }
    return next ? next : "";
}

/* A word that begins with a dash. -1 where it is good, else the exit status. */
static int parse_option(const char *word, const char *next, struct call *call, bool *took_next)
{
    const char *form = value_of("--format", word, next);
    const char *output = value_of("--output", word, next);
    const char *modules = value_of("--modules", word, next);

    if (!form && !output && !modules) {
        return wrong("there is no option", word);
    }
    if (form && !find_form(form, &call->form)) {
        return wrong("--format is text, json, html, timeline or folded, not", form);
    }
    if (output && output[0] == '\0') {
        return wrong("--output wants a file, or - for the terminal, not", output);
    }
    if (output) {
        call->output = strcmp(output, "-") == 0 ? NULL : output;
    }
    if (modules && modules[0] == '\0') {
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

/* One process gives its own report, several a merged one. */
struct output {
    const struct call *call;
    struct ms_buffer single; /* of the last process */
    struct ms_buffer all;    /* the timeline, the stacks or the page of all processes */
    struct ms_json json;
    struct ms_page page;
    int64_t processes;
};

static void add_folded(struct output *output, const struct ms_model *model)
{
    const struct ms_file_header *header = &model->header;
    char name[MS_PROGRAM_BYTES + MS_HOST_BYTES + 64] = "";

    if (ms_traces_count(&output->call->traces) > 1 && header->rank >= 0) {
        snprintf(name, sizeof(name), "rank %d", (int)header->rank);
    } else if (ms_traces_count(&output->call->traces) > 1) {
        snprintf(name, sizeof(name), "%s pid %d on %s", header->program, (int)header->pid,
                 header->host);
    }
    ms_folded_add(&output->all, model, name);
}

static void take_model(void *ctx, const struct ms_model *model)
{
    struct output *output = ctx;

    if (output->call->form == FORM_TIMELINE) {
        const uint64_t start_unix_ns = model->header.start_unix_ns;
        const bool several = ms_traces_count(&output->call->traces) > 1;

        if (output->processes == 0) {
            ms_timeline_begin(&output->json, start_unix_ns, model->header.command);
        }
        /* Several processes meet on the wall clock, and two hosts may have the same pid. */
        ms_timeline_add(&output->json, model, several ? 0 : start_unix_ns,
                        several ? output->processes + 1 : model->header.pid);
    } else if (output->call->form == FORM_FOLDED) {
        add_folded(output, model);
    } else if (output->call->form == FORM_HTML) {
        if (output->processes == 0) {
            ms_page_begin(&output->page, &output->all, ms_traces_count(&output->call->traces));
        }
        ms_page_add(&output->page, model);
    } else {
        ms_buffer_free(&output->single);
        (output->call->form == FORM_JSON ? ms_format_json : ms_format_text)(model, &output->single);
    }
    output->processes++;
}

static int put(const struct call *call, const struct ms_buffer *out)
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
    return error ? 1 : 0;
}

static int write_report(const struct call *call)
{
    struct output output = {.call = call};
    struct ms_merged merged;
    struct ms_buffer out = {0};
    int status;

    output.json = (struct ms_json){.out = &output.all, .dense = true};
    ms_merged_begin(&merged);
    status = read_traces(&call->traces, call->modules, call->plain, &merged, take_model, &output)
                 ? 0
                 : 1;
    if (output.processes == 0) {
        status = 1;
    } else if (output.all.bytes > 0) {
        if (call->form == FORM_TIMELINE) {
            ms_timeline_end(&output.json);
        } else if (call->form == FORM_HTML) {
            ms_page_end(&output.page, &merged);
        }
        status |= put(call, &output.all);
    } else if (output.processes == 1) {
        status |= put(call, &output.single);
    } else {
        (call->form == FORM_JSON ? ms_merged_json : ms_merged_text)(&merged, &out);
        status |= put(call, &out);
    }
    ms_buffer_free(&out);
    ms_buffer_free(&output.single);
    ms_buffer_free(&output.all);
    ms_merged_free(&merged);
    return status;
}

int ms_cli_report(int argc, char **argv)
{
    struct call call = {0};
    int status = parse(argc, argv, &call);

    if (status < 0 && call.traces.bytes == 0) {
        status = find_latest(&call);
    }
    if (status < 0) {
        status = write_report(&call);
    }
    ms_buffer_free(&call.traces);
    return status;
}
