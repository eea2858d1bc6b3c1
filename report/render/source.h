/* SPDX-License-Identifier: Apache-2.0 */
/* A few lines of source around a frame's line, for the page. They are read when the report is made,
 * from a file that the trace names. A trace may come from a stranger, so it shows only Python
 * sources from before the run, reached without symbolic links, whose name does not suggest a
 * secret. */
#ifndef MEMSHIM_REPORT_RENDER_SOURCE_H
#define MEMSHIM_REPORT_RENDER_SOURCE_H

#include <stdbool.h>

#include "allocator/base/json.h"
#include "report/model/model.h"

/* Null: the run's options allow it (MEMSHIM_SOURCE); else a clause that says why not. */
const char *ms_source_forbidden(const struct ms_model *model);

/* Whether the file's name suggests a secret, so that it is left out. Pure. */
bool ms_source_looks_secret(const char *path);

/* An object in an array: file, line, function, and either `first` and `lines`, or `why` not.
 * before_unix_ns: a file changed later is not the one that ran. */
void ms_source_json(struct ms_json *json, const struct ms_frame *frame, uint64_t before_unix_ns);

#endif
