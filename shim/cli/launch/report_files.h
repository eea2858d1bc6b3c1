/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of a report beside the trace, and those of a whole run. For the command line:
 * errors go to stderr. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_REPORT_FILES_H
#define MEMSHIM_SHIM_CLI_LAUNCH_REPORT_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/buffer.h"
#include "report/model/model.h"
#include "report/model/survey/take.h"
#include "report/render/merged/merged.h"

struct ms_forms;

/* How traces are read. */
struct ms_report_reading {
    const char *modules; /* null: none */
    bool write_files;    /* those that are missing beside the traces */
    bool survey;         /* the depth that is wanted; writing files needs the full one */
    enum ms_survey_depth depth;
    const char *run_dir; /* files of all processes together go there, if they are missing or old;
                            null: none are made */
    bool unfinished;     /* also while one of the processes still runs */
    bool no_source;      /* writes the page without source lines, even if one exists already */
};

/* Reads every trace (struct ms_trace_path) once, and calls `each` (may be null) with each model.
 * False if one could not be read, or its files not written; `merged` has the others. */
bool ms_report_read(const struct ms_buffer *traces, const struct ms_report_reading *how,
                    struct ms_merged *merged, void (*each)(void *ctx, const struct ms_model *model),
                    void *ctx);

/* Prints a form's warnings since the last call to stderr. */
void ms_forms_say(struct ms_forms *forms);

/* Completes the form, and prints its warnings. False if it failed. */
bool ms_forms_finish(struct ms_forms *forms, const struct ms_merged *merged);

/* Writes the files that are missing, or older than the trace, beside the trace in a process's
 * folder: report.txt last, each complete or not at all. Does nothing while the process runs. 0, or
 * -1 and a sentence in `why`. */
int ms_report_of_process(const char *dir, char *why, size_t why_bytes);

/* Whether the process's trace was closed and its report.txt is not older: then nothing need be
 * read. */
bool ms_report_stands(const char *dir);

/* Into `folder`, the folder of a run if the traces are all of its processes, two or more. */
bool ms_report_run_folder(const struct ms_buffer *traces, char folder[PATH_MAX]);

/* Finds the page of one process, or of a whole run, in the process's folder or the run's; its path
 * goes to `path` (PATH_MAX bytes). Makes it if it is missing, or older than a trace. 0, or -1 and a
 * sentence in `why`. */
int ms_report_page(const struct ms_buffer *traces, const char *modules, bool no_source, char *path,
                   char *why, size_t why_bytes);

/* Writes the reports that are missing or older than the trace into every process's folder of a run
 * (except for processes that still run), and one of all processes together into `run_dir`. 0, or -1
 * if one of them could not be made; the others are. */
int ms_report_complete(const char *run_dir);

#endif
