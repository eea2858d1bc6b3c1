/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the wanted traces: by folder, or by process id; a process's trace is in its mappings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/read/traces.h"
#include "shim/cli/launch/descendants.h"
#include "shim/cli/launch/latest.h"
#include "shim/cli/top/top.h"

/* The path of the trace that the process has mapped. 0 and an empty path: none; otherwise an
 * errno. */
static int mapped_trace(long pid, char *path, size_t path_bytes)
{
    char maps[64];
    char *line = NULL;
    size_t room = 0;
    (void)snprintf(maps, sizeof(maps), "/proc/%ld/maps", pid);
    FILE *file = fopen(maps, "re");
    path[0] = '\0';
    if (file == NULL) {
        return errno;
    }
    while (path[0] == '\0' && getline(&line, &room, file) > 0) {
        const char *at = strchr(line, '/');
        const char *name = at != NULL ? strrchr(line, '/') : NULL;
        if (name != NULL && strcmp(name, "/" MS_TRACE_FILE "\n") == 0) {
            (void)snprintf(path, path_bytes, "%.*s", (int)(name - at), at);
        }
    }
    const int error = ferror(file) != 0 ? errno : 0;
    free(line);
    (void)fclose(file);
    return error;
}

static void add_trace(struct ms_buffer *found, const char *path)
{
    struct ms_trace_path *added = path[0] != '\0' ? ms_buffer_extend(found, sizeof(*added)) : NULL;
    if (added != NULL) {
        (void)snprintf(added->path, sizeof(added->path), "%s", path);
    }
}

static bool find_by_pid(long pid, struct ms_buffer *found, char *why, size_t why_bytes)
{
    struct ms_buffer below = {0};
    char path[PATH_MAX];
    const int error = mapped_trace(pid, path, sizeof(path));
    if (error != 0) {
        char text[128];
        if (error == ENOENT || error == ESRCH) {
            (void)snprintf(why, why_bytes, "there is no process %ld", pid);
        } else {
            (void)snprintf(why, why_bytes,
                           "the mapped files of process %ld cannot be read (%s); name its folder",
                           pid, strerror_r(error, text, sizeof(text)));
        }
        return false;
    }
    add_trace(found, path);
    ms_descendants_find((pid_t)pid, &below);
    for (size_t i = 0; i < ms_descendants_count(&below); i++) {
        (void)mapped_trace(ms_descendants_at(&below, i)->pid, path, sizeof(path));
        add_trace(found, path);
    }
    ms_buffer_free(&below);
    if (found->bytes == 0) {
        (void)snprintf(
            why, why_bytes,
            "neither process %ld nor a process that it started writes a trace: it has not used "
            "a device yet, memshim is not preloaded, or MEMSHIM_TRACE is off",
            pid);
    }
    return found->bytes > 0;
}

bool ms_top_find(const char *target, struct ms_buffer *found, char *why, size_t why_bytes)
{
    if (target == NULL) {
        return ms_cli_find_latest(found, " or the id of a process", why, why_bytes);
    }
    if (target[0] != '\0' && target[strspn(target, "0123456789")] == '\0') {
        errno = 0;
        const long pid = strtol(target, NULL, 10);
        if (errno != 0 || pid <= 0 || pid > INT_MAX) {
            (void)snprintf(why, why_bytes, "there is no process with the id %s", target);
            return false;
        }
        return find_by_pid(pid, found, why, why_bytes);
    }
    return ms_traces_find(target, found, why, why_bytes);
}
