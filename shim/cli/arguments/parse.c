/* SPDX-License-Identifier: Apache-2.0 */
/* The one parser of arguments: passes a command's rows to getopt_long, and what that finds to the
 * command. */
#include "shim/cli/arguments/parse.h"
#include "allocator/base/nearest.h"

#include <float.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/print.h"
#include "shim/cli/arguments/values.h"
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

int ms_cli_no_command(enum ms_cli_command_id asker, const char *word, const char *meant)
{
    const char *why = ms_cli_why_no_command(word);
    const bool first = asker == MS_CLI_COMMANDS;
    char question[MS_MEANT_BYTES];

    ms_complain("memshim%s%s: there is no %s '%s'%s%s", first ? "" : " ",
                first ? "" : ms_cli_commands[asker].name,
                first && !why && word[0] == '-' ? "option" : "command", word,
                why ? ": " : ms_did_you_mean(meant, question),
                why ? why : "; memshim help lists them");
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

/* The word that getopt_long has found an option's name or letters in. */
static const char *word_of(char **argv)
{
    return argv[optarg && optarg == argv[optind - 1] ? optind - 2 : optind - 1];
}

static int say_unknown_letter(enum ms_cli_command_id command, char letter)
{
    return ms_cli_wrong(command, "there is no option '-%c'%s", letter,
                        letter == '=' ? ": a letter's value follows without it" : "");
}

static int say_unknown(enum ms_cli_command_id command, const char *word)
{
    char name[256], question[MS_MEANT_BYTES];
    const char *why;

    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    why = ms_cli_why_absent(command, name);
    if (why) {
        return ms_cli_wrong(command, "there is no option '%s': %s", word, why);
    }
    why = ms_cli_nearest_option(command, name);
    (void)snprintf(name, sizeof(name), "--%s", why ? why : "");
    return ms_cli_wrong(command, "there is no option '%s'%s", word,
                        ms_did_you_mean(why ? name : NULL, question));
}

/* getopt_long takes a name's beginning for the name. What is unique today may be another option's
 * tomorrow, and a script would then say something else. */
static bool is_shortened(const char *word, const char *name)
{
    return strncmp(word, "--", 2) == 0 && strcspn(word + 2, "=") < strlen(name);
}

/* What the user meant by the value; "" if nothing can be guessed. next: the word behind it. */
static void guess(const struct ms_cli_option *option, const char *value, const char *next,
                  char meant[MS_OPTION_MEANT_BYTES])
{
    char word[MS_CLI_NAME_BYTES];
    uint64_t bytes;
    double number;

    meant[0] = '\0';
    if (ms_cli_nearest_choice(option, value, word)) {
        (void)snprintf(meant, MS_OPTION_MEANT_BYTES, "%s", word);
        return;
    }
    if (!option->wants) {
        return;
    }
    (void)snprintf(meant, MS_OPTION_MEANT_BYTES, "%.32s%.8s", value, next ? next : "");
    if (strncmp(option->wants, "a size", strlen("a size")) != 0 ||
        !ms_cli_take_number(value, 0, DBL_MAX, &number) || !ms_parse_size(meant, &bytes)) {
        ms_options_meant(value, option->wants, meant);
    }
}

/* typed: the letter that the user typed, or what getopt_long returns for a name. value: null if
 * nothing follows it. */
static int say_unusable(const struct ms_cli_option *option, int typed, const char *value,
                        const char *next)
{
    const char letter[] = {'-', (char)typed, '\0'};
    const bool is_letter = typed < FIRST_LONG;
    struct ms_buffer what = {0};
    char meant[MS_OPTION_MEANT_BYTES], question[MS_MEANT_BYTES];

    ms_buffer_format(&what, "%s%s", is_letter ? letter : "--", is_letter ? "" : option->name);
    if (option->variable) {
        ms_buffer_format(&what, " (%s)", option->variable);
    }
    ms_buffer_add(&what, " is ");
    ms_cli_add_wants(option, &what);
    if (value) {
        guess(option, value, next, meant);
        ms_buffer_format(&what, ", not '%s'%s", value, ms_did_you_mean(meant, question));
    } else {
        ms_buffer_add(&what, "; nothing follows it");
    }
    ms_buffer_append(&what, "", 1);
    (void)ms_cli_wrong(option->command, "%s", what.at ? what.at : "");
    ms_buffer_free(&what);
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
    if (found == OPERAND) {
        return take_operand(command, reader, optarg, call);
    }

    const int typed = found == '?' || found == ':' ? optopt : found;
    const struct ms_cli_option *row = row_of(spelled, command, typed);
    const bool help = typed == 'h' || typed == HELP;
    const char *word = word_of(argv);

    if (typed > 0 && typed < HELP && !row && !help) {
        return say_unknown_letter(command, (char)typed);
    }
    if ((!row && !help) || (typed >= HELP && is_shortened(word, row ? row->name : "help"))) {
        return say_unknown(command, word);
    }
    if (found == '?') {
        return ms_cli_wrong(command, "there is no option '%s': it takes no value", word);
    }
    if (!row) {
        ms_cli_print_help(command);
        return 0;
    }
    if (found == ':' || (optarg && optarg[0] == '\0') || !reader->option(call, row, optarg)) {
        return say_unusable(row, typed, optarg, argv[optind]);
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
