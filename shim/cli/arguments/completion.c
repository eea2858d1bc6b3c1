/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the completions of memshim's command lines for bash, zsh and fish, made from the
 * tables. */
#include <stdio.h>
#include <string.h>

#include "shim/cli/arguments/print.h"

/* What can be completed for an option's value, or for operands. */
enum completion_kind { NOTHING_KNOWN, CHOICES, WORDS_OR_FILES, FILES, FOLDERS };

static void note_choice(void *ctx, const char *word, size_t length)
{
    (void)word;
    (void)length;
    *(bool *)ctx = true;
}

static enum completion_kind kind_of(const struct ms_cli_option *option)
{
    bool choices = false, words = false;

    ms_cli_each_choice(option, note_choice, &choices);
    ms_cli_each_word(option, note_choice, &words);
    return choices                                                   ? CHOICES
           : words                                                   ? WORDS_OR_FILES
           : strcmp(option->value, "FILE") == 0                      ? FILES
           : strcmp(option->value, "DIR") == 0                       ? FOLDERS
           : strcmp(option->value, "FOLDER") == 0                    ? FOLDERS
           : option->wants && strcmp(option->wants, "a folder") == 0 ? FOLDERS
                                                                     : NOTHING_KNOWN;
}

static void print_choice(void *ctx, const char *word, size_t length)
{
    (void)ctx;
    (void)printf(" %.*s", (int)length, word);
}

/* Prints each with a blank before it. */
static void print_choices(const struct ms_cli_option *option)
{
    ms_cli_each_choice(option, print_choice, NULL);
    ms_cli_each_word(option, print_choice, NULL);
}

static void print_command_names(void)
{
    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        if (!ms_cli_commands[i].hidden) {
            (void)printf(" %s", ms_cli_commands[i].name);
        }
    }
}

/* Whether its operand is one of a few words. */
static bool has_words(size_t command)
{
    return command == MS_CLI_HELP || command == MS_CLI_MAN || command == MS_CLI_COMPLETION;
}

/* Whether its operands are another command's line. */
static bool begins_command(size_t command)
{
    return command == MS_CLI_RUN || command == MS_CLI_DRY_RUN;
}

static void print_words(size_t command)
{
    if (command == MS_CLI_COMPLETION) {
        (void)fputs(" bash zsh fish", stdout);
    } else {
        print_command_names();
    }
}

/* Prints the first sentence in single quotes. A backslash escapes the characters of `stops`;
 * `quote` replaces a quote. */
static void print_brief(const char *text, const char *stops, const char *quote)
{
    for (; *text != '\0' && strncmp(text, ". ", 2) != 0 && strncmp(text, "; ", 2) != 0; text++) {
        if (*text == '\'') {
            (void)fputs(quote, stdout);
        } else {
            (void)printf("%s%c", strchr(stops, *text) ? "\\" : "", *text);
        }
    }
}

/* ---- bash ---- */

static const char bash_head[] =
    "# bash completion for memshim, made from its tables (memshim completion bash)\n"
    "_memshim()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local command=${COMP_WORDS[1]} words= at\n"
    "    COMPREPLY=()\n"
    "    # --name=value comes as three words.\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    fi\n";

/* $alone: the options that take no value. */
static const char bash_command[] =
    "    if [[ $begins ]]; then\n"
    "        at=2\n"
    "        while ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == -* ]]; do\n"
    "            if [[ ${COMP_WORDS[at]} == -- ]]; then\n"
    "                ((at += 1))\n"
    "                break\n"
    "            fi\n"
    "            if [[ \" $alone \" == *\" ${COMP_WORDS[at]} \"* ]]; then ((at += 1))\n"
    "            elif [[ ${COMP_WORDS[at+1]} == = ]]; then ((at += 3)); else ((at += 2)); fi\n"
    "        done\n"
    "        if ((at < COMP_CWORD)) ||\n"
    "            { ((at == COMP_CWORD)) && [[ $cur != -* || ${COMP_WORDS[at-1]} == -- ]]; }; then\n"
    "            if declare -F _command_offset >/dev/null; then\n"
    "                _command_offset \"$at\"\n"
    "            elif ((at == COMP_CWORD)); then\n"
    "                mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
    "            else\n"
    "                mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "            fi\n"
    "            return\n"
    "        fi\n"
    "    fi\n";

