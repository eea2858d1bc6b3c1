#include "report/place.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES   64
#define RUN_BYTES    128
#define MOST_FOLDERS 1000

static bool is_plain(char letter)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || strchr("._+-", letter) != NULL;
}

/* A path component out of anything: never empty, never hidden, never a way up. */
static void sanitise(const char *from, const char *otherwise, char *to, size_t to_bytes)
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

    /* Whatever mkdir says of a folder that is there: it can be walked through. */
    if (there && S_ISDIR(status.st_mode)) {
        return 0;
    }
    return there ? ENOTDIR : error;
}

static int make_folders(const char *path)
{
    char part[PATH_MAX];

    if ((size_t)snprintf(part, sizeof(part), "%s", path) >= sizeof(part)) {
        return ENAMETOOLONG;
    }
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';

        int error = make_folder(part);

        if (error) {
            return error;
        }
        *slash = '/';
    }
    return make_folder(part);
}

static int make_new_folder(const char *stem, char *dir)
{
    for (int number = 1; number <= MOST_FOLDERS; number++) {
        int length = number == 1 ? snprintf(dir, PATH_MAX, "%s", stem)
                                 : snprintf(dir, PATH_MAX, "%s-%d", stem, number);

        if (length >= PATH_MAX) {
            return ENAMETOOLONG;
        }
        if (mkdir(dir, 0777) == 0) {
            return 0;
        }
        if (errno != EEXIST) {
            return errno;
        }
    }
    return EEXIST;
}

int ms_place_make(const char *output, const struct ms_trace_process *process, char *dir)
{
    char base[PATH_MAX], run[RUN_BYTES], program[NAME_BYTES], host[NAME_BYTES];
    char stem[PATH_MAX], rank[16] = "";
    int error = make_folders(output[0] ? output : ".");

    if (error) {
        return error;
    }
    /* The application may change its working directory later. */
    if (!realpath(output[0] ? output : ".", base)) {
        return errno;
    }
    sanitise(process->run_id, "run", run, sizeof(run));
    sanitise(process->program, "process", program, sizeof(program));
    sanitise(process->host, "host", host, sizeof(host));
    if (process->rank >= 0) {
        snprintf(rank, sizeof(rank), "-r%d", (int)process->rank);
    }
    if (snprintf(stem, sizeof(stem), "%s/%s", base, run) >= (int)sizeof(stem)) {
        return ENAMETOOLONG;
    }
    error = make_folder(stem);
    if (error) {
        return error;
    }
    if (snprintf(stem, sizeof(stem), "%s/%s/%s%s-%s-%d", base, run, program, rank, host,
                 (int)process->pid) >= (int)sizeof(stem)) {
        return ENAMETOOLONG;
    }
    return make_new_folder(stem, dir);
}

/* Cuts the last component off; returns it. */
static char *cut(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path) {
        return NULL;
    }
    *slash = '\0';
    return slash + 1;
}

void ms_place_link(const char *dir)
{
    char path[PATH_MAX], link[PATH_MAX], temporary[PATH_MAX];

    snprintf(path, sizeof(path), "%s", dir);
    (void)cut(path);

    const char *run = cut(path);

    if (!run || snprintf(link, sizeof(link), "%s/latest", path) >= (int)sizeof(link) ||
        snprintf(temporary, sizeof(temporary), "%s/.latest-%d", path, (int)getpid()) >=
            (int)sizeof(temporary)) {
        return;
    }
    unlink(temporary);
    if (symlink(run, temporary) == 0 && rename(temporary, link) != 0) {
        unlink(temporary);
    }
}

void ms_place_drop(const char *dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s", dir);
    if (rmdir(path) == 0 && cut(path)) {
        rmdir(path);
    }
}
