/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of commands and options, and look-ups in them. */
#include "shim/cli/arguments/commands.h"

#include <stdint.h>
#include <string.h>

#include "allocator/base/nearest.h"
#include "shim/tables/options.h"

#define ROWS(table)                               \
    {                                             \
        table, sizeof(table) / sizeof((table)[0]) \
    }

const struct ms_cli_command ms_cli_commands[MS_CLI_COMMANDS] = {
#define MS_COMMAND(id, function, name, operands, summary, text, status) \
    [MS_CLI_##id] = {name, operands, summary, text, status, false},
#define MS_HIDDEN_COMMAND(id, function, name) [MS_CLI_##id] = {name, "", "", "", "", true},
#include "shim/cli/arguments/commands.def"
};

static const struct ms_cli_row operands[] = {
#define MS_OPERAND(command, name, meaning) {MS_CLI_##command, 0, name, meaning},
#include "shim/cli/arguments/commands.def"
};

static const struct ms_cli_row values[] = {
#define MS_VALUE(command, option, name, meaning) \
    {MS_CLI_##command, MS_CLI_##command##_##option, name, meaning},
#include "shim/cli/arguments/commands.def"
};

static const struct ms_cli_row examples[] = {
#define MS_EXAMPLE(command, call, meaning) {MS_CLI_##command, 0, call, meaning},
#include "shim/cli/arguments/commands.def"
};

const struct ms_cli_rows ms_cli_operands = ROWS(operands), ms_cli_values = ROWS(values),
                         ms_cli_examples = ROWS(examples);

/* run's options get their names from those of their variables, at the first call. */
static struct ms_cli_option options[] = {
#define MS_OPTION(NAME, fallback, allowed, meaning, parser)                    \
    {MS_CLI_RUN, MS_CLI_RUN_VARIABLE, "", 0, "VALUE", allowed, fallback, NULL, \
     meaning,    "MEMSHIM_" #NAME},
#define MS_SCRIPT_OPTION(...)
#include "shim/tables/options.def"
#define MS_CLI_OPTION(command, id, name, letter, value, wants, fallback, group, meaning) \
    {MS_CLI_##command,                                                                   \
     MS_CLI_##command##_##id,                                                            \
     name,                                                                               \
     letter,                                                                             \
     value,                                                                              \
     wants,                                                                              \
     fallback,                                                                           \
     group,                                                                              \
     meaning,                                                                            \
     NULL},
#include "shim/cli/arguments/commands.def"
};

static const struct ms_cli_row absent[] = {
#define MS_ABSENT(command, name, why) {MS_CLI_##command, 0, name, why},
#include "shim/cli/arguments/commands.def"
};

static const struct {
    const char *name, *why;
} absent_commands[] = {
#define MS_ABSENT_COMMAND(name, why) {name, why},
#include "shim/cli/arguments/commands.def"
};

static const struct ms_cli_row words[] = {
#define MS_CARD(id, name, ...) {MS_CLI_DRY_RUN, MS_CLI_DRY_RUN_GPU, id, name},
#include "report/fit/cards.def"
};

static const struct {
    const char *variable;
    char letter;
} letters[] = {
#define MS_RUN_LETTER(variable, letter) {"MEMSHIM_" #variable, letter},
#include "shim/cli/arguments/commands.def"
};

#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

/* TRACE_LIMIT -> trace-limit. */
static void spell_option(const char *variable, char name[MS_CLI_NAME_BYTES])
{
    static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    static const char lower[] = "abcdefghijklmnopqrstuvwxyz-0123456789";

    for (size_t i = 0; variable[i] != '\0' && i < MS_CLI_NAME_BYTES - 1; i++) {
        name[i] = lower[strcspn(upper, (char[]){variable[i], '\0'})];
    }
}

struct ms_cli_option_rows ms_cli_options_table(void)
{
    for (size_t i = 0; i < OPTION_COUNT && options[i].name[0] == '\0'; i++) {
        spell_option(options[i].variable + sizeof("MEMSHIM_") - 1, options[i].name);
        options[i].fallback = options[i].fallback[0] != '\0' ? options[i].fallback : NULL;
        for (size_t k = 0; k < sizeof(letters) / sizeof(letters[0]); k++) {
            if (strcmp(options[i].variable, letters[k].variable) == 0) {
                options[i].letter = letters[k].letter;
            }
        }
    }
    return (struct ms_cli_option_rows){options, OPTION_COUNT};
}

enum ms_cli_command_id ms_cli_command_find(const char *name)
{
    int id = 0;

    while (id < MS_CLI_COMMANDS && strcmp(name, ms_cli_commands[id].name) != 0) {
        id++;
    }
    return (enum ms_cli_command_id)id;
}

/* ---- what an option takes ---- */

void ms_cli_each_choice(const struct ms_cli_option *option,
                        void (*each)(void *ctx, const char *word, size_t length), void *ctx)
{
    for (size_t i = 0; i < ms_cli_values.count && option->value; i++) {
        const struct ms_cli_row *row = &ms_cli_values.at[i];

        if (row->option == option->id) {
            each(ctx, row->text, strlen(row->text));
        }
    }
    if (option->wants) {
        (void)ms_option_words(option->wants, each, ctx);
    }
}

void ms_cli_each_word(const struct ms_cli_option *option,
                      void (*each)(void *ctx, const char *word, size_t length), void *ctx)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].option == option->id) {
            each(ctx, words[i].text, strlen(words[i].text));
        }
    }
}

