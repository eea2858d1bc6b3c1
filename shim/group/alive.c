/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc/PID/stat (proc(5)). */
#include "shim/group/alive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct process_stat {
    char state;
    long threads;
    uint64_t start_ticks;
};

/* 0, or an errno. */
static int read_stat(uint32_t pid, struct process_stat *out)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    const ssize_t length = read(fd, text, sizeof text - 1);
    const int error = length < 0 ? errno : EIO;
    (void)close(fd);
    if (length <= 0) {
        return error;
    }
    text[length] = '\0';
    /* The name, in parentheses, may contain anything, so fields are counted behind its end. */
    const char *at = strrchr(text, ')');
    const int found = at == NULL ? 0
                                 : sscanf(at + 1,
                                          " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                          "%*s %*s %*s %ld %*s %" SCNu64,
                                          &out->state, &out->threads, &out->start_ticks);
    return found == 3 ? 0 : EIO;
}

uint64_t ms_start_ticks(uint32_t pid)
{
    struct process_stat process = {0};
    return read_stat(pid, &process) == 0 ? process.start_ticks : 0;
}

/* If the first thread has ended, the process is in state Z while other threads run on. Files, and
 * with them the device, are closed before the last thread becomes a zombie. */
bool ms_process_lives(uint32_t pid, uint64_t start_ticks)
{
    struct process_stat process = {0};
    const int error = read_stat(pid, &process);
    if (error != 0) {
        return error != ENOENT && error != ESRCH;
    }
    const bool over = (process.state == 'Z' || process.state == 'X') && process.threads <= 1;
    return process.start_ticks == start_ticks && !over;
}

uint64_t ms_pid_namespace(void)
{
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}
