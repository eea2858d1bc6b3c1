/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the identity of this process. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "shim/tables/identity.h"
#include "shim/tables/options.h"

static size_t read_file(const char *path, char *out, size_t out_bytes)
{
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? 1 : 0;
    while (got > 0 && used < out_bytes - 1) {
        got = read(fd, out + used, out_bytes - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    out[used] = '\0';
    return used;
}

void ms_identity_read(struct ms_identity *out)
{
    *out = (struct ms_identity){0};
    ms_identity_run_id(environ, ms_options()->run_id, out->run_id, sizeof(out->run_id));
    ms_identity_ranks(environ, &out->ranks);
    if (gethostname(out->host, sizeof(out->host) - 1) != 0) {
        (void)snprintf(out->host, sizeof(out->host), "host");
    }
    size_t bytes = read_file("/proc/self/cmdline", out->command, sizeof(out->command));
    ms_identity_program(out->command, bytes, out->program, sizeof(out->program));
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (out->command[i] == '\0') {
            out->command[i] = ' ';
        } else if (iscntrl((unsigned char)out->command[i])) {
            out->command[i] = '?';
        }
    }
}
