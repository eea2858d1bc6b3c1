/* SPDX-License-Identifier: Apache-2.0 */
/* Where a command writes its output. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_OUTPUT_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_OUTPUT_H

#include <stdbool.h>

#include "shim/cli/arguments/commands.h"

/* Writes it to the file, or to stdout if `path` is "-". Prints an error and returns false on
 * failure. */
bool ms_cli_put(enum ms_cli_command_id command, const struct ms_buffer *out, const char *path);

#endif
