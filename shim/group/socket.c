/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, makes and removes sockets in a folder that everybody may write to. */
#include "shim/group/socket.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX  "memshim-socket-"
#define YOUNG_S 60

socklen_t ms_socket_address(const char *folder, const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    const int length =
        snprintf(address->sun_path, sizeof address->sun_path, "%s/" PREFIX "%s", folder, name);
    return length > 0 && length < (int)sizeof address->sun_path ? (socklen_t)sizeof *address : 0;
}

int ms_socket_listen(const char *folder, const char *name, int backlog)
{
    struct sockaddr_un address;
    const socklen_t length = ms_socket_address(folder, name, &address);
    const int fd = length != 0 ? socket(AF_UNIX, MS_SOCKET_KIND, 0) : -1;
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, length) != 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    if (chmod(address.sun_path, S_IRUSR | S_IWUSR) != 0 || listen(fd, backlog) != 0) {
        (void)unlink(address.sun_path);
        (void)close(fd);
        return -1;
    }
    return fd;
}

void ms_socket_remove(const char *folder, const char *name)
{
    struct sockaddr_un address;
    if (ms_socket_address(folder, name, &address) != 0) {
        (void)unlink(address.sun_path);
    }
}

static bool nobody_listens(const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, MS_SOCKET_KIND, 0);
    const bool nobody = fd >= 0 &&
                        connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                        errno == ECONNREFUSED;
    if (fd >= 0) {
        (void)close(fd);
    }
    return nobody;
}

static bool is_left(const struct sockaddr_un *address)
{
    struct stat status;
    return lstat(address->sun_path, &status) == 0 && S_ISSOCK(status.st_mode) &&
           status.st_uid == geteuid() && time(NULL) - status.st_mtime > YOUNG_S &&
           nobody_listens(address);
}

uint32_t ms_socket_sweep(const char *folder)
{
    uint32_t gone = 0;
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        struct sockaddr_un address;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
            ms_socket_address(folder, entry->d_name + strlen(PREFIX), &address) != 0 &&
            is_left(&address) && unlink(address.sun_path) == 0) {
            gone++;
        }
    }
    if (listing != NULL) {
        (void)closedir(listing);
    }
    return gone;
}
