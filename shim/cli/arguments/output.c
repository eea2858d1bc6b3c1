/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a command's output. */
#include "shim/cli/arguments/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/cli/arguments/complain.h"

static int put_file(const struct ms_buffer *out, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    int error = fd < 0 ? errno : ms_buffer_overwrite(out, fd);

    if (fd >= 0 && close(fd) != 0 && !error) {
        error = errno;
    }
    return error;
}

bool ms_cli_put(enum ms_cli_command_id command, const struct ms_buffer *out, const char *path)
{
    const bool terminal = strcmp(path, "-") == 0;
    int error = ENOMEM;

    (void)fflush(stdout);
    if (!out->failed) {
        error = terminal ? ms_buffer_write(out, STDOUT_FILENO) : put_file(out, path);
    }
    if (error) {
        ms_complain("memshim %s: %s cannot be written: %s", ms_cli_commands[command].name,
                    terminal ? "the standard output" : path, strerror(error));
    }
    return error == 0;
}