struct wants_list {
    struct ms_buffer *out;
    size_t count, written;
};

static void count_word(void *ctx, const char *word, size_t length)
{
    (void)word;
    (void)length;
    ((struct wants_list *)ctx)->count++;
}

static void add_word(void *ctx, const char *word, size_t length)
{
    struct wants_list *list = ctx;
    const bool last = list->written + 1 == list->count;

    ms_buffer_add(list->out, list->written == 0 ? "" : last ? " or " : ", ");
    ms_buffer_append(list->out, word, length);
    list->written++;
}

void ms_cli_add_wants(const struct ms_cli_option *option, struct ms_buffer *out)
{
    struct wants_list list = {.out = out};

    if (option->wants) {
        ms_buffer_add(out, option->wants);
        return;
    }
    ms_cli_each_choice(option, count_word, &list);
    ms_cli_each_choice(option, add_word, &list);
}

/* ---- suggestions ---- */

const char *ms_cli_nearest_command(const char *word)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        const size_t distance = ms_name_distance(word, ms_cli_commands[i].name);

        if (!ms_cli_commands[i].hidden && distance < least) {
            best = ms_cli_commands[i].name;
            least = distance;
        }
    }
    return best;
}

const char *ms_cli_nearest_option(enum ms_cli_command_id command, const char *word)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();
    const char *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < table.count; i++) {
        const size_t distance = ms_name_distance(word, table.at[i].name);

        if (table.at[i].command == command && distance < least) {
            best = table.at[i].name;
            least = distance;
        }
    }
    return best;
}

bool ms_cli_nearest_choice(const struct ms_cli_option *option, const char *word,
                           char best[MS_CLI_NAME_BYTES])
{
    struct ms_nearest search = {word, SIZE_MAX, best, MS_CLI_NAME_BYTES};

    best[0] = '\0';
    ms_cli_each_choice(option, ms_nearest_offer, &search);
    return best[0] != '\0';
}

const char *ms_cli_why_absent(enum ms_cli_command_id command, const char *name)
{
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        if (absent[i].command == command && strcmp(absent[i].text, name) == 0) {
            return absent[i].meaning;
        }
    }
    return NULL;
}

const char *ms_cli_why_no_command(const char *name)
{
    for (size_t i = 0; i < sizeof(absent_commands) / sizeof(absent_commands[0]); i++) {
        if (strcmp(absent_commands[i].name, name) == 0) {
            return absent_commands[i].why;
        }
    }
    return NULL;
}
