/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the memshim executable, as commands.def names them. Each takes what follows the
 * executable's name (argv[0] is the command) and returns the exit status: 0, 1 for what failed, 2
 * (MS_CLI_WRONG_CALL) for a wrong call; commands.def says what else. Errors go to stderr. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_CLI_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_CLI_H

#define MS_COMMAND(id, function, ...)        int function(int argc, char **argv);
#define MS_HIDDEN_COMMAND(id, function, ...) int function(int argc, char **argv);
#include "shim/cli/arguments/commands.def"

#endif
