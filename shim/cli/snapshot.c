/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a memory snapshot of PyTorch's, by way of the script that makes a CSV of one. */
#include "shim/cli/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/replay/recording.h"
#include "shim/cli/launch/place.h"

#define BUILT         "torch"
#define INSTALLED     "memshim/torch"
#define SCRIPT        "import_torch_snapshot.py"
#define OLDEST_PICKLE 2 /* before it, a pickle has no mark */
#define NEWEST_PICKLE 5

bool ms_cli_is_snapshot(const char *first, size_t bytes)
{
    return bytes >= 2 && (unsigned char)first[0] == 0x80 && first[1] >= OLDEST_PICKLE &&
           first[1] <= NEWEST_PICKLE;
}

/* 0, or an error as errno has it. */
static int start(char *const *argv, int output, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error == 0) {
        error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        if (error == 0) {
            error = posix_spawn(child, argv[0], &actions, NULL, argv, environ);
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    return error;
}

static bool ended_well(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool read_from(struct ms_recording *recording, char *const *argv, const char *path,
                      char *why, size_t why_bytes)
{
    int ends[2], error;
    pid_t child;
    bool read;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)snprintf(why, why_bytes, "%s: no pipe to read it through", path);
        return false;
    }
    error = start(argv, ends[1], &child);
    (void)close(ends[1]);
    if (error != 0) {
        (void)close(ends[0]);
        (void)snprintf(why, why_bytes, "%s: %s does not start", path, argv[0]);
        return false;
    }
    read = ms_recording_read_csv_from(recording, ends[0], path, why, why_bytes);
    if (!ended_well(child)) {
        (void)snprintf(why, why_bytes, "%s was not read (see above)", path);
        read = false;
    }
    return read;
}

bool ms_cli_read_snapshot(struct ms_recording *recording, const char *path, const char *device,
                          char *why, size_t why_bytes)
{
    char python[PATH_MAX], folder[PATH_MAX], script[PATH_MAX];
    char option[] = "--device", standard_output[] = "-";
    char *argv[] = {python,         script, (char *)path, standard_output, device ? option : NULL,
                    (char *)device, NULL};

    if (!ms_cli_find_folder(folder, BUILT, INSTALLED) ||
        !ms_cli_join_path(script, folder, SCRIPT)) {
        (void)snprintf(why, why_bytes,
                       "%s is a snapshot of PyTorch's: this installation has no " SCRIPT, path);
        return false;
    }
    if (!ms_cli_find_program("python3", python) && !ms_cli_find_program("python", python)) {
        (void)snprintf(why, why_bytes,
                       "%s is a snapshot of PyTorch's: to read it takes a python3 on PATH", path);
        return false;
    }
    return read_from(recording, argv, path, why, why_bytes);
}
