/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that print memshim's own tables: options, coverage, statistics, help, manual pages and
 * completions. */
#include <stdio.h>
#include <string.h>

#include "allocator/base/nearest.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/print.h"
#include "shim/tables/options.h"
#include "shim/tables/stats.h"

static void write_out(void *ctx, const char *text)
{
    (void)ctx;
    (void)fputs(text, stdout);
}

static bool take_markdown(void *call, const struct ms_cli_option *option, const char *value)
{
    (void)option;
    (void)value;
    *(bool *)call = true;
    return true;
}

static int print_table(enum ms_cli_command_id command, int argc, char **argv,
                       void (*print)(bool, ms_options_write_t, void *))
{
    static const struct ms_cli_reader reader = {.option = take_markdown};
    bool markdown = false;
    const int status = ms_cli_parse(command, argc, argv, &reader, &markdown);

    if (status < 0) {
        print(markdown, write_out, NULL);
        return 0;
    }
    return status;
}

int ms_cli_options(int argc, char **argv)
{
    return print_table(MS_CLI_OPTIONS, argc, argv, ms_options_print);
}

int ms_cli_coverage(int argc, char **argv)
{
    return print_table(MS_CLI_COVERAGE, argc, argv, ms_hooks_print);
}

int ms_cli_statistics(int argc, char **argv)
{
    return print_table(MS_CLI_STATISTICS, argc, argv, ms_statistics_print);
}

/* The operand that such a command may have. */
struct table_subject {
    enum ms_cli_command_id asker;
    const char *word; /* null: none */
};

static int take_subject(void *call, const char *word)
{
    struct table_subject *subject = call;

    if (subject->word) {
        return ms_cli_wrong(subject->asker, "it takes one word, and '%s' is a second", word);
    }
    subject->word = word;
    return -1;
}

/* Finds a visible command. -1 if the operand names one, or there is no operand. */
static int find_subject(enum ms_cli_command_id asker, int argc, char **argv,
                        enum ms_cli_command_id *found)
{
    static const struct ms_cli_reader reader = {.operand = take_subject};
    struct table_subject subject = {.asker = asker};
    const int status = ms_cli_parse(asker, argc, argv, &reader, &subject);

    *found = subject.word ? ms_cli_command_find(subject.word) : MS_CLI_COMMANDS;
    if (status >= 0 || !subject.word ||
        (*found != MS_CLI_COMMANDS && !ms_cli_commands[*found].hidden)) {
        return status;
    }
    return ms_cli_no_command(asker, subject.word, ms_cli_nearest_command(subject.word));
}

int ms_cli_help(int argc, char **argv)
{
    enum ms_cli_command_id about;
    const int status = find_subject(MS_CLI_HELP, argc, argv, &about);

    if (status < 0) {
        (about == MS_CLI_COMMANDS) ? ms_cli_print_overview() : ms_cli_print_help(about);
        return 0;
    }
    return status;
}

int ms_cli_man(int argc, char **argv)
{
    enum ms_cli_command_id about;
    const int status = find_subject(MS_CLI_MAN, argc, argv, &about);

    if (status < 0) {
        ms_cli_print_man(about);
        return 0;
    }
    return status;
}

#define SHELLS "bash, zsh or fish"

int ms_cli_completion(int argc, char **argv)
{
    static const struct ms_cli_reader reader = {.operand = take_subject};
    struct table_subject subject = {.asker = MS_CLI_COMPLETION};
    char meant[MS_OPTION_MEANT_BYTES], question[MS_MEANT_BYTES];
    const int status = ms_cli_parse(MS_CLI_COMPLETION, argc, argv, &reader, &subject);

    if (status >= 0) {
        return status;
    }
    if (!subject.word) {
        return ms_cli_wrong(MS_CLI_COMPLETION, "name the shell: " SHELLS);
    }
    if (!ms_cli_print_completion(subject.word)) {
        ms_options_meant(subject.word, SHELLS, meant);
        return ms_cli_wrong(MS_CLI_COMPLETION, "the shell is " SHELLS ", not '%s'%s", subject.word,
                            ms_did_you_mean(meant, question));
    }
    return 0;
}
