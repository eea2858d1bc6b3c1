/* memshim run: a command with the library preloaded and the options set, and its reports completed
 * when it has ended. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/cli/cli.h"
#include "shim/cli/finish.h"
#include "shim/cli/supervise.h"
#include "shim/identity.h"
#include "shim/options.h"

#define LIBRARY        "libmemshim.so"
#define OPTION_PREFIX  "MEMSHIM_"
#define DEFAULT_OUTPUT "memshim-out"

static const char usage[] =
    "Usage: memshim run [--OPTION VALUE]... [--] COMMAND [ARGUMENT]...\n"
    "Runs the command under memshim and completes the reports when it has ended. The exit status\n"
    "is the command's.\n\n"
    "  --fraction F     cap: this part of each device's memory (0.95; 0:0.9,1:0.5 by device)\n"
    "  --limit L        cap: this many bytes (20GiB; 0:12GiB,1:20GiB by device)\n"
    "  --output DIR     where traces and reports go (default memshim-out)\n"
    "  --log LEVEL      off, warn, info or debug\n"
    "  --pool on|off    off: every allocation is the driver's; cap and report stay\n"
    "  --torch MODE     how PyTorch is treated\n"
    "Every other option that `memshim options` lists can be given in the same way.\n";

#define complain(format, ...) ((void)fprintf(stderr, "memshim run: " format "\n", ##__VA_ARGS__))

/* --trace-limit -> MEMSHIM_TRACE_LIMIT. */
static bool variable_name(const char *flag, size_t length, char *name, size_t name_bytes)
{
    static const char lower[] = "abcdefghijklmnopqrstuvwxyz-";
    static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t used = sizeof OPTION_PREFIX - 1;
    if (length == 0 || used + length >= name_bytes) {
        return false;
    }
    memcpy(name, OPTION_PREFIX, used);
    for (size_t i = 0; i < length; i++) {
        const char *letter = strchr(lower, flag[i]);
        if (letter == NULL) {
            return false;
        }
        name[used++] = upper[letter - lower];
    }
    name[used] = '\0';
    return true;
}

static void count_complaint(void *ctx, const char *sentence)
{
    (*(int *)ctx)++;
    complain("%s", sentence);
}

/* The processes of the command have said it already. */
static void ignore_complaint(void *ctx, const char *sentence)
{
    (void)ctx;
    (void)sentence;
}

/* Sets the variable, if the table of options takes it with this value. */
static bool set_option(const char *flag, size_t length, const char *value)
{
    char name[64];
    char assignment[64 + PATH_MAX];
    if (!variable_name(flag, length, name, sizeof name)) {
        complain("--%s is not an option; `memshim options` lists them", flag);
        return false;
    }
    int written = snprintf(assignment, sizeof assignment, "%s=%s", name, value);
    if (written < 0 || (size_t)written >= sizeof assignment) {
        complain("the value of %s is too long", name);
        return false;
    }
    char *const alone[] = {assignment, NULL};
    struct ms_options parsed;
    int complaints = 0;
    ms_options_parse(alone, &parsed, count_complaint, &complaints);
    return complaints == 0 && setenv(name, value, 1) == 0;
}

/* Index of the command in argv, 0 where there is none to run (*status says how to end). */
static int read_arguments(int argc, char **argv, int *status)
{
    *status = MS_CLI_WRONG_CALL;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            (void)fputs(usage, stdout);
            *status = 0;
            return 0;
        }
        if (strcmp(argument, "--") == 0) {
            i++;
            if (i < argc) {
                return i;
            }
            break;
        }
        if (strncmp(argument, "--", 2) != 0) {
            if (argument[0] == '-') {
                complain("%s is not an option; options have the form --name VALUE", argument);
                return 0;
            }
            return i;
        }
        const char *flag = argument + 2;
        size_t length = strcspn(flag, "=");
        const char *value = flag[length] == '=' ? flag + length + 1 : argv[++i];
        if (value == NULL) {
            complain("%s needs a value; memshim run --help says which", argument);
            return 0;
        }
        if (!set_option(flag, length, value)) {
            return 0;
        }
    }
    complain("there is no command to run: memshim run [--OPTION VALUE]... -- COMMAND...");
    return 0;
}

