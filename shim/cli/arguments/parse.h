/* SPDX-License-Identifier: Apache-2.0 */
/* How every command reads its arguments: by getopt_long and its rows in commands.def. Options and
 * operands may come in any order, and -- ends the options. Errors go to stderr, with a suggestion
 * and where to find help. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_PARSE_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_PARSE_H

#include "shim/cli/arguments/commands.h"

struct ms_cli_reader {
    /* value: null if the option takes none. Returns false, after an error message, if the option
     * does not take the value. Null: the command has no options. */
    bool (*option)(void *call, const struct ms_cli_option *option, const char *value);
    /* -1 if the word is good; otherwise the exit status, after an error message. Null: the command
     * has no operands. */
    int (*operand)(void *call, const char *word);
    /* If not null, the options end at the first operand. Its index in argv is stored here (argc if
     * there is none), and `operand` is not called. */
    int *rest;
};

/* argv[0] is the command's name. Returns -1 if the call is good; otherwise the exit status, which
 * is 0 if help was asked for and printed. */
int ms_cli_parse(enum ms_cli_command_id command, int argc, char **argv,
                 const struct ms_cli_reader *reader, void *call);

/* Prints what is wrong with a call, after the command's name and before where to find help. Returns
 * the exit status. */
int ms_cli_wrong(enum ms_cli_command_id command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Complains of a word that names no command: says why there is none, where people look for it, or
 * else guesses (`meant`; null or empty: nothing). asker: the command that was given the word;
 * MS_CLI_COMMANDS: it stood in the place of the command itself. Returns the exit status. */
int ms_cli_no_command(enum ms_cli_command_id asker, const char *word, const char *meant);

#endif
