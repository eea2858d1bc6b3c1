/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for traces in the folders of processes, runs and whole outputs. */
#include "report/read/traces.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report/trace/format.h"

static bool is_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat status;

    return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
           stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static void add(struct ms_buffer *found, const char *path)
{
    struct ms_trace_path *added = ms_buffer_extend(found, sizeof(*added));

    if (added) {
        snprintf(added->path, sizeof(added->path), "%s", path);
    }
}

/* Sorts rank 10 after rank 2. */
static int by_name(const void *a, const void *b)
{
    return strverscmp(((const struct ms_trace_path *)a)->path,
                      ((const struct ms_trace_path *)b)->path);
}

/* Adds every process's folder right below. False: the folder cannot be read. */
static bool add_processes(const char *folder, struct ms_buffer *found)
{
    const size_t before = found->bytes;
    DIR *listing = opendir(folder);
    const struct dirent *entry;

    if (!listing) {
        return false;
    }
    while ((entry = readdir(listing)) != NULL) {
        char path[PATH_MAX];

        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < (int)sizeof(path) &&
            is_file(path, MS_TRACE_FILE)) {
            add(found, path);
        }
    }
    (void)closedir(listing);
    if (found->bytes > before) {
        qsort(found->at + before, (found->bytes - before) / sizeof(struct ms_trace_path),
              sizeof(struct ms_trace_path), by_name);
    }
    return true;
}

bool ms_traces_find(const char *path, struct ms_buffer *found, char *why, size_t why_bytes)
{
    const size_t before = found->bytes;
    char latest[PATH_MAX];
    struct stat status;

    if (stat(path, &status) != 0) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!S_ISDIR(status.st_mode) || is_file(path, MS_TRACE_FILE)) {
        add(found, path);
        return true;
    }
    if (!add_processes(path, found)) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (found->bytes == before &&
        snprintf(latest, sizeof(latest), "%s/latest", path) < (int)sizeof(latest)) {
        (void)add_processes(latest, found);
    }
    if (found->bytes == before) {
        snprintf(why, why_bytes,
                 "%s: holds no trace (looked for %s in it, in the folders below it, and in its "
                 "latest run)",
                 path, MS_TRACE_FILE);
        return false;
    }
    return true;
}
