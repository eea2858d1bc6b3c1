/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under a dry run Hugging Face's libraries are offline: they look into their cache folder, which
 * has models--OWNER--NAME and datasets--OWNER--NAME, and ask no host. So it is the folder that is
 * not there which tells what the command lacks.
 */
#include "hub_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What stands behind the kind of a repository; null: it is the folder of none. */
static const char *repository_of(const char *path)
{
    static const char *const kinds[] = {"models--", "datasets--"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const size_t length = strlen(kinds[i]);
        if (strncmp(name, kinds[i], length) == 0 && name[length] != '\0') {
            return name + length;
        }
    }
    return NULL;
}

static void leave_word(const char *shared, const char *repository)
{
    char path[4096], line[256];
    const int length = snprintf(line, sizeof line, "hub %s\n", repository);
    if (length >= (int)sizeof line ||
        snprintf(path, sizeof path, "%s.asked", shared) >= (int)sizeof path) {
        return;
    }
    char *between = strstr(line, "--");
    if (between) {
        between[0] = '/';
        memmove(between + 1, between + 2, strlen(between + 2) + 1);
    }
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0) {
        (void)!write(file, line, strlen(line));
        (void)close(file);
    }
}

void sim_hub_missed(const char *path)
{
    const char *shared = getenv("SIMGPU_SHARED");
    const char *repository = shared && path ? repository_of(path) : NULL;
    if (repository) {
        const int error = errno;
        leave_word(shared, repository);
        errno = error;
    }
}
