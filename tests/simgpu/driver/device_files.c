/* SPDX-License-Identifier: Apache-2.0 */
/* Frameworks look for the files of NVIDIA's kernel driver before they ask the driver (JAX does). If
 * this library is preloaded, /dev/nvidiactl and /dev/nvidiaN appear to exist as character devices.
 * They cannot be opened.
 *
 * Straight to the kernel: whoever stands before libc's functions is not asked.
 */
#include "hub_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Programs look for the files before the settings have been read. */
static unsigned long device_count(void)
{
    const char *count = getenv("SIMGPU_DEVICES");

    return count ? strtoul(count, NULL, 10) : 1;
}

static bool is_device(const char *path)
{
    static const char prefix[] = "/dev/nvidia";

    if (!path || strncmp(path, prefix, strlen(prefix)) != 0) {
        return false;
    }

    const char *rest = path + strlen(prefix);
    char *end;
    const unsigned long number = strtoul(rest, &end, 10);

    return strcmp(rest, "ctl") == 0 || (end != rest && *end == '\0' && number < device_count());
}

static const char *shown(const char *path)
{
    return is_device(path) ? "/dev/null" : path;
}

/* The names of stat() with large files, and in programs linked with a glibc before 2.33. All share
 * one struct stat on 64-bit systems. */
int __xstat(int version, const char *path, struct stat *found);
int __xstat64(int version, const char *path, struct stat64 *found);

static int stat_shown(const char *path, void *found)
{
    const int status = (int)syscall(SYS_newfstatat, AT_FDCWD, shown(path), found, 0);

    if (status != 0 && errno == ENOENT) {
        sim_hub_missed(path);
    }
    return status;
}

EXPORT int stat(const char *restrict path, struct stat *restrict found)
{
    return stat_shown(path, found);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict found)
{
    return stat_shown(path, found);
}

EXPORT int __xstat(int version, const char *path, struct stat *found)
{
    return stat(path, found);
}

EXPORT int __xstat64(int version, const char *path, struct stat64 *found)
{
    return stat64(path, found);
}

EXPORT int access(const char *path, int mode)
{
    return (int)syscall(SYS_faccessat, AT_FDCWD, shown(path), mode);
}
