/* SPDX-License-Identifier: Apache-2.0 */
/* Prints manual pages, from the tables: roff with the macros of man(7). */
#include <stdio.h>
#include <string.h>

#include "shim/cli/arguments/print.h"
#include "shim/tables/options.h"

/* Prints text for roff: escapes its special characters, ends a paragraph at an empty line, and
 * protects lines that begin like a request. */
static void print_text(const char *text)
{
    bool line_begins = true;

    for (; *text != '\0'; text++) {
        if (line_begins && (*text == '.' || *text == '\'')) {
            (void)fputs("\\&", stdout);
        }
        line_begins = *text == '\n';
        switch (*text) {
        case '\\':
            (void)fputs("\\e", stdout);
            break;
        case '-':
            (void)fputs("\\-", stdout);
            break;
        case '\'':
            (void)fputs("\\(aq", stdout);
            break;
        case '`':
            (void)fputs("\\(ga", stdout);
            break;
        case '^':
            (void)fputs("\\(ha", stdout);
            break;
        case '~':
            (void)fputs("\\(ti", stdout);
            break;
        case '\n':
            (void)fputs(text[1] == '\n' ? "\n.PP" : "\n", stdout);
            break;
        default:
            (void)putchar(*text);
        }
    }
}

static void print_paragraph(const char *text)
{
    print_text(text);
    (void)puts("");
}

static void print_bold(const char *text)
{
    (void)fputs("\\fB", stdout);
    print_text(text);
    (void)fputs("\\fR", stdout);
}

static void print_entry(const char *name, const char *meaning)
{
    (void)puts(".TP");
    print_bold(name);
    (void)puts("");
    print_paragraph(meaning);
}

/* The name "memshim" or "memshim-report"; in capitals in a page's title, as is the custom. */
static void print_head(const char *command, const char *summary)
{
    (void)fputs(".TH \"MEMSHIM", stdout);
    (void)putchar(command[0] != '\0' ? '-' : '"');
    for (const char *at = command; *at != '\0'; at++) {
        (void)putchar(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    }
    (void)printf("%s 1 \"\" \"memshim " MEMSHIM_VERSION "\" \"User Commands\"\n"
                 ".SH NAME\nmemshim%s%s \\- ",
                 command[0] != '\0' ? "\"" : "", command[0] != '\0' ? "\\-" : "", command);
    print_paragraph(summary);
}

static void print_rows(const struct ms_cli_rows *rows, enum ms_cli_command_id command,
                       const char *heading)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->at[i].command == command) {
            (void)fputs(heading, stdout);
            heading = "";
            print_entry(rows->at[i].text, rows->at[i].meaning);
        }
    }
}

static void print_fallback(const struct ms_cli_option *option)
{
    if (option->fallback) {
        (void)fputs("(default ", stdout);
        print_bold(option->fallback);
        (void)puts(")");
    }
}

static void print_option(const struct ms_cli_option *option)
{
    (void)puts(".TP");
    if (option->letter) {
        (void)printf("\\fB\\-%c\\fR, ", option->letter);
    }
    (void)fputs("\\fB\\-\\-", stdout);
    print_text(option->name);
    (void)fputs("\\fR", stdout);
    if (option->value) {
        (void)fputs(" \\fI", stdout);
        print_text(option->value);
        (void)fputs("\\fR", stdout);
    }
    (void)puts("");
    print_paragraph(option->meaning);
    if (option->variable) {
        (void)fputs("Takes ", stdout);
        print_text(option->wants);
        (void)puts(".");
    }
    print_fallback(option);
    (void)puts(".RS");
    for (size_t i = 0; i < ms_cli_values.count && option->value; i++) {
        if (ms_cli_values.at[i].option == option->id) {
            print_entry(ms_cli_values.at[i].text, ms_cli_values.at[i].meaning);
        }
    }
    (void)puts(".RE");
}

