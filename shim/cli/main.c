/* SPDX-License-Identifier: Apache-2.0 */
/* The memshim executable: finds the command and runs it. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "allocator/base/nearest.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/print.h"
#include "shim/cli/launch/place.h"

static int (*const functions[MS_CLI_COMMANDS])(int argc, char **argv) = {
#define MS_COMMAND(id, function, ...)        [MS_CLI_##id] = (function),
#define MS_HIDDEN_COMMAND(id, function, ...) [MS_CLI_##id] = (function),
#include "shim/cli/arguments/commands.def"
};

/* Options that replace a command, and the command that each stands for. */
static const struct {
    const char *name, *letter, *command;
} own[] = {{"--help", "-h", "help"}, {"--version", "-V", "version"}};

#define OWN_COUNT (sizeof(own) / sizeof(own[0]))

static bool is_option_of_run(const char *word)
{
    const size_t length = strcspn(word + 2, "=");
    const struct ms_cli_option_rows table = ms_cli_options_table();

    for (size_t i = 0; i < table.count; i++) {
        if (table.at[i].command == MS_CLI_RUN && strlen(table.at[i].name) == length &&
            strncmp(table.at[i].name, word + 2, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Writes a suggestion; "" if there is none. */
static void guess(const char *name, char *meant, size_t meant_bytes)
{
    const char *command = ms_cli_nearest_command(name);
    char program[PATH_MAX];

    meant[0] = '\0';
    for (size_t i = 0; i < OWN_COUNT && name[0] == '-'; i++) {
        if (strcasecmp(name, own[i].letter) == 0 ||
            ms_name_distance(name, own[i].name) <= strlen(own[i].name)) {
            command = own[i].name;
        }
    }
    if (command) {
        (void)snprintf(meant, meant_bytes, "%s", command);
    } else if (strncmp(name, "--", 2) == 0 && is_option_of_run(name)) {
        (void)snprintf(meant, meant_bytes, "run %s", name);
    } else if (ms_cli_find_program(name, program)) {
        (void)snprintf(meant, meant_bytes, "run -- %s", name);
    }
}

static int say_unknown(const char *name)
{
    char meant[PATH_MAX];

    guess(name, meant, sizeof(meant));
    return ms_cli_no_command(MS_CLI_COMMANDS, name, meant);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    enum ms_cli_command_id command;
    int status;

    /* An ignored SIGCHLD, inherited from who started us, would take our children's exit status
     * away. */
    (void)signal(SIGCHLD, SIG_DFL);
    if (argc < 2) {
        ms_cli_print_overview();
        return MS_CLI_WRONG_CALL;
    }
    for (size_t i = 0; i < OWN_COUNT; i++) {
        if (strcmp(name, own[i].name) == 0 || strcmp(name, own[i].letter) == 0) {
            name = own[i].command;
        }
    }
    command = ms_cli_command_find(name);
    if (command == MS_CLI_COMMANDS) {
        return say_unknown(name);
    }
    status = functions[command](argc - 1, argv + 1);
    if (fflush(stdout) != 0 && status == 0) {
        perror("memshim: standard output");
        status = 1;
    }
    return status;
}