static const char bash_tail[] =
    "    if [[ -n $words ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "    elif [[ $cur != -* ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "    fi\n"
    "}\n"
    "complete -F _memshim memshim\n";

static void print_bash_value(const struct ms_cli_option *option)
{
    const char *command = ms_cli_commands[option->command].name;

    (void)printf("    '%s --%s'", command, option->name);
    if (option->letter) {
        (void)printf(" | '%s -%c'", command, option->letter);
    }
    (void)fputs(")\n", stdout);
    switch (kind_of(option)) {
    case CHOICES:
        (void)fputs("        mapfile -t COMPREPLY < <(compgen -W '", stdout);
        print_choices(option);
        (void)fputs("' -- \"$cur\")\n", stdout);
        break;
    case WORDS_OR_FILES:
        (void)fputs("        compopt -o filenames 2>/dev/null\n"
                    "        mapfile -t COMPREPLY < <(compgen -f -W '",
                    stdout);
        print_choices(option);
        (void)fputs("' -- \"$cur\")\n", stdout);
        break;
    case FILES:
    case FOLDERS:
        (void)printf("        compopt -o filenames 2>/dev/null\n"
                     "        mapfile -t COMPREPLY < <(compgen -%c -- \"$cur\")\n",
                     kind_of(option) == FILES ? 'f' : 'd');
        break;
    default:
        break;
    }
    (void)fputs("        return\n        ;;\n", stdout);
}

static void print_bash_commands(void)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();

    (void)fputs("    local begins= alone=\n    case $command in\n", stdout);
    for (size_t command = 0; command < MS_CLI_COMMANDS; command++) {
        if (!begins_command(command)) {
            continue;
        }
        (void)printf("    %s)\n        begins=yes alone='-h --help", ms_cli_commands[command].name);
        for (size_t i = 0; i < table.count; i++) {
            if (table.at[i].command == command && !table.at[i].value) {
                (void)printf(" --%s", table.at[i].name);
            }
        }
        (void)fputs("'\n        ;;\n", stdout);
    }
    (void)fputs("    esac\n", stdout);
    (void)fputs(bash_command, stdout);
}

static void print_bash(void)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();

    (void)fputs(bash_head, stdout);
    (void)fputs("    if ((COMP_CWORD == 1)); then\n"
                "        mapfile -t COMPREPLY < <(compgen -W '",
                stdout);
    print_command_names();
    (void)fputs(" --help --version' -- \"$cur\")\n        return\n    fi\n", stdout);
    print_bash_commands();
    (void)fputs("    case \"$command $prev\" in\n", stdout);
    for (size_t i = 0; i < table.count; i++) {
        if (table.at[i].value) {
            print_bash_value(&table.at[i]);
        }
    }
    (void)fputs("    esac\n    case \"$command $cur\" in\n", stdout);
    for (size_t command = 0; command < MS_CLI_COMMANDS; command++) {
        if (ms_cli_commands[command].hidden) {
            continue;
        }
        (void)printf("    '%s -'*)\n        words='", ms_cli_commands[command].name);
        for (size_t i = 0; i < table.count; i++) {
            if (table.at[i].command == command) {
                (void)printf("--%s ", table.at[i].name);
            }
        }
        (void)fputs("--help'\n        ;;\n", stdout);
    }
    for (size_t command = 0; command < MS_CLI_COMMANDS; command++) {
        if (has_words(command)) {
            (void)printf("    '%s '*)\n        words='", ms_cli_commands[command].name);
            print_words(command);
            (void)fputs("'\n        ;;\n", stdout);
        } else if (!ms_cli_commands[command].hidden &&
                   ms_cli_commands[command].operands[0] == '\0') {
            (void)printf("    '%s '*)\n        return\n        ;;\n",
                         ms_cli_commands[command].name);
        }
    }
    (void)fputs("    esac\n", stdout);
    (void)fputs(bash_tail, stdout);
}

/* ---- zsh ---- */

static void print_zsh_option(const struct ms_cli_option *option)
{
    for (int spelling = option->letter ? 0 : 1; spelling < 2; spelling++) {
        (void)fputs("        '", stdout);
        if (option->letter) {
            (void)printf("(-%c --%s)", option->letter, option->name);
        }
        if (spelling == 0) {
            (void)printf("-%c", option->letter);
        } else {
            (void)printf("--%s%s", option->name, option->value ? "=" : "");
        }
        (void)putchar('[');
        print_brief(option->meaning, "[]:\\", "'\\''");
        (void)putchar(']');
        if (option->value) {
            (void)printf(":%s:", option->value);
            switch (kind_of(option)) {
            case CHOICES:
                (void)putchar('(');
                print_choices(option);
                (void)putchar(')');
                break;
            case WORDS_OR_FILES:
                (void)fputs("{compadd -", stdout);
                print_choices(option);
                (void)fputs("; _files}", stdout);
                break;
            case FILES:
                (void)fputs("_files", stdout);
                break;
            case FOLDERS:
                (void)fputs("_files -/", stdout);
                break;
            default:
                (void)putchar(' ');
            }
        }
        (void)fputs("' \\\n", stdout);
    }
}

