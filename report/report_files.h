/* The files that a report consists of, beside the trace. */
#ifndef MEMSHIM_REPORT_REPORT_FILES_H
#define MEMSHIM_REPORT_REPORT_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "report/model.h"

#define MS_REPORT_TEXT     "report.txt"
#define MS_REPORT_JSON     "report.json"
#define MS_REPORT_TIMELINE "timeline.json"
#define MS_REPORT_PAGE     "report.html" /* the CLI's: the traced process writes none */

/* Writes all but the page into the trace's folder, report.txt last, each complete or not at all. */
bool ms_report_save(const struct ms_model *model, char *why, size_t why_bytes);

#endif
