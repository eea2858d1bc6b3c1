/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the tables in several forms, all to stdout. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_PRINT_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_PRINT_H

#include "shim/cli/arguments/commands.h"

/* The list of commands. */
void ms_cli_print_overview(void);

/* --help of one command. */
void ms_cli_print_help(enum ms_cli_command_id command);

/* The manual page of one command, or of memshim itself (MS_CLI_COMMANDS), as roff for man(7). */
void ms_cli_print_man(enum ms_cli_command_id command);

/* The completion for "bash", "zsh" or "fish"; false for another shell. */
bool ms_cli_print_completion(const char *shell);

#endif
