/* SPDX-License-Identifier: Apache-2.0 */
/* memshim run: runs a command with the library preloaded and the options set, and completes its
 * reports when it has ended. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/way_out.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/launch/finish.h"
#include "shim/cli/launch/latest.h"
#include "shim/cli/launch/preload.h"
#include "shim/cli/launch/supervise.h"
#include "shim/group/file.h"
#include "shim/tables/options.h"

#define complain(format, ...) (ms_complain("memshim run: " format, ##__VA_ARGS__))

static void count_complaint(void *ctx, const char *sentence)
{
    (void)sentence;
    (*(int *)ctx)++;
}

/* The processes of the command have printed it already. */
static void ignore_complaint(void *ctx, const char *sentence)
{
    (void)ctx;
    (void)sentence;
}

/* Sets the variable if the library accepts the value. */
static bool take_option(void *call, const struct ms_cli_option *option, const char *value)
{
    char assignment[64 + PATH_MAX];
    char *const alone[] = {assignment, NULL};
    struct ms_options parsed;
    int complaints = 0;
    (void)call;
    if (option->id == MS_CLI_RUN_QUIET) {
        return setenv("MEMSHIM_LOG", "off", 1) == 0;
    }
    int written = snprintf(assignment, sizeof assignment, "%s=%s", option->variable, value);
    if (written < 0 || (size_t)written >= sizeof assignment) {
        return false;
    }
    ms_options_parse(alone, &parsed, count_complaint, &complaints);
    return complaints == 0 && setenv(option->variable, value, 1) == 0;
}

/* -1 if there is a command to run, otherwise the exit status. */
static int read_arguments(int argc, char **argv, int *command)
{
    const struct ms_cli_reader reader = {.option = take_option, .rest = command};
    int status = ms_cli_parse(MS_CLI_RUN, argc, argv, &reader, NULL);
    return status < 0 && *command == argc
               ? ms_cli_wrong(MS_CLI_RUN, "there is no command to run: memshim run [OPTION]... -- "
                                          "COMMAND...")
               : status;
}

int ms_cli_run(int argc, char **argv)
{
    char output[PATH_MAX];
    int command;
    time_t start = time(NULL);
    int status = read_arguments(argc, argv, &command);
    if (status >= 0) {
        return status;
    }
    if (ms_options_switched_off(environ)) {
        (void)execvp(argv[command], argv + command);
        return ms_cannot_run("run", argv[command], errno);
    }
    if (!ms_begin_run("run", ms_cli_output_folder(), start, output)) {
        complain("the command was not started; " MS_WAY_OUT);
        return MS_CLI_WRONG_CALL;
    }
    int error = 0;
    int wait_status = ms_supervise(argv + command, environ, &error);
    if (wait_status < 0) {
        return ms_cannot_run("run", argv[command], error);
    }
    struct ms_options options;
    ms_options_parse(environ, &options, ignore_complaint, NULL);
    if (options.cap_of_run || options.group != NULL) {
        (void)ms_group_sweep(MS_GROUP_FOLDER);
    }
    if (options.trace) {
        ms_finish_runs(output, start, options.log != MS_LOG_OFF);
    }
    return ms_end_alike(wait_status);
}
