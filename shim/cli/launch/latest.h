/* SPDX-License-Identifier: Apache-2.0 */
/* Where traces are, unless a command names a place. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_LATEST_H
#define MEMSHIM_SHIM_CLI_LAUNCH_LATEST_H

#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/buffer.h"

/* MEMSHIM_OUTPUT, or the default; it may be a relative path. */
const char *ms_cli_output_folder(void);

/* Finds the traces (struct ms_trace_path) of the latest run there. False if there is none, and a
 * sentence in `why` that ends with what to do; `or_name`: what the user may name besides a
 * folder. */
bool ms_cli_find_latest(struct ms_buffer *found, const char *or_name, char *why, size_t why_bytes);

#endif
