/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the file's inode in /proc/PID/maps. */
#include "report/read/mapped.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Parses "start-end perms offset device inode path". Uses the inode alone: some file systems show
 * another device here than stat does. 0: no file. */
static uint64_t inode_of(const char *line)
{
    for (int field = 0; field < 4; field++) {
        line += strcspn(line, " ");
        line += strspn(line, " ");
    }
    return strtoull(line, NULL, 10);
}

bool ms_is_mapped_by(int32_t pid, int fd)
{
    struct stat status;
    char name[64], line[PATH_MAX + 128];
    bool mapped = false, begins = true;

    (void)snprintf(name, sizeof(name), "/proc/%" PRId32 "/maps", pid);
    if (pid <= 0 || fstat(fd, &status) != 0 || status.st_ino == 0) {
        return false;
    }

    FILE *maps = fopen(name, "re");

    if (!maps) {
        return false;
    }
    while (!mapped && fgets(line, sizeof(line), maps)) {
        mapped = begins && inode_of(line) == status.st_ino;
        begins = strchr(line, '\n') != NULL;
    }
    (void)fclose(maps);
    return mapped;
}