static bool join_path(char *path, const char *folder, const char *name)
{
    int written = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return written > 0 && written < PATH_MAX;
}

/* The library that belongs to this executable: beside it in a build folder, in the library folder
 * when installed. */
static bool find_library(char *path)
{
    char folder[PATH_MAX];
    char candidate[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) {
        complain("cannot tell where this executable is: %s", strerror(errno));
        return false;
    }
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    static const char *const places[] = {LIBRARY, MEMSHIM_LIBRARY_FROM_BIN "/" LIBRARY};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (join_path(candidate, folder, places[i]) && realpath(candidate, path) != NULL) {
            return true;
        }
    }
    complain("%s is neither beside this executable (%s) nor in " MEMSHIM_LIBRARY_FROM_BIN, LIBRARY,
             folder);
    return false;
}

static bool preload_library(void)
{
    char path[PATH_MAX];
    if (!find_library(path)) {
        return false;
    }
    if (strpbrk(path, " :") != NULL) {
        complain("LD_PRELOAD cannot hold a path with a blank or a colon: %s; install memshim "
                 "elsewhere",
                 path);
        return false;
    }
    const char *before = getenv("LD_PRELOAD");
    if (before == NULL || before[0] == '\0') {
        return setenv("LD_PRELOAD", path, 1) == 0;
    }
    size_t bytes = strlen(path) + strlen(before) + 2;
    char *both = malloc(bytes);
    if (both == NULL) {
        return false;
    }
    (void)snprintf(both, bytes, "%s:%s", path, before);
    bool set = setenv("LD_PRELOAD", both, 1) == 0;
    free(both);
    return set;
}

/* The command may change its folder, and its processes may start in others: all have to find the
 * same output. */
static bool settle_output(char *output)
{
    const char *given = getenv(OPTION_PREFIX "OUTPUT");
    char folder[PATH_MAX];
    if (given == NULL || given[0] == '\0') {
        given = DEFAULT_OUTPUT;
    }
    if (given[0] == '/') {
        return snprintf(output, PATH_MAX, "%s", given) < PATH_MAX &&
               setenv(OPTION_PREFIX "OUTPUT", output, 1) == 0;
    }
    if (getcwd(folder, sizeof folder) == NULL || !join_path(output, folder, given)) {
        complain("the current folder has no usable name: %s", strerror(errno));
        return false;
    }
    return setenv(OPTION_PREFIX "OUTPUT", output, 1) == 0;
}

/* All processes of the command belong to one run, also where nothing above them names it. */
static bool settle_run_id(time_t start)
{
    char id[64];
    ms_identity_start_id(start, getpid(), id, sizeof id);
    return setenv(OPTION_PREFIX "RUN_ID", id, 0) == 0;
}

int ms_cli_run(int argc, char **argv)
{
    char output[PATH_MAX];
    int status;
    time_t start = time(NULL);
    int command = read_arguments(argc, argv, &status);
    if (command == 0) {
        return status;
    }
    if (!settle_output(output) || !settle_run_id(start) || !preload_library()) {
        return MS_CLI_WRONG_CALL;
    }
    int error = 0;
    int wait_status = ms_supervise(argv + command, environ, &error);
    if (wait_status < 0) {
        complain("cannot run '%s': %s", argv[command], strerror(error));
        return error == ENOENT ? 127 : 126;
    }
    struct ms_options options;
    ms_options_parse(environ, &options, ignore_complaint, NULL);
    if (options.trace) {
        ms_finish_runs(output, start, options.log != MS_LOG_OFF);
    }
    return ms_end_alike(wait_status);
}
