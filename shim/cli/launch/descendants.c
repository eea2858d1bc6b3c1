/* SPDX-License-Identifier: Apache-2.0 */
/* Finds this process's descendants in /proc. */
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
    bool is_ours;
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
}

static bool is_ours(const struct process *processes, size_t count, pid_t pid)
{
    bool found = pid == getpid();

    for (size_t i = 0; !found && i < count; i++) {
        found = processes[i].pid == pid && processes[i].is_ours;
    }
    return found;
}

static void take(const struct process *process, struct ms_buffer *found)
{
    struct ms_descendant *slot = ms_buffer_extend(found, sizeof(*slot));

    if (slot) {
        *slot = (struct ms_descendant){process->pid, getpgid(process->pid), process->private_bytes};
    }
}

void ms_descendants_find(struct ms_buffer *found)
{
    struct ms_buffer buffer = {0};
    struct process *processes;
    size_t count;

    read_all(&buffer);
    processes = (struct process *)(void *)buffer.at;
    count = buffer.failed ? 0 : buffer.bytes / sizeof(*processes);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            if (!processes[i].is_ours && is_ours(processes, count, processes[i].parent)) {
                processes[i].is_ours = more = true;
                take(&processes[i], found);
            }
        }
    }
    ms_buffer_free(&buffer);
}
