/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the memshim executable, as in commands.def. Each takes the arguments after the
 * executable's name (argv[0] is the command) and returns the exit status: 0, 1 on failure, 2
 * (MS_CLI_WRONG_CALL) for a wrong call; commands.def has other values. Errors go to stderr. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_CLI_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_CLI_H

#define MS_COMMAND(id, function, ...)        int function(int argc, char **argv);
#define MS_HIDDEN_COMMAND(id, function, ...) int function(int argc, char **argv);
#include "shim/cli/arguments/commands.def"

#endif
