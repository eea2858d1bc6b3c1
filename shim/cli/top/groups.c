/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the processes share a cap with others, and what these use of it. A trace does not have
 * that: members come and go, may belong to other runs, and may have no trace. So it is read from
 * the groups' own files. */
#include <string.h>

#include "shim/cli/top/top.h"
#include "shim/group/alive.h"
#include "shim/group/file.h"
#include "shim/group/group.h"

struct rows {
    struct ms_top_process *processes;
    size_t count;
};

static bool has_member(const struct ms_group_region *region, uint32_t pid)
{
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        if (atomic_load(&region->slots[i].pid) == pid) {
            return true;
        }
    }
    return false;
}

static void add_group(const char *path, const struct ms_group_region *region, uint32_t pid,
                      struct ms_top_device *device)
{
    uint32_t others = 0;
    device->stats.others_bytes = ms_group_used_bytes(region, pid, &others);
    device->group_processes = others + 1;
    device->group_cap_bytes = region->cap_bytes;
    (void)ms_group_name_of(path, device->group, sizeof(device->group));
    ms_stats_derive(&device->stats, region->cap_bytes);
}

/* Process ids of another namespace are not those of the traces. */
static void add_region(void *ctx, const char *path, struct ms_group_region *region)
{
    const struct rows *rows = ctx;
    char uuid[MS_UUID_TEXT_BYTES];
    if (region->magic != MS_GROUP_MAGIC || region->pid_namespace != ms_pid_namespace()) {
        return;
    }
    (void)ms_group_reap(region);
    (void)ms_uuid_text(region->uuid, uuid);
    for (size_t i = 0; i < rows->count; i++) {
        const struct ms_top_process *process = &rows->processes[i];
        const uint32_t pid = (uint32_t)process->header.pid;
        const bool member = process->why[0] == '\0' && process->running && has_member(region, pid);
        struct ms_top_device *devices = (struct ms_top_device *)process->devices.at;
        for (size_t d = 0; d < ms_top_device_count(process) && member; d++) {
            if (strcmp(devices[d].uuid, uuid) == 0) {
                add_group(path, region, pid, &devices[d]);
            }
        }
    }
}

void ms_top_read_groups(struct ms_top_process *processes, size_t count)
{
    struct rows rows = {processes, count};
    ms_group_list(MS_GROUP_FOLDER, add_region, &rows);
}
