/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a report consists of, beside the trace, and those of a whole run. For the command
 * line: errors go to stderr. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_REPORT_FILES_H
#define MEMSHIM_SHIM_CLI_LAUNCH_REPORT_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/buffer.h"
#include "report/model/model.h"
#include "report/model/survey/take.h"
#include "report/render/merged.h"

struct ms_forms;

/* How traces are read. */
struct ms_report_reading {
    const char *modules; /* null: none */
    bool write_files;    /* that are missing beside the traces */
    bool survey;         /* of this depth is wanted; the files need a whole one */
    enum ms_survey_depth depth;
    bool no_source; /* the page is written without lines of source, also where one stands */
};

/* Reads every trace (struct ms_trace_path) once. `each` (may be null) sees each model. False where
 * one could not be read or its files not be written; what could is in `merged`. */
bool ms_report_read(const struct ms_buffer *traces, const struct ms_report_reading *how,
                    struct ms_merged *merged, void (*each)(void *ctx, const struct ms_model *model),
                    void *ctx);

/* Says on stderr what a form has complained of since it was asked last. */
void ms_forms_say(struct ms_forms *forms);

/* Completes the form, and says what it complains of. False where it failed. */
bool ms_forms_finish(struct ms_forms *forms, const struct ms_merged *merged);

/* Writes the files that are missing, or older than the trace, beside the trace in a process's
 * folder: report.txt last, each complete or not at all. Nothing where the process still runs. 0, or
 * -1 and a sentence in `why`. */
int ms_report_of_process(const char *dir, char *why, size_t why_bytes);

/* Whether the process's trace was closed, and its report.txt is no older: no reader is needed. */
bool ms_report_stands(const char *dir);

/* The page of one process, or of all of a run, in `path` (PATH_MAX bytes): in the folder of the
 * one, or in the run's. It is made where it does not stand there, or is older than a trace. 0, or
 * -1 and a sentence in `why`. */
int ms_report_page(const struct ms_buffer *traces, const char *modules, bool no_source, char *path,
                   char *why, size_t why_bytes);

/* Writes, into every process's folder of a run, the reports that are missing or older than what the
 * trace holds (a process that still runs gets none), and into `run_dir` one of all processes
 * together. 0, or -1 where one of them could not be made; the others are. */
int ms_report_complete(const char *run_dir);

#endif
