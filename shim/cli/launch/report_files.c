/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of a report beside the traces, and those of a whole run. */
#include "shim/cli/launch/report_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "report/model/reading/read_model.h"
#include "report/model/verdict/what_if.h"
#include "report/read/progress.h"
#include "report/read/traces.h"
#include "report/render/forms.h"
#include "report/trace/format.h"
#include "shim/cli/arguments/complain.h"

#define WHY_BYTES (PATH_MAX + 512)

void ms_forms_say(struct ms_forms *forms)
{
    const struct ms_buffer *lines = &forms->complaints;

    for (size_t i = 0; i < lines->bytes; i += strlen(lines->at + i) + 1) {
        ms_complain("memshim report: %s", lines->at + i);
    }
    forms->complaints.bytes = 0;
}

bool ms_forms_finish(struct ms_forms *forms, const struct ms_merged *merged)
{
    const bool good = ms_forms_end(forms, merged);

    ms_forms_say(forms);
    return good;
}

/* ---- one process ---- */

/* Writes through a mapping do not update a file's time. Only a trace that was closed properly,
 * which sets the time, can show that its reports are of its end. */
static bool is_current(const char *dir, const struct stat *trace, const char *name)
{
    char path[PATH_MAX];
    struct stat report;

    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
           stat(path, &report) == 0 &&
           (report.st_mtim.tv_sec > trace->st_mtim.tv_sec ||
            (report.st_mtim.tv_sec == trace->st_mtim.tv_sec &&
             report.st_mtim.tv_nsec >= trace->st_mtim.tv_nsec));
}

bool ms_report_stands(const char *dir)
{
    char path[PATH_MAX];
    struct stat trace;

    return snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, dir) < (int)sizeof(path) &&
           stat(path, &trace) == 0 && is_current(dir, &trace, ms_form_rows[MS_FORM_TEXT].file);
}

static bool wants_file(const struct ms_model *model, enum ms_form form, bool no_source)
{
    const char *name = ms_form_rows[form].file;
    struct stat trace;

    if (!name || model->end == MS_PROCESS_RUNNING) {
        return false;
    }
    return model->end != MS_PROCESS_ENDED || (no_source && ms_form_has(form, MS_FORM_HAS_SOURCE)) ||
           !(stat(model->path, &trace) == 0 && is_current(model->dir, &trace, name));
}

static bool save(const struct ms_buffer *out, const char *dir, const char *name, char *why,
                 size_t why_bytes)
{
    char path[PATH_MAX];
    int error = ENAMETOOLONG;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path)) {
        error = ms_buffer_save(out, path);
    }
    if (error) {
        (void)snprintf(why, why_bytes, "%s/%s cannot be written: %s", dir, name, strerror(error));
    }
    return error == 0;
}

/* Writes one form for one process, beside its trace. */
static bool save_form(enum ms_form form, const struct ms_model *model, bool no_source,
                      const struct ms_merged *alone, char *why, size_t why_bytes)
{
    const struct ms_form_choice choice = {.device = -1, .no_source = no_source};
    struct ms_forms forms;
    bool saved = false;

    ms_forms_begin(&forms, form, 1, &choice);
    ms_forms_take(&forms, model);
    if (!ms_forms_finish(&forms, alone)) {
        (void)snprintf(why, why_bytes, "%s/%s cannot be made", model->dir, ms_form_rows[form].file);
    } else {
        saved = save(&forms.out, model->dir, ms_form_rows[form].file, why, why_bytes);
    }
    ms_forms_free(&forms);
    return saved;
}

/* From the last row of the table to the first, which is the text: if that exists, all exist. */
static bool write_files(const struct ms_model *model, bool no_source, char *why, size_t why_bytes)
{
    struct ms_merged alone;
    bool whole = true;

    ms_merged_begin(&alone);
    ms_merged_add(&alone, model);
    for (int form = MS_FORM_COUNT - 1; whole && form >= 0; form--) {
        if (wants_file(model, (enum ms_form)form, no_source)) {
            whole = save_form((enum ms_form)form, model, no_source, &alone, why, why_bytes);
        }
    }
    ms_merged_free(&alone);
    return whole;
}

/* The verdict of fragmentation names what pins the holes, which needs the addresses. So every form
 * surveys them then, and all forms agree. */
static enum ms_survey_depth depth_of(const struct ms_model *model,
                                     const struct ms_report_reading *how)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    const bool asks = fatal && fatal->verdict == MS_VERDICT_FRAGMENTATION;

    return how->write_files || asks ? MS_SURVEY_WHOLE : how->depth;
}

