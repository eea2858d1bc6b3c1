/* SPDX-License-Identifier: Apache-2.0 */
/* Tells memshim's descriptors from those that the program opened under the same number. */
#include "shim/sharing/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIGH 700

struct ms_descriptor ms_descriptor_of(int fd)
{
    struct ms_descriptor descriptor = {.fd = fd};
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0) {
        descriptor.device = status.st_dev;
        descriptor.inode = status.st_ino;
    }
    return descriptor;
}

struct ms_descriptor ms_descriptor_keep(int fd)
{
    const int high = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, HIGH) : -1;
    if (high >= 0) {
        (void)close(fd);
    }
    return ms_descriptor_of(high >= 0 ? high : fd);
}

bool ms_descriptor_is_ours(const struct ms_descriptor *descriptor)
{
    struct stat status;
    return descriptor->fd >= 0 && fstat(descriptor->fd, &status) == 0 &&
           status.st_dev == descriptor->device && status.st_ino == descriptor->inode;
}

void ms_descriptor_close(const struct ms_descriptor *descriptor)
{
    if (ms_descriptor_is_ours(descriptor)) {
        (void)close(descriptor->fd);
    }
}
