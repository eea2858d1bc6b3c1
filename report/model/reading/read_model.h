/* SPDX-License-Identifier: Apache-2.0 */
/* The first reading of a trace: what makes a model of it. */
#ifndef MEMSHIM_REPORT_MODEL_READING_READ_MODEL_H
#define MEMSHIM_REPORT_MODEL_READING_READ_MODEL_H

#include <stddef.h>

#include "report/model/model.h"

/* Reads the trace at `path` (a file, or the folder that holds trace.mshm). Null and a sentence in
 * `why` that names the file where nothing can be read; a damaged trace gives what it holds, and
 * warnings. ms_model_delete ends it. */
struct ms_model *ms_model_new(const char *path, char *why, size_t why_bytes);

#endif