/* Null, and a sentence in `why`, if the trace cannot be read. */
static struct ms_model *read_trace(const char *path, const struct ms_report_reading *how, char *why,
                                   size_t why_bytes)
{
    struct ms_model *model = ms_model_new(path, why, why_bytes);

    if (model) {
        ms_model_name_sites(model, MS_STACKS_LINES, how->modules);
    }
    if (model && (how->survey || how->write_files)) {
        ms_what_if_expect(model, MS_WHAT_IF_OPERATIONS);
        ms_model_survey(model, depth_of(model, how));
        ms_progress_note("trying other caps", 0, 1);
        ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    }
    return model;
}

int ms_report_of_process(const char *dir, char *why, size_t why_bytes)
{
    const struct ms_report_reading how = {.write_files = true};
    struct ms_model *model = read_trace(dir, &how, why, why_bytes);
    bool written = false;

    if (model) {
        written = write_files(model, false, why, why_bytes);
        ms_model_delete(model);
    }
    return written ? 0 : -1;
}

/* ---- the folder of a run ---- */

/* The folder of a trace, which may itself be a trace's folder. */
static void folder_of(const char *trace, char folder[PATH_MAX])
{
    struct stat status;
    char *slash;

    (void)snprintf(folder, PATH_MAX, "%s", trace);
    slash = strrchr(folder, '/');
    if (slash && stat(trace, &status) == 0 && !S_ISDIR(status.st_mode)) {
        *slash = '\0';
    }
}

static bool is_whole_run(const struct ms_buffer *traces, const char *folder)
{
    struct ms_buffer all = {0};
    char why[WHY_BYTES];
    const bool whole = ms_traces_find(folder, &all, why, sizeof(why)) &&
                       ms_traces_count(&all) == ms_traces_count(traces);

    ms_buffer_free(&all);
    return whole;
}

bool ms_report_run_folder(const struct ms_buffer *traces, char folder[PATH_MAX])
{
    char other[PATH_MAX];

    for (size_t i = 0; i < ms_traces_count(traces); i++) {
        char *into = i == 0 ? folder : other;
        char *slash;

        folder_of(ms_traces_at(traces, i), into);
        slash = strrchr(into, '/');
        if (!slash || slash == into) {
            return false;
        }
        *slash = '\0';
        if (i > 0 && strcmp(folder, other) != 0) {
            return false;
        }
    }
    return ms_traces_count(traces) > 1 && is_whole_run(traces, folder);
}

/* Whether the form's file in that folder is not older than any of the traces, all of which are
 * closed. */
static bool form_stands(const struct ms_buffer *traces, const char *form_folder, enum ms_form form)
{
    for (size_t i = 0; i < ms_traces_count(traces); i++) {
        char folder[PATH_MAX], path[PATH_MAX];
        struct stat trace;

        folder_of(ms_traces_at(traces, i), folder);
        if (!ms_report_stands(folder) ||
            snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, folder) >= (int)sizeof(path) ||
            stat(path, &trace) != 0 || !is_current(form_folder, &trace, ms_form_rows[form].file)) {
            return false;
        }
    }
    return true;
}

/* ---- a run's own files ---- */

static bool save_of_run(const struct ms_buffer *out, const char *run_dir, const char *name)
{
    char why[WHY_BYTES] = "";
    const bool saved = save(out, run_dir, name, why, sizeof(why));

    if (!saved) {
        ms_complain("memshim report: %s", why);
    }
    return saved;
}

struct run_files {
    struct ms_forms forms[MS_FORM_COUNT]; /* those in a run's folder */
};

static void begin_run(struct run_files *files, size_t processes, bool no_source)
{
    const struct ms_form_choice choice = {.device = -1, .no_source = no_source};

    for (int form = 0; form < MS_FORM_COUNT; form++) {
        ms_forms_begin(&files->forms[form], (enum ms_form)form, processes, &choice);
        files->forms[form].of_run = true;
    }
}

static void free_run(struct run_files *files)
{
    for (int form = 0; form < MS_FORM_COUNT; form++) {
        ms_forms_free(&files->forms[form]);
    }
}

static void take_into_run(struct run_files *files, const struct ms_model *model)
{
    for (int form = 0; form < MS_FORM_COUNT; form++) {
        if (ms_form_has((enum ms_form)form, MS_FORM_OF_RUN)) {
            ms_forms_take(&files->forms[form], model);
            ms_forms_say(&files->forms[form]);
        }
    }
}

/* From the last row of the table to the first, which is the text: if that exists, all exist. */
static bool save_run(struct run_files *files, const struct ms_merged *merged, const char *run_dir)
{
    bool whole = true;

    for (int form = MS_FORM_COUNT - 1; form >= 0; form--) {
        struct ms_forms *forms = &files->forms[form];

        if (ms_form_has((enum ms_form)form, MS_FORM_OF_RUN) && forms->processes > 0) {
            whole &= ms_forms_finish(forms, merged) &&
                     save_of_run(&forms->out, run_dir, ms_form_rows[form].file);
        }
    }
    return whole;
}

