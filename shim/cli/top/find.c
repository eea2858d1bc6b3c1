/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the wanted traces: by folder, or by process id; a process's trace is in its mappings. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "report/read/traces.h"
#include "shim/cli/launch/latest.h"
#include "shim/cli/top/top.h"

struct process {
    long pid, parent;
    UT_hash_handle hh; /* by pid */
};

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

/* The parent, from /proc/PID/stat; 0: the process is gone. */
static long parent_of(long pid)
{
    char name[64], text[1024];
    long parent = 0;
    (void)snprintf(name, sizeof(name), "/proc/%ld/stat", pid);
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return 0;
    }
    const size_t got = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[got] = '\0';
    /* The executable's name, in parentheses, may contain anything. */
    const char *behind = strrchr(text, ')');
    if (behind != NULL && strlen(behind) > 4) {
        parent = strtol(behind + 4, NULL, 10);
    }
    return parent;
}

/* All present processes; release them with free_processes. */
static struct process *list_processes(void)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    struct process *all = NULL;
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        const long pid = strtol(entry->d_name, NULL, 10);
        struct process *process = pid > 0 ? calloc(1, sizeof(*process)) : NULL;
        if (process != NULL) {
            process->pid = pid;
            process->parent = parent_of(pid);
            HASH_ADD(hh, all, pid, sizeof(pid), process);
        }
    }
    if (proc != NULL) {
        (void)closedir(proc);
    }
    return all;
}

static void free_processes(struct process *all)
{
    struct process *process = all;
    HASH_CLEAR(hh, all); /* clears the table itself; the rows are still chained */
    while (process != NULL) {
        struct process *next = process->hh.next;
        free(process);
        process = next;
    }
}

/* Whether it is `root`, or a descendant of it. If a process id was reused during the listing, the
 * parents may form a ring. */
static bool is_below(struct process *all, long pid, long root)
{
    const struct process *process = NULL;
    for (unsigned left = HASH_COUNT(all); left > 0 && pid != root; left--) {
        HASH_FIND(hh, all, &pid, sizeof(pid), process);
        if (process == NULL) {
            return false;
        }
        pid = process->parent;
    }
    return pid == root;
}

static void add_trace(struct ms_buffer *found, const char *path)
{
    struct ms_trace_path *added = ms_buffer_extend(found, sizeof(*added));
    if (added != NULL) {
        (void)snprintf(added->path, sizeof(added->path), "%s", path);
    }
}

static bool find_by_pid(long pid, struct ms_buffer *found, char *why, size_t why_bytes)
{
    struct process *all, *process, *next;
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
    all = list_processes();
    HASH_ITER(hh, all, process, next)
    {
        if (is_below(all, process->pid, pid) &&
            mapped_trace(process->pid, path, sizeof(path)) == 0 && path[0] != '\0') {
            add_trace(found, path);
        }
    }
    free_processes(all);
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
