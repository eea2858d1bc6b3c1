/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a process's descendants in /proc. */
#include "shim/cli/launch/descendants.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct process {
    pid_t pid, parent;
    uint64_t private_bytes;
};

static bool read_process(const char *name, struct process *process)
{
    char path[64], line[256];
    FILE *file = snprintf(path, sizeof(path), "/proc/%.20s/status", name) < (int)sizeof(path)
                     ? fopen(path, "re")
                     : NULL;
    uint64_t kibibytes = 0;

    if (!file) {
        return false;
    }
    *process = (struct process){.pid = (pid_t)strtol(name, NULL, 10)};
    while (fgets(line, sizeof(line), file) && sscanf(line, "RssAnon: %" SCNu64, &kibibytes) != 1) {
        (void)sscanf(line, "PPid: %d", &process->parent);
    }
    (void)fclose(file);
    process->private_bytes = kibibytes << 10;
    return true;
}

static int compare_pids(const void *one, const void *other)
{
    const struct process *a = one, *b = other;

    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* All processes, sorted by their ids. */
static void read_all(struct ms_buffer *processes)
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    struct process process, *slot;

    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            read_process(entry->d_name, &process) &&
            (slot = ms_buffer_extend(processes, sizeof(*slot)))) {
            *slot = process;
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    if (processes->bytes > 0) {
        qsort(processes->at, processes->bytes / sizeof(process), sizeof(process), compare_pids);
    }
}

/* If an id was used again during the listing, the parents may form a ring. */
static bool is_below(const struct process *process, pid_t root, const struct process *all,
                     size_t count)
{
    for (size_t left = count; left > 0 && process && process->parent != root; left--) {
        const struct process wanted = {.pid = process->parent};

        process = bsearch(&wanted, all, count, sizeof(*all), compare_pids);
    }
    return process && process->parent == root;
}

void ms_descendants_find(pid_t root, struct ms_buffer *found)
{
    struct ms_buffer buffer = {0};
    const struct process *all;
    struct ms_descendant *slot;
    size_t count;

    read_all(&buffer);
    all = (const struct process *)(const void *)buffer.at;
    count = buffer.failed ? 0 : buffer.bytes / sizeof(*all);
    for (size_t i = 0; i < count; i++) {
        if (is_below(&all[i], root, all, count) &&
            (slot = ms_buffer_extend(found, sizeof(*slot)))) {
            *slot = (struct ms_descendant){all[i].pid, getpgid(all[i].pid), all[i].private_bytes};
        }
    }
    ms_buffer_free(&buffer);
}
