/* SPDX-License-Identifier: Apache-2.0 */
/* The files of groups: <folder>/memshim-<user>-<name>-<uuid>, one for each device of a group. */
#ifndef MEMSHIM_SHIM_GROUP_FILE_H
#define MEMSHIM_SHIM_GROUP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/group/layout.h"

#define MS_GROUP_FOLDER     "/dev/shm"
#define MS_GROUP_PATH_BYTES 512u

/* Writes the path of that group's and device's file into path. False: the name is too long. */
bool ms_group_path(const char *folder, const char *name, const uint8_t uuid[16],
                   char path[MS_GROUP_PATH_BYTES]);

/* A group's file, mapped and locked. While it is locked, its slots do not change owners. */
struct ms_group_file {
    int fd;
    struct ms_group_region *region;
    bool made;        /* new, and all zero */
    int cancellation; /* of the thread, which has it open */
};

/* Opens the file (with `make`: makes it if need be), locks and maps it. False, with *why: there is
 * no such file, it is not ours alone, or there is no memory for it. Waits for the lock for two
 * seconds at most. The thread cannot be cancelled (pthread_cancel) until it closes it. */
bool ms_group_file_open(const char *path, bool make, struct ms_group_file *file, const char **why);

/* Unlocks it, and unmaps it unless the caller keeps the region. */
void ms_group_file_close(struct ms_group_file *file, bool keep);

/* Frees the slots of members that have ended. Returns how many members are left. The caller has
 * locked the file. */
uint32_t ms_group_reap(struct ms_group_region *region);

/* Calls `each` for every region of this user's in the folder, each under its lock. */
typedef void (*ms_group_each_t)(void *ctx, const char *path, struct ms_group_region *region);
void ms_group_list(const char *folder, ms_group_each_t each, void *ctx);

/* Removes the files of groups that have no member left. Returns how many. */
uint32_t ms_group_sweep(const char *folder);

/* Extracts the name from such a path: "run-..." or "group-...". False: it is no such path. */
bool ms_group_name_of(const char *path, char *name, size_t name_bytes);

#endif
