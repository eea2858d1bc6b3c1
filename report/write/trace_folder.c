/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the folder of a trace, in the folder of its run. */
#include "report/write/trace_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/own_folder.h"

#define NAME_BYTES   64
#define RUN_BYTES    128
#define MOST_FOLDERS 1000
#define TICK_NS      UINT64_C(10000000) /* the longest of a kernel */

static bool is_plain(char letter)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || strchr("._+-", letter) != NULL;
}

void ms_place_name(const char *from, const char *otherwise, char *to, size_t to_bytes)
{
    size_t used = 0;

    for (; from && *from && used + 1 < to_bytes; from++) {
        const bool hidden = used == 0 && *from == '.';

        to[used] = '_';
        if (is_plain(*from) && !hidden) {
            to[used] = *from;
        }
        used++;
    }
    to[used] = '\0';
    if (used == 0) {
        snprintf(to, to_bytes, "%s", otherwise);
    }
}

static int make_folder(const char *path)
{
    struct stat status;

    if (mkdir(path, 0777) == 0) {
        return 0;
    }

    const int error = errno;
    const bool there = stat(path, &status) == 0;

    /* Whatever error mkdir gives for an existing folder: it can be walked through. */
    if (there && S_ISDIR(status.st_mode)) {
        return 0;
    }
    return there ? ENOTDIR : error;
}

/* path: changed meanwhile; unchanged at the end on success. */
static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';

        int error = make_folder(path);

        if (error) {
            return error;
        }
        *slash = '/';
    }
    return make_folder(path);
}

/* Writes the next part of a path after its `used` bytes. False: too long. */
__attribute__((format(printf, 3, 4))) static bool add(char *path, size_t used, const char *format,
                                                      ...)
{
    va_list arguments;

    va_start(arguments, format);

    int length = vsnprintf(path + used, PATH_MAX - used, format, arguments);

    va_end(arguments);
    return length >= 0 && (size_t)length < PATH_MAX - used;
}

/* Puts the working directory in front of a relative path. 0 or an errno. */
static int put_working_directory(char *path)
{
    const size_t bytes = strlen(path) + 1;
    char *kept = path + PATH_MAX - bytes;

    if (path[0] == '/') {
        return 0;
    }
    memmove(kept, path, bytes);
    if (!getcwd(path, (size_t)(kept - path))) {
        return errno == ERANGE ? ENAMETOOLONG : errno;
    }

    const size_t used = strlen(path);

    path[used] = '/';
    memmove(path + used + 1, kept, bytes);
    return 0;
}

/* Replaces `path` by the open folder's absolute path, without links: the application may change its
 * working directory later. Links stay where there is no /proc. It does not use realpath, which
 * takes much stack. Closes the folder. 0 or an errno. */
static int make_absolute(int folder, char *path)
{
    char name[32];

    if (folder < 0) {
        return errno;
    }
    snprintf(name, sizeof(name), "/proc/self/fd/%d", folder);

    ssize_t length = readlink(name, path, PATH_MAX - 1);
    const int error = length < 0 ? errno : length == PATH_MAX - 1 ? ENAMETOOLONG : 0;

    close(folder);
    if (error == ENOENT) {
        return put_working_directory(path);
    }
    path[error ? 0 : length] = '\0';
    return error;
}

/* How far this clock is ahead of the one that dated a folder that was made between two moments of
 * this clock. A local file system dates by the last tick of the kernel, some by every other
 * second, and some not at all. */
static int64_t clock_ahead(const char *dir, uint64_t before_ns, uint64_t after_ns)
{
    struct stat made;

    if (stat(dir, &made) != 0) {
        return 0;
    }

    const uint64_t dated_ns =
        (uint64_t)made.st_mtim.tv_sec * MS_NS_PER_S + (uint64_t)made.st_mtim.tv_nsec;
    const uint64_t slack_ns = made.st_mtim.tv_nsec == 0 ? 2 * MS_NS_PER_S : TICK_NS;

    if (dated_ns == 0 || (dated_ns + slack_ns >= before_ns && dated_ns <= after_ns + slack_ns)) {
        return 0;
    }
    return (int64_t)(before_ns + (after_ns - before_ns) / 2 - dated_ns);
}

