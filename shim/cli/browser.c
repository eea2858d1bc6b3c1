/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a browser and leaves it running. The path passes through no shell. */
#include "shim/cli/browser.h"

#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLLS   40 /* a program that cannot start fails within this time */
#define POLL_NS 50000000L

static void choose(char program[PATH_MAX])
{
    const char *given = getenv("BROWSER");
    const size_t bytes = given ? strcspn(given, ":") : 0;

    if (bytes > 0) {
        (void)snprintf(program, PATH_MAX, "%.*s", (int)(bytes < PATH_MAX ? bytes : PATH_MAX - 1),
                       given);
    } else {
        (void)snprintf(program, PATH_MAX, "xdg-open");
    }
}

/* Whether it succeeded; one that still runs has opened the file. */
static bool went_well(pid_t child, int *status)
{
    const struct timespec pause = {0, POLL_NS};

    for (int i = 0; i < POLLS; i++) {
        const pid_t ended = waitpid(child, status, WNOHANG);

        if (ended != 0) {
            return ended == child && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

bool ms_browser_open(const char *path, char *why, size_t why_bytes)
{
    char program[PATH_MAX], file[PATH_MAX];
    char *const arguments[] = {program, file, NULL};
    pid_t child = 0;
    int status = 0;

    choose(program);
    (void)snprintf(file, sizeof(file), "%s", path);

    const int error = posix_spawnp(&child, program, NULL, NULL, arguments, environ);

    if (error != 0) {
        (void)snprintf(why, why_bytes, "%s: %s", program, strerror(error));
        return false;
    }
    if (!went_well(child, &status)) {
        (void)snprintf(why, why_bytes, "%s failed", program);
        return false;
    }
    return true;
}