static void print_zsh_command(size_t command)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();
    const struct ms_cli_command *row = &ms_cli_commands[command];

    (void)printf("    %s)\n        _arguments -S \\\n", row->name);
    for (size_t i = 0; i < table.count; i++) {
        if (table.at[i].command == command) {
            print_zsh_option(&table.at[i]);
        }
    }
    (void)fputs("        '(-h --help)'{-h,--help}'[what the command does]'", stdout);
    if (begins_command(command)) {
        (void)fputs(" \\\n        '(-)1:command: _command_names -e' '*::arguments: _normal'",
                    stdout);
    } else if (has_words(command)) {
        (void)fputs(" \\\n        '1:word:(", stdout);
        print_words(command);
        (void)fputs(")'", stdout);
    } else if (row->operands[0] != '\0') {
        (void)fputs(" \\\n        '*:trace:_files'", stdout);
    }
    (void)fputs("\n        ;;\n", stdout);
}

static void print_zsh(void)
{
    (void)fputs("#compdef memshim\n"
                "# zsh completion for memshim, made from its tables (memshim completion zsh)\n"
                "_memshim() {\n"
                "    local -a commands\n"
                "    commands=(\n",
                stdout);
    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        if (!ms_cli_commands[i].hidden) {
            (void)printf("        '%s:", ms_cli_commands[i].name);
            print_brief(ms_cli_commands[i].summary, ":\\", "'\\''");
            (void)fputs("'\n", stdout);
        }
    }
    (void)fputs("    )\n"
                "    if ((CURRENT == 2)); then\n"
                "        _describe -t commands 'memshim command' commands\n"
                "        return\n"
                "    fi\n"
                "    shift words\n"
                "    ((CURRENT -= 1))\n"
                "    case $words[1] in\n",
                stdout);
    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        if (!ms_cli_commands[i].hidden) {
            print_zsh_command(i);
        }
    }
    (void)fputs("    esac\n}\n_memshim \"$@\"\n", stdout);
}

/* ---- fish ---- */

static void print_fish_name(const struct ms_cli_option *option)
{
    (void)printf("complete -c memshim -n '__fish_seen_subcommand_from %s' -l %s",
                 ms_cli_commands[option->command].name, option->name);
    if (option->letter) {
        (void)printf(" -s %c", option->letter);
    }
}

static void print_fish_option(const struct ms_cli_option *option)
{
    const enum completion_kind kind = option->value ? kind_of(option) : NOTHING_KNOWN;

    if (kind == CHOICES || kind == WORDS_OR_FILES) {
        /* In a line of their own: fish would give each of them the option's description. */
        print_fish_name(option);
        (void)fputs(kind == CHOICES ? " -x -a '" : " -r -F -a '", stdout);
        print_choices(option);
        (void)fputs("'\n", stdout);
    }
    print_fish_name(option);
    if (option->value) {
        (void)fputs(kind == FILES || kind == WORDS_OR_FILES ? " -r -F"
                    : kind == FOLDERS ? " -x -a '(__fish_complete_directories)'"
                                      : " -x",
                    stdout);
    }
    (void)fputs(" -d '", stdout);
    print_brief(option->meaning, "\\", "\\'");
    (void)fputs("'\n", stdout);
}

static void print_fish(void)
{
    const struct ms_cli_option_rows table = ms_cli_options_table();

    (void)fputs("# fish completion for memshim, made from its tables (memshim completion fish)\n"
                "complete -c memshim -f\n"
                "complete -c memshim -s h -l help -d 'what memshim or a command does'\n",
                stdout);
    for (size_t i = 0; i < MS_CLI_COMMANDS; i++) {
        const struct ms_cli_command *row = &ms_cli_commands[i];

        if (row->hidden) {
            continue;
        }
        (void)printf("complete -c memshim -n __fish_use_subcommand -a %s -d '", row->name);
        print_brief(row->summary, "\\", "\\'");
        (void)fputs("'\n", stdout);
        if (row->operands[0] == '\0') {
            continue;
        }
        (void)printf("complete -c memshim -n '__fish_seen_subcommand_from %s'", row->name);
        if (begins_command(i)) {
            (void)fputs(" -x -a '(__fish_complete_subcommand --fcs-skip=2)'\n", stdout);
        } else if (has_words(i)) {
            (void)fputs(" -a '", stdout);
            print_words(i);
            (void)fputs("'\n", stdout);
        } else {
            (void)fputs(" -F\n", stdout);
        }
    }
    for (size_t i = 0; i < table.count; i++) {
        print_fish_option(&table.at[i]);
    }
}

bool ms_cli_print_completion(const char *shell)
{
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
        if (strcmp(shells[i].shell, shell) == 0) {
            shells[i].print();
            return true;
        }
    }
    return false;
}