/* dir: the new folder's name; with a number at its end if it is taken. */
static int make_new_folder(char *dir, mode_t mode, int64_t *ahead_ns)
{
    const size_t used = strlen(dir);

    for (int number = 1; number <= MOST_FOLDERS; number++) {
        if (number > 1 && !add(dir, used, "-%d", number)) {
            return ENAMETOOLONG;
        }

        const uint64_t before_ns = ms_clock_unix_ns();

        if (mkdir(dir, mode) == 0) {
            *ahead_ns = clock_ahead(dir, before_ns, ms_clock_unix_ns());
            return 0;
        }
        if (errno != EEXIST) {
            return errno;
        }
    }
    return EEXIST;
}

/* The run's folder. Its name is predictable, and others may write in the folder around it: do not
 * follow a link that another user has put there. */
static int make_run_folder(const char *dir, bool own)
{
    struct stat status;

    if (own) {
        const int folder = ms_own_folder_open(dir);
        const int error = folder < 0 ? errno : 0;

        if (folder >= 0) {
            close(folder);
        }
        return error;
    }
    if (lstat(dir, &status) == 0 && S_ISLNK(status.st_mode) && status.st_uid != geteuid() &&
        status.st_uid != 0) {
        return EPERM;
    }
    return make_folder(dir);
}

/* dir: the output folder, absolute; the rest of the path is appended. */
static int make_inside(const struct ms_trace_process *process, bool own, char *dir,
                       int64_t *ahead_ns)
{
    char run[RUN_BYTES], program[NAME_BYTES], host[NAME_BYTES], rank[16] = "";
    int error;

    ms_place_name(process->run_id, "run", run, sizeof(run));
    ms_place_name(process->program, "process", program, sizeof(program));
    ms_place_name(process->host, "host", host, sizeof(host));
    if (process->rank >= 0) {
        snprintf(rank, sizeof(rank), "-r%d", (int)process->rank);
    }
    if (!add(dir, strlen(dir), "/%s", run)) {
        return ENAMETOOLONG;
    }
    error = make_run_folder(dir, own);
    if (error) {
        return error;
    }
    if (!add(dir, strlen(dir), "/%s%s-%s-%d", program, rank, host, (int)process->pid)) {
        return ENAMETOOLONG;
    }
    return make_new_folder(dir, own ? S_IRWXU : 0777, ahead_ns);
}

/* Works in `dir` alone: the caller's stack may be a small one. */
int ms_place_make(const char *output, const struct ms_trace_process *process, char *dir,
                  int64_t *ahead_ns)
{
    int error = add(dir, 0, "%s", output[0] ? output : ".") ? make_folders(dir) : ENAMETOOLONG;

    if (!error) {
        error = make_absolute(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), dir);
    }
    return error ? error : make_inside(process, false, dir, ahead_ns);
}

int ms_place_make_own(const char *output, const struct ms_trace_process *process, char *dir,
                      int64_t *ahead_ns)
{
    const int error =
        add(dir, 0, "%s", output) ? make_absolute(ms_own_folder_open(dir), dir) : ENAMETOOLONG;

    return error ? error : make_inside(process, true, dir, ahead_ns);
}

/* Opens the output folder above a process's folder; run: the run's name in it. -1: there is
 * none. */
static int open_output(const char *dir, char run[RUN_BYTES])
{
    const char *end = strrchr(dir, '/'), *begin = end;

    while (begin && begin > dir && begin[-1] != '/') {
        begin--;
    }
    if (!begin || begin == end || end - begin >= RUN_BYTES) {
        return -1;
    }
    memcpy(run, begin, (size_t)(end - begin));
    run[end - begin] = '\0';

    int folder = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int output = openat(folder, "../..", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (folder >= 0) {
        close(folder);
    }
    return output;
}

void ms_place_link(const char *dir)
{
    char run[RUN_BYTES], temporary[32];
    int output = open_output(dir, run);

    if (output < 0) {
        return;
    }
    snprintf(temporary, sizeof(temporary), ".latest-%d", (int)getpid());
    unlinkat(output, temporary, 0);
    if (symlinkat(run, output, temporary) == 0 &&
        renameat(output, temporary, output, "latest") != 0) {
        unlinkat(output, temporary, 0);
    }
    close(output);
}

void ms_place_drop(const char *dir)
{
    char run[RUN_BYTES];
    int output = open_output(dir, run);

    if (rmdir(dir) == 0) {
        unlinkat(output, run, AT_REMOVEDIR);
    }
    if (output >= 0) {
        close(output);
    }
}
