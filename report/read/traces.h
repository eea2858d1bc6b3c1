/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the traces that a path means. */
#ifndef MEMSHIM_REPORT_READ_TRACES_H
#define MEMSHIM_REPORT_READ_TRACES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/buffer.h"

/* One process: the folder that holds its trace, or the trace file itself. */
struct ms_trace_path {
    char path[PATH_MAX];
};

/* Adds to `found` (struct ms_trace_path) the traces that `path` means: a trace file; a process's
 * folder; a run's folder (every process in it, in the order of rank and name); an output folder
 * (its latest run). False, with a sentence in `why` that names the path: there is none. */
bool ms_traces_find(const char *path, struct ms_buffer *found, char *why, size_t why_bytes);

static inline size_t ms_traces_count(const struct ms_buffer *found)
{
    return found->bytes / sizeof(struct ms_trace_path);
}

static inline const char *ms_traces_at(const struct ms_buffer *found, size_t index)
{
    return ((const struct ms_trace_path *)found->at)[index].path;
}

#endif
