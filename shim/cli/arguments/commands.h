/* SPDX-License-Identifier: Apache-2.0 */
/* The commands and their options, as tables for parsing, --help, the manual pages and the
 * completions. They are made from commands.def. */
#ifndef MEMSHIM_SHIM_CLI_ARGUMENTS_COMMANDS_H
#define MEMSHIM_SHIM_CLI_ARGUMENTS_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/buffer.h"

#define MS_CLI_WRONG_CALL 2

enum ms_cli_command_id {
#define MS_COMMAND(id, ...)        MS_CLI_##id,
#define MS_HIDDEN_COMMAND(id, ...) MS_CLI_##id,
#include "shim/cli/arguments/commands.def"
    MS_CLI_COMMANDS
};

/* MS_CLI_REPORT_FORMAT and so on. */
enum ms_cli_option_id {
    MS_CLI_RUN_VARIABLE, /* any option of memshim run; `variable` says which */
#define MS_CLI_OPTION(command, id, ...) MS_CLI_##command##_##id,
#include "shim/cli/arguments/commands.def"
};

/* A command, as in commands.def; a hidden one has empty texts. */
struct ms_cli_command {
    const char *name, *operands, *summary, *text, *status;
    bool hidden;
};

#define MS_CLI_NAME_BYTES 32

struct ms_cli_option {
    enum ms_cli_command_id command;
    enum ms_cli_option_id id;
    char name[MS_CLI_NAME_BYTES]; /* without dashes */
    char letter;                  /* 0: none */
    const char *value;            /* null: it takes no value */
    const char *wants;            /* null: it has rows in ms_cli_values */
    const char *fallback;         /* null: none */
    const char *group;            /* null: none */
    const char *meaning;
    const char *variable; /* the environment variable that it sets; null: none */
};

/* An operand or an example of a command, or a value of an option: a text and its meaning. */
struct ms_cli_row {
    enum ms_cli_command_id command;
    enum ms_cli_option_id option; /* if it is a value */
    const char *text, *meaning;
};

/* Tables for iteration; `count` rows. One command's rows follow each other. */
struct ms_cli_rows {
    const struct ms_cli_row *at;
    size_t count;
};
struct ms_cli_option_rows {
    const struct ms_cli_option *at;
    size_t count;
};

extern const struct ms_cli_command ms_cli_commands[MS_CLI_COMMANDS];
extern const struct ms_cli_rows ms_cli_operands, ms_cli_values, ms_cli_examples;

/* The options of all commands. One thread at a time. */
struct ms_cli_option_rows ms_cli_options_table(void);

/* The command of that name, which may be a hidden one; MS_CLI_COMMANDS if there is none. */
enum ms_cli_command_id ms_cli_command_find(const char *name);

/* Calls `each` for every word that the option takes, if it takes only words: its MS_VALUE rows, or
 * the words of a `wants` such as "off, warn or info". */
void ms_cli_each_choice(const struct ms_cli_option *option,
                        void (*each)(void *ctx, const char *word, size_t length), void *ctx);

/* Calls `each` for every word by which shells complete its value beside files, which it may be as
 * well: the cards of memshim dry-run. */
void ms_cli_each_word(const struct ms_cli_option *option,
                      void (*each)(void *ctx, const char *word, size_t length), void *ctx);

/* Adds a description of the option's value for a sentence: `wants`, or the words of its MS_VALUE
 * rows. */
void ms_cli_add_wants(const struct ms_cli_option *option, struct ms_buffer *out);

/* The name that is most like `word`, among the visible commands (MS_CLI_COMMANDS) or the options of
 * one; null if none is like it. */
const char *ms_cli_nearest_command(const char *word);
const char *ms_cli_nearest_option(enum ms_cli_command_id command, const char *word);

/* The word most like `word` that the option takes. False if it takes other values than words, or
 * none is like it. */
bool ms_cli_nearest_choice(const struct ms_cli_option *option, const char *word,
                           char best[MS_CLI_NAME_BYTES]);

/* Why a command has no option of that name (without dashes), if people look for it there; otherwise
 * null. */
const char *ms_cli_why_absent(enum ms_cli_command_id command, const char *name);

/* Why there is no command of that name, likewise. */
const char *ms_cli_why_no_command(const char *name);

#endif
