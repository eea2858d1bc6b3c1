/* SPDX-License-Identifier: Apache-2.0 */
/* The first reading of a trace, which makes a model. */
#ifndef MEMSHIM_REPORT_MODEL_READING_READ_MODEL_H
#define MEMSHIM_REPORT_MODEL_READING_READ_MODEL_H

#include <stddef.h>

#include "report/model/model.h"

/* Reads the trace at `path` (a file, or the folder that holds trace.mshm). Null, with a sentence in
 * `why` that names the file: nothing can be read. A damaged trace gives what is readable, and
 * warnings. ms_model_delete frees it. */
struct ms_model *ms_model_new(const char *path, char *why, size_t why_bytes);

#endif
