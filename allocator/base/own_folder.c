/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that only its owner can write to, or none. */
#include "allocator/base/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ms_own_folder_trouble(int folder)
{
    struct stat status;

    if (fstat(folder, &status) != 0) {
        return "it cannot be looked at";
    }
    if (status.st_uid != geteuid()) {
        return "it belongs to another user";
    }
    return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "other users may write to it" : NULL;
}

static int open_ours(const char *path)
{
    const int folder = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (folder < 0) {
        errno = errno == ENOTDIR || errno == ELOOP ? EPERM : errno;
        return -1;
    }
    if (ms_own_folder_trouble(folder)) {
        close(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

int ms_own_folder_open(const char *path)
{
    return mkdir(path, S_IRWXU) == 0 || errno == EEXIST ? open_ours(path) : -1;
}

bool ms_own_folder_is(const char *path)
{
    const int folder = open_ours(path);

    if (folder >= 0) {
        close(folder);
    }
    return folder >= 0;
}
