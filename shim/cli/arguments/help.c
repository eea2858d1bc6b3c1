/* SPDX-License-Identifier: Apache-2.0 */
/* Prints --help, from the tables. */
#include <stdio.h>
#include <string.h>

#include "shim/cli/arguments/print.h"

#define WIDTH  90
#define COLUMN 24 /* column of the meanings */

/* Prints the words of `text`, from column `at` of the present line on; further lines begin at
 * `indent`. Ends the line. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    bool begun = false;

    while (*text != '\0') {
        const size_t length = strcspn(text, " \n");

        if (begun && at + 1 + length > WIDTH) {
            (void)printf("\n%*s", (int)indent, "");
            at = indent;
            begun = false;
        }
        (void)printf("%s%.*s", begun ? " " : "", (int)length, text);
        at += length + begun;
        begun = true;
        text += length;
        if (strncmp(text, "\n\n", 2) == 0) {
            (void)printf("\n\n%*s", (int)indent, "");
            at = indent;
            begun = false;
        }
        text += strspn(text, " \n");
    }
    (void)puts("");
}

/* Prints a name, and its meaning beside it if there is room. */
static void print_entry(size_t indent, const char *name, const char *meaning)
{
    const size_t length = indent + strlen(name);

    (void)printf("%*s%s", (int)indent, "", name);
    if (length + 2 > COLUMN) {
        (void)printf("\n%*s", COLUMN, "");
    } else {
        (void)printf("%*s", (int)(COLUMN - length), "");
    }
    print_wrapped(meaning, COLUMN, COLUMN);
}

static void print_rows(const struct ms_cli_rows *rows, enum ms_cli_command_id command,
                       const char *heading)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->at[i].command == command) {
            (void)fputs(heading, stdout);
            heading = "";
            print_entry(2, rows->at[i].text, rows->at[i].meaning);
        }
    }
}

static void print_option(const struct ms_cli_option *option)
{
    char name[128];
    struct ms_buffer meaning = {0};

    (void)snprintf(name, sizeof(name), "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
                   option->letter ? option->letter : ' ', option->letter ? ", " : "  ",
                   option->name, option->value ? " " : "", option->value ? option->value : "");
    ms_buffer_add(&meaning, option->meaning);
    if (option->variable) {
        ms_buffer_format(&meaning, " Takes %s.", option->wants);
    }
    if (option->fallback) {
        ms_buffer_format(&meaning, " (default %s)", option->fallback);
    }
    ms_buffer_append(&meaning, "", 1);
    print_entry(2, name, meaning.at ? meaning.at : "");
    ms_buffer_free(&meaning);
    for (size_t i = 0; i < ms_cli_values.count; i++) {
        if (ms_cli_values.at[i].option == option->id && option->value) {
            print_entry(8, ms_cli_values.at[i].text, ms_cli_values.at[i].meaning);
        }
    }
}

static void print_options(enum ms_cli_command_id command)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();
    const char *group = "";

    for (size_t i = 0; i < table.count; i++) {
        const struct ms_cli_option *option = &table.at[i];
        const char *heading = option->group ? option->group : "Options";

        if (option->command != command) {
            continue;
        }
        if (strcmp(heading, group) != 0) {
            (void)printf("\n%s:\n", heading);
            group = heading;
        }
        print_option(option);
    }
    (void)fputs(group[0] == '\0' ? "\nOptions:\n" : "", stdout);
    print_entry(2, "-h, --help", "this text");
}

void ms_cli_print_help(enum ms_cli_command_id command)
{
    const struct ms_cli_command *row = &ms_cli_commands[command];

    (void)printf("Usage: memshim %s [OPTION]...%s%s\n", row->name, row->operands[0] ? " " : "",
                 row->operands);
    print_wrapped(row->text, 0, 0);
    print_rows(&ms_cli_operands, command, "\n");
    print_options(command);
    print_rows(&ms_cli_examples, command, "\nExamples:\n");
    if (row->status[0] != '\0') {
        (void)fputs("\nExit status:\n  ", stdout);
        print_wrapped(row->status, 2, 2);
    }
}

void ms_cli_print_overview(void)
{
    (void)puts("Usage: memshim COMMAND ...\n"
               "A memory pool, a hard cap and a post-mortem for training on CUDA devices.\n");
    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        if (!ms_cli_commands[i].hidden) {
            (void)printf("  %-11s %s\n", ms_cli_commands[i].name, ms_cli_commands[i].summary);
        }
    }
    (void)puts("\nmemshim COMMAND --help says more about one.\n"
               "Without this executable: LD_PRELOAD=libmemshim.so COMMAND...");
}
