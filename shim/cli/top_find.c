/* Which traces are meant: by folder, or by the id of a process, in whose mappings its trace is. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/traces.h"
#include "shim/cli/top.h"

#define DEFAULT_OUTPUT "memshim-out"

struct parent {
    long pid, parent;
    bool below; /* the process that is asked for, or started by one that is */
};

/* The path of the trace that the process has mapped. 0 and an empty path: none; else an errno. */
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

/* What /proc/PID/stat says; 0: the process is gone. */
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
    /* The name of the executable, in parentheses, may hold anything. */
    const char *behind = strrchr(text, ')');
    if (behind != NULL && strlen(behind) > 4) {
        parent = strtol(behind + 4, NULL, 10);
    }
    return parent;
}

static void list_processes(struct ms_buffer *all)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        const long pid = strtol(entry->d_name, NULL, 10);
        struct parent *parent = pid > 0 ? ms_buffer_extend(all, sizeof(*parent)) : NULL;
        if (parent != NULL) {
            *parent = (struct parent){.pid = pid, .parent = parent_of(pid)};
        }
    }
    if (proc != NULL) {
        (void)closedir(proc);
    }
}

static bool is_below(const struct parent *all, size_t count, long pid)
{
    for (size_t i = 0; i < count; i++) {
        if (all[i].pid == pid) {
            return all[i].below;
        }
    }
    return false;
}

static void mark_below(struct ms_buffer *list, long root)
{
    struct parent *all = (struct parent *)list->at;
    const size_t count = list->bytes / sizeof(*all);
    bool more = true;
    for (size_t i = 0; i < count; i++) {
        all[i].below = all[i].pid == root;
    }
    while (more) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            if (!all[i].below && is_below(all, count, all[i].parent)) {
                all[i].below = true;
                more = true;
            }
        }
    }
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
    struct ms_buffer list = {0};
    char path[PATH_MAX];
    const int error = mapped_trace(pid, path, sizeof(path));
    if (error != 0) {
        char text[128];
        if (error == ENOENT || error == ESRCH) {
            (void)snprintf(why, why_bytes, "there is no process %ld", pid);
        } else {
            (void)snprintf(why, why_bytes,
                           "what process %ld has mapped cannot be read (%s); name its folder", pid,
                           strerror_r(error, text, sizeof(text)));
        }
        return false;
    }
    list_processes(&list);
    mark_below(&list, pid);
    const struct parent *all = (const struct parent *)list.at;
    for (size_t i = 0; i < list.bytes / sizeof(*all); i++) {
        if (all[i].below && mapped_trace(all[i].pid, path, sizeof(path)) == 0 && path[0] != '\0') {
            add_trace(found, path);
        }
    }
    ms_buffer_free(&list);
    if (found->bytes == 0) {
        (void)snprintf(why, why_bytes,
                       "neither process %ld nor one that it started writes a trace: no device is "
                       "used yet, memshim is not preloaded there, or MEMSHIM_TRACE is off",
                       pid);
    }
    return found->bytes > 0;
}

static bool find_newest(struct ms_buffer *found, char *why, size_t why_bytes)
{
    const char *output = getenv("MEMSHIM_OUTPUT");
    char latest[PATH_MAX], reason[PATH_MAX + 256] = "";
    if (output == NULL || output[0] == '\0') {
        output = DEFAULT_OUTPUT;
    }
    if (snprintf(latest, sizeof(latest), "%s/latest", output) < (int)sizeof(latest) &&
        ms_traces_find(latest, found, reason, sizeof(reason))) {
        return true;
    }
    (void)snprintf(why, why_bytes,
                   "no run is found in %s (%s); name the folder of one or the id of a process, or "
                   "set MEMSHIM_OUTPUT",
                   output, reason);
    return false;
}

bool ms_top_find(const char *target, struct ms_buffer *found, char *why, size_t why_bytes)
{
    if (target == NULL) {
        return find_newest(found, why, why_bytes);
    }
    if (target[0] != '\0' && target[strspn(target, "0123456789")] == '\0') {
        errno = 0;
        const long pid = strtol(target, NULL, 10);
        if (errno != 0 || pid <= 0 || pid > INT_MAX) {
            (void)snprintf(why, why_bytes, "%s is the id of no process", target);
            return false;
        }
        return find_by_pid(pid, found, why, why_bytes);
    }
    return ms_traces_find(target, found, why, why_bytes);
}
