/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the library, starting from this executable. */
#include "shim/cli/launch/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ms_cli_join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    int written = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return written > 0 && written < PATH_MAX;
}

bool ms_cli_own_folder(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);

    if (length <= 0) {
        return false;
    }
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    return true;
}

bool ms_cli_find_library(char path[PATH_MAX])
{
    static const char *const places[] = {".", MEMSHIM_LIBRARY_FROM_BIN};
    char own[PATH_MAX], place[PATH_MAX], folder[PATH_MAX];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (ms_cli_own_folder(own) && ms_cli_join_path(place, own, places[i]) &&
            realpath(place, folder) != NULL && ms_cli_join_path(path, folder, MS_CLI_LIBRARY) &&
            access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

bool ms_cli_find_folder(char path[PATH_MAX], const char *built, const char *installed)
{
    char own[PATH_MAX], libraries[PATH_MAX], folder[PATH_MAX];

    if (!ms_cli_own_folder(own)) {
        return false;
    }
    return (ms_cli_join_path(folder, own, built) && realpath(folder, path) != NULL) ||
           (ms_cli_join_path(libraries, own, MEMSHIM_LIBRARY_FROM_BIN) &&
            ms_cli_join_path(folder, libraries, installed) && realpath(folder, path) != NULL);
}

bool ms_cli_find_program(const char *word, char path[PATH_MAX])
{
    const char *folders = getenv("PATH");

    if (strchr(word, '/')) {
        return snprintf(path, PATH_MAX, "%s", word) < PATH_MAX && access(path, X_OK) == 0;
    }
    while (folders && *folders) {
        const size_t length = strcspn(folders, ":");

        if (snprintf(path, PATH_MAX, "%.*s/%s", (int)length, length ? folders : ".", word) <
                PATH_MAX &&
            access(path, X_OK) == 0) {
            return true;
        }
        folders += length + (folders[length] == ':');
    }
    return false;
}
