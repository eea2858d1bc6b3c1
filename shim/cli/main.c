/* SPDX-License-Identifier: Apache-2.0 */
/* The memshim executable: finds the command and hands over. */
#include <stdio.h>
#include <string.h>

#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/print.h"

static int (*const functions[MS_CLI_COMMANDS])(int argc, char **argv) = {
#define MS_COMMAND(id, function, ...)        [MS_CLI_##id] = (function),
#define MS_HIDDEN_COMMAND(id, function, ...) [MS_CLI_##id] = (function),
#include "shim/cli/arguments/commands.def"
};

static int say_unknown(const char *name)
{
    const char *meant = ms_cli_nearest_command(name);

    ms_complain("memshim: there is no command '%s'%s%s%s (memshim help lists them)", name,
                meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
    return MS_CLI_WRONG_CALL;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    enum ms_cli_command_id command;
    int status;

    if (argc < 2) {
        ms_cli_print_overview();
        return MS_CLI_WRONG_CALL;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        name = "version";
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
