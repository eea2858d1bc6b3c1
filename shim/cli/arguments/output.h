/* SPDX-License-Identifier: Apache-2.0 */
/* Where a command puts what it has made. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_OUTPUT_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_OUTPUT_H

#include <stdbool.h>

#include "shim/cli/arguments/commands.h"

/* Writes it to the file, or to the standard output where `path` is "-". What goes wrong is said;
 * false then. */
bool ms_cli_put(enum ms_cli_command_id command, const struct ms_buffer *out, const char *path);

#endif
