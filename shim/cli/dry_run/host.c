/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up how much of this machine's memory the processes of a dry run hold. */
#include "shim/cli/dry_run/host.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "shim/tables/host_bytes.h"

#define KEPT_PART 20 /* one part in this many of what is available is left to the machine */
#define LEAST     (UINT64_C(128) << 20) /* below this the kernel begins to end processes */

struct process {
    int pid, parent;
    uint64_t bytes;
    bool ours;
};

uint64_t ms_dry_host_room(void)
{
    const uint64_t available_bytes = ms_host_available_bytes("");

    return available_bytes - available_bytes / KEPT_PART;
}

/* A process's private pages. What it shares, files and the simulated devices' contents, is small,
 * and would count once for each process. */
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
    *process = (struct process){.pid = (int)strtol(name, NULL, 10)};
    while (fgets(line, sizeof(line), file) && sscanf(line, "RssAnon: %" SCNu64, &kibibytes) != 1) {
        (void)sscanf(line, "PPid: %d", &process->parent);
    }
    (void)fclose(file);
    process->bytes = kibibytes << 10;
    return true;
}

static bool is_ours(const struct process *processes, size_t count, int pid)
{
    bool found = pid == getpid();

    for (size_t i = 0; !found && i < count; i++) {
        found = processes[i].pid == pid && processes[i].ours;
    }
    return found;
}

/* Adds up the descendants of this process. */
static uint64_t add_ours(struct process *processes, size_t count)
{
    uint64_t bytes = 0;

    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            if (!processes[i].ours && is_ours(processes, count, processes[i].parent)) {
                processes[i].ours = more = true;
                bytes += processes[i].bytes;
            }
        }
    }
    return bytes;
}

bool ms_dry_host_look(struct ms_dry_host *host)
{
    struct ms_buffer processes = {0};
    struct process process, *slot;
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    uint64_t bytes;

    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            read_process(entry->d_name, &process) &&
            (slot = ms_buffer_extend(&processes, sizeof(*slot)))) {
            *slot = process;
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    bytes = processes.failed ? 0
                             : add_ours((struct process *)(void *)processes.at,
                                        processes.bytes / sizeof(process));
    ms_buffer_free(&processes);
    host->most_bytes = bytes > host->most_bytes ? bytes : host->most_bytes;
    return host->limit_bytes == 0 ||
           (bytes <= host->limit_bytes && ms_host_available_bytes("") >= LEAST);
}
