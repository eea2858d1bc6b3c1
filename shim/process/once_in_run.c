/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which process of a run says what all of them would say. Each tries to give a socket a
 * name that is made from the run and the sentence, in the kernel's own table of such names: one
 * succeeds, and nothing has to be removed later, because the name ends with its last holder. */
#include "shim/process/once_in_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "allocator/base/checksum.h"
#include "shim/tables/identity.h"

/* Programs count on low numbers: that of a closed standard stream, or that of their next file. */
#define HIGH 200

static bool bind_name(int fd, const char *run, const char *sentence)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* sun_path[0] stays 0: no file */
    char *name = address.sun_path + 1;
    const int length =
        snprintf(name, sizeof address.sun_path - 1, "memshim-said-%u-%.48s-%016" PRIx64,
                 (unsigned)geteuid(), run, ms_checksum(sentence, strlen(sentence)));
    const socklen_t bytes =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return bind(fd, (const struct sockaddr *)&address, bytes) == 0 || errno != EADDRINUSE;
}

bool ms_once_in_run(const char *sentence)
{
    const int error = errno;
    const char *run = ms_environment(environ, "MEMSHIM_RUN_ID");
    const int fd = run != NULL ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    bool ours = true;
    if (fd >= 0) {
        const int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
        ours = high < 0 || bind_name(high, run, sentence);
        (void)close(fd);
        if (high >= 0 && !ours) {
            (void)close(high);
        }
    }
    errno = error;
    return ours;
}
