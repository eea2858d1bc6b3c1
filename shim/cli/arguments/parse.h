/* SPDX-License-Identifier: Apache-2.0 */
/* How every command reads its arguments: by getopt_long and its rows in commands.def. Options and
 * operands may come in any order, and -- ends the options. What is wrong is said on stderr, with
 * what was meant and where more is said. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_PARSE_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_PARSE_H

#include "shim/cli/arguments/commands.h"

struct ms_cli_reader {
    /* value: null where the option takes none. False where it is none that the option takes, which
     * is then said. Null: the command has no options. */
    bool (*option)(void *call, const struct ms_cli_option *option, const char *value);
    /* -1 where the word is good; else the exit status, and it has been said why. Null: the command
     * has no operands. */
    int (*operand)(void *call, const char *word);
    /* Not null: the options end at the first operand, whose index in argv is stored here (argc
     * where there is none), and `operand` is not called. */
    int *rest;
};

/* argv[0] is the command's name. -1 where the call is good; else the exit status, which is 0 where
 * help was asked for and printed. */
int ms_cli_parse(enum ms_cli_command_id command, int argc, char **argv,
                 const struct ms_cli_reader *reader, void *call);

/* Says what is wrong with a call, after the command's name and before where to find help. Returns
 * the exit status. */
int ms_cli_wrong(enum ms_cli_command_id command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
