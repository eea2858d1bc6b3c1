/* SPDX-License-Identifier: Apache-2.0 */
/* The one parser of arguments: passes a command's rows to getopt_long, and what that finds to the
 * command. */
#include "shim/cli/arguments/parse.h"
#include "allocator/base/nearest.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/print.h"
#include "shim/tables/options.h"

/* What getopt_long returns for a long option: above every character. */
#define FIRST_LONG 256
#define HELP       255
#define OPERAND    1

int ms_cli_wrong(enum ms_cli_command_id command, const char *format, ...)
{
    char what[8192];
    va_list rest;

    va_start(rest, format);
    (void)vsnprintf(what, sizeof(what), format, rest);
    va_end(rest);
    ms_complain("memshim %s: %s (memshim %s --help)", ms_cli_commands[command].name, what,
                ms_cli_commands[command].name);
    return MS_CLI_WRONG_CALL;
}

/* A command's options in getopt_long's form. */
struct spelled {
    struct ms_cli_option_rows table;
    struct ms_buffer names;   /* struct option; the last one is empty */
    struct ms_buffer letters; /* with a zero byte at the end */
};

static void spell(enum ms_cli_command_id command, bool in_order, struct spelled *out)
{
    *out = (struct spelled){.table = ms_cli_options_table()};
    /* '-': each operand is returned where it stands; '+': the options end at the first operand.
     * Without either, POSIXLY_CORRECT in the environment would decide. ':': getopt prints nothing,
     * and distinguishes a missing value from an unknown option. */
    ms_buffer_add(&out->letters, in_order ? "+:h" : "-:h");
    for (size_t i = 0; i < out->table.count; i++) {
        const struct ms_cli_option *row = &out->table.at[i];
        const int takes = row->value ? required_argument : no_argument;
        const struct option name = {row->name, takes, NULL, FIRST_LONG + (int)i};

        if (row->command == command) {
            ms_buffer_append(&out->names, (const char *)&name, sizeof(name));
        }
        if (row->command == command && row->letter) {
            ms_buffer_format(&out->letters, "%c%s", row->letter, row->value ? ":" : "");
        }
    }
    ms_buffer_append(&out->names, (const char *)&(struct option){"help", no_argument, NULL, HELP},
                     sizeof(struct option));
    (void)ms_buffer_extend(&out->names, sizeof(struct option));
    (void)ms_buffer_extend(&out->letters, 1);
}

/* The row for what getopt_long returned, or left in optopt; null if there is none. */
static const struct ms_cli_option *row_of(const struct spelled *spelled,
                                          enum ms_cli_command_id command, int found)
{
    for (size_t i = 0; i < spelled->table.count; i++) {
        const struct ms_cli_option *row = &spelled->table.at[i];

        if (row->command == command &&
            (found == FIRST_LONG + (int)i || (row->letter && found == row->letter))) {
            return row;
        }
    }
    return NULL;
}

static int say_unknown(enum ms_cli_command_id command, const char *word)
{
    char letter[] = {'-', (char)optopt, '\0'};
    char name[256], question[MS_MEANT_BYTES];
    const char *why;

    if (strncmp(word, "--", 2) != 0) {
        return ms_cli_wrong(command, "there is no option '%s'", optopt ? letter : word);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    if (optopt >= HELP) {
        return ms_cli_wrong(command, "there is no option '%s': it takes no value", word);
    }
    why = ms_cli_why_absent(command, name);
    if (why) {
        return ms_cli_wrong(command, "there is no option '%s': %s", word, why);
    }
    why = ms_cli_nearest_option(command, name);
    (void)snprintf(name, sizeof(name), "--%s", why ? why : "");
    return ms_cli_wrong(command, "there is no option '%s'%s", word,
                        ms_did_you_mean(why ? name : NULL, question));
}

/* typed: the letter that the user typed, or what getopt_long returns for a name. */
static int say_unusable(const struct ms_cli_option *option, int typed, const char *value)
{
    const char letter[] = {'-', (char)typed, '\0'};
    const bool is_letter = typed < FIRST_LONG;
    struct ms_buffer wants = {0};
    char word[MS_CLI_NAME_BYTES], other[MS_OPTION_MEANT_BYTES] = "";
    char question[MS_MEANT_BYTES];
    const char *meant = other;

    if (value && ms_cli_nearest_choice(option, value, word)) {
        meant = word;
    } else if (value && option->wants) {
        ms_options_meant(value, option->wants, other);
    }
    ms_cli_add_wants(option, &wants);
    ms_buffer_append(&wants, "", 1);
    (void)ms_cli_wrong(option->command, "%s%s%s%s%s is %s, not '%s'%s%s", is_letter ? letter : "--",
                       is_letter ? "" : option->name, option->variable ? " (" : "",
                       option->variable ? option->variable : "", option->variable ? ")" : "",
                       wants.at ? wants.at : "a value", value ? value : "",
                       value ? "" : ": nothing follows it", ms_did_you_mean(meant, question));
    ms_buffer_free(&wants);
    return MS_CLI_WRONG_CALL;
}

static int take_operand(enum ms_cli_command_id command, const struct ms_cli_reader *reader,
                        const char *word, void *call)
{
    return reader->operand ? reader->operand(call, word)
                           : ms_cli_wrong(command, "it takes only options, and '%s' is none", word);
}

/* Handles one result of getopt_long. -1 if it is good, otherwise the exit status. */
static int take(const struct spelled *spelled, enum ms_cli_command_id command, int found,
                char **argv, const struct ms_cli_reader *reader, void *call)
{
    const struct ms_cli_option *row;

    if (found == OPERAND) {
        return take_operand(command, reader, optarg, call);
    }
    if (found == 'h' || found == HELP) {
        ms_cli_print_help(command);
        return 0;
    }
    row = row_of(spelled, command, found == ':' ? optopt : found);
    if (found == '?' || !row) {
        return say_unknown(command, argv[optind - 1]);
    }
    if (found == ':' || !reader->option(call, row, optarg)) {
        return say_unusable(row, found == ':' ? optopt : found, optarg);
    }
    return -1;
}

int ms_cli_parse(enum ms_cli_command_id command, int argc, char **argv,
                 const struct ms_cli_reader *reader, void *call)
{
    struct spelled spelled;
    int status = -1, found;

    spell(command, reader->rest != NULL, &spelled);
    if (spelled.names.failed || spelled.letters.failed) {
        ms_complain("memshim: there is no memory");
        return 1;
    }
    optind = 0; /* GNU: start over, with these letters */
    while (status < 0 &&
           (found = getopt_long(argc, argv, spelled.letters.at,
                                (const struct option *)spelled.names.at, NULL)) >= 0) {
        status = take(&spelled, command, found, argv, reader, call);
    }
    for (; status < 0 && !reader->rest && optind < argc; optind++) { /* after -- */
        status = take_operand(command, reader, argv[optind], call);
    }
    if (reader->rest) {
        *reader->rest = optind;
    }
    ms_buffer_free(&spelled.names);
    ms_buffer_free(&spelled.letters);
    return status;
}