static void print_options(enum ms_cli_command_id command)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();
    const char *group = "";

    (void)puts(".SH OPTIONS");
    for (size_t i = 0; i < table.count; i++) {
        const char *heading = table.at[i].group ? table.at[i].group : "";

        if (table.at[i].command != command) {
            continue;
        }
        if (strcmp(heading, group) != 0) {
            (void)printf(".SS %s\n", heading);
            group = heading;
        }
        print_option(&table.at[i]);
    }
    (void)puts(group[0] != '\0' ? ".SS Help" : "");
    (void)puts(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nSay this, shorter.");
}

static void print_status(const char *more)
{
    (void)puts(".SH EXIT STATUS");
    if (more[0] != '\0') {
        print_paragraph(more);
    }
    (void)puts(".PP\n0: all is well; 2: a wrong call.");
}

static void print_command(const struct ms_cli_command *row, enum ms_cli_command_id command)
{
    print_head(row->name, row->summary);
    (void)printf(".SH SYNOPSIS\n\\fBmemshim %s\\fR [\\fIOPTION\\fR]... ", row->name);
    print_paragraph(row->operands);
    (void)puts(".SH DESCRIPTION");
    print_paragraph(row->text);
    print_rows(&ms_cli_operands, command, "");
    print_options(command);
    print_status(row->status);
    print_rows(&ms_cli_examples, command, ".SH EXAMPLES\n");
    (void)puts(".SH SEE ALSO\n\\fBmemshim\\fR(1)");
}

static void print_environment(void)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();

    (void)puts(".SH ENVIRONMENT");
    print_entry(MS_OPTIONS_SWITCH,
                "off: all of memshim is off, as if it were not preloaded. Takes on or "
                "off; above all else.");
    for (size_t i = 0; i < table.count; i++) {
        if (table.at[i].variable) {
            print_entry(table.at[i].variable, table.at[i].meaning);
            (void)fputs("Takes ", stdout);
            print_text(table.at[i].wants);
            (void)puts(".");
            print_fallback(&table.at[i]);
        }
    }
}

static void print_memshim(void)
{
    print_head("", "a memory pool, a hard cap and a post-mortem for training on CUDA devices");
    (void)puts(".SH SYNOPSIS\n\\fBmemshim\\fR \\fICOMMAND\\fR ...\n.br\n"
               "LD_PRELOAD=libmemshim.so \\fICOMMAND\\fR ...\n.SH DESCRIPTION");
    print_paragraph(
        "memshim stands between a program and the CUDA driver. An unmodified training process gets "
        "a pool that does not fragment, a hard cap on the device memory that it uses, and, when it "
        "ends or dies, a report that says where every byte was, which line of code asked for it, "
        "and why it ran out.\n\n"
        "The library is preloaded; this program runs commands under it and reads what it left.");
    (void)puts(".SH COMMANDS");
    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        if (!ms_cli_commands[i].hidden) {
            print_entry(ms_cli_commands[i].name, ms_cli_commands[i].summary);
        }
    }
    print_environment();
    (void)puts(".SH FILES");
    print_entry("memshim-out/RUN/PROCESS/trace.mshm", "what a process left, as it happened");
    print_entry("report.txt, report.json, report.html, timeline.json",
                "beside it: made of the trace, at the process's end or by memshim report");
    (void)puts(".SH SEE ALSO");
    for (size_t i = 0, written = 0; i < MS_CLI_COMMANDS; i++) {
        if (!ms_cli_commands[i].hidden) {
            (void)printf("%s\\fBmemshim\\-%s\\fR(1)", written++ > 0 ? ",\n" : "",
                         ms_cli_commands[i].name);
        }
    }
    (void)puts("");
}

void ms_cli_print_man(enum ms_cli_command_id command)
{
    if (command == MS_CLI_COMMANDS) {
        print_memshim();
    } else {
        print_command(&ms_cli_commands[command], command);
    }
}
