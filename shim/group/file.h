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

/* Into path: the file of that group and device. False: the name is too long. */
bool ms_group_path(const char *folder, const char *name, const uint8_t uuid[16],
                   char path[MS_GROUP_PATH_BYTES]);

/* A file of a group, mapped and locked: no slot of it changes hands. */
struct ms_group_file {
    int fd;
    struct ms_group_region *region;
    bool made; /* it is new, and all zero */
};

/* Opens, or with `make` makes, locks and maps it. False, and why: no such file, or it is not ours
 * alone, or there is no memory for it. Waits for the lock for two seconds at most. */
bool ms_group_file_open(const char *path, bool make, struct ms_group_file *file, const char **why);

/* Unlocks; unmaps too, but where the caller keeps the region. */
void ms_group_file_close(struct ms_group_file *file, bool keep);

/* Frees the slots of members that have ended. How many are left. The file is locked. */
uint32_t ms_group_reap(struct ms_group_region *region);

/* Calls `each` for every region of this user's in the folder; under its lock. */
typedef void (*ms_group_each_t)(void *ctx, const char *path, struct ms_group_region *region);
void ms_group_list(const char *folder, ms_group_each_t each, void *ctx);

/* Removes those that have no member left. How many. */
uint32_t ms_group_sweep(const char *folder);

/* The name out of such a path: "run-..." or "group-...". False: it is none. */
bool ms_group_name_of(const char *path, char *name, size_t name_bytes);

#endif