/* ---- reading ---- */

static bool wants_run(const struct ms_buffer *traces, const struct ms_report_reading *how)
{
    return how->run_dir && (how->no_source || !form_stands(traces, how->run_dir, MS_FORM_TEXT));
}

bool ms_report_read(const struct ms_buffer *traces, const struct ms_report_reading *how,
                    struct ms_merged *merged, void (*each)(void *ctx, const struct ms_model *model),
                    void *ctx)
{
    const bool of_run = wants_run(traces, how);
    struct run_files files;
    bool whole = true;

    begin_run(&files, ms_traces_count(traces), how->no_source);
    for (size_t i = 0; i < ms_traces_count(traces); i++) {
        char why[WHY_BYTES] = "";

        ms_progress_begin(i + 1, ms_traces_count(traces));

        struct ms_model *model = read_trace(ms_traces_at(traces, i), how, why, sizeof(why));
        const bool good =
            model && (!how->write_files || write_files(model, how->no_source, why, sizeof(why)));

        ms_progress_end();
        if (!good) {
            ms_complain("memshim report: %s", why);
            whole = false;
        }
        if (!model) {
            continue;
        }
        ms_merged_add(merged, model);
        if (of_run) {
            take_into_run(&files, model);
        }
        if (each) {
            each(ctx, model);
        }
        ms_model_delete(model);
    }
    if (of_run && (how->unfinished || !ms_merged_runs(merged))) {
        whole &= save_run(&files, merged, how->run_dir);
    }
    free_run(&files);
    return whole;
}

int ms_report_complete(const char *run_dir)
{
    const struct ms_report_reading how = {
        .write_files = true, .run_dir = run_dir, .unfinished = true};
    struct ms_buffer traces = {0};
    struct ms_merged merged;
    char why[WHY_BYTES] = "";
    bool whole;

    if (!ms_traces_find(run_dir, &traces, why, sizeof(why))) {
        ms_complain("memshim report: %s", why);
        ms_buffer_free(&traces);
        return -1;
    }
    ms_merged_begin(&merged);
    whole = ms_report_read(&traces, &how, &merged, NULL, NULL);
    ms_merged_free(&merged);
    ms_buffer_free(&traces);
    return whole ? 0 : -1;
}

/* ---- the page for a person ---- */

static void take_into_page(void *ctx, const struct ms_model *model)
{
    ms_forms_take(ctx, model);
    ms_forms_say(ctx);
}

static bool make_page(const struct ms_buffer *traces, const char *modules, bool no_source,
                      const char *folder, char *why, size_t why_bytes)
{
    const struct ms_report_reading how = {
        .modules = modules, .survey = true, .depth = MS_SURVEY_WHOLE};
    const struct ms_form_choice choice = {.device = -1, .no_source = no_source};
    struct ms_merged merged;
    struct ms_forms forms;
    bool made;

    ms_forms_begin(&forms, MS_FORM_HTML, ms_traces_count(traces), &choice);
    ms_merged_begin(&merged);
    (void)ms_report_read(traces, &how, &merged, take_into_page, &forms);
    (void)snprintf(why, why_bytes, "no page can be made");
    made = forms.processes > 0 && ms_forms_finish(&forms, &merged) &&
           save(&forms.out, folder, ms_form_rows[MS_FORM_HTML].file, why, why_bytes);
    ms_forms_free(&forms);
    ms_merged_free(&merged);
    return made;
}

int ms_report_page(const struct ms_buffer *traces, const char *modules, bool no_source, char *path,
                   char *why, size_t why_bytes)
{
    char folder[PATH_MAX];

    if (ms_traces_count(traces) == 1) {
        folder_of(ms_traces_at(traces, 0), folder);
    } else if (!ms_report_run_folder(traces, folder)) {
        (void)snprintf(why, why_bytes,
                       "these are not all processes of one run; write one page of them by "
                       "--format html --output FILE");
        return -1;
    }
    if (snprintf(path, PATH_MAX, "%s/%s", folder, ms_form_rows[MS_FORM_HTML].file) >= PATH_MAX) {
        (void)snprintf(why, why_bytes, "the path is too long");
        return -1;
    }
    if (!(no_source && ms_traces_count(traces) > 1) && form_stands(traces, folder, MS_FORM_HTML)) {
        return 0;
    }
    return make_page(traces, modules, no_source, folder, why, why_bytes) ? 0 : -1;
}
