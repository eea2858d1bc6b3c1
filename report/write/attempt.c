/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the attempt of a run by the folders of earlier attempts. */
#include "report/write/attempt.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/write/trace_folder.h"

#define NAME_BYTES 128
/* Attempts in a row whose processes may have used no device, and so left no folder */
#define GAP 3

/* Uses the output folder's descriptor: whole paths would take much of a small stack. */
struct attempt_search {
    int output; /* -1: none yet */
    char run[NAME_BYTES], rank[NAME_BYTES], self[2 * NAME_BYTES];
};

static void name_folder(const struct attempt_search *search, int32_t attempt,
                        char name[NAME_BYTES + 16])
{
    (void)snprintf(name, NAME_BYTES + 16, attempt > 0 ? "%s.%d" : "%s", search->run, attempt);
}

static bool is_there(const struct attempt_search *search, int32_t attempt)
{
    char name[NAME_BYTES + 16];
    struct stat status;
    name_folder(search, attempt, name);
    return fstatat(search->output, name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

/* Whether another process had this rank in that attempt. This process itself may have had it,
 * before an exec. */
static bool has_rank(const struct attempt_search *search, int32_t attempt)
{
    char name[NAME_BYTES + 16];
    name_folder(search, attempt, name);
    const int folder = openat(search->output, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    bool found = false, self = false;
    const struct dirent *entry = NULL;
    while (list != NULL && !self && (entry = readdir(list)) != NULL) {
        const size_t length = strlen(search->self);
        found = found || strncmp(entry->d_name, search->rank, strlen(search->rank)) == 0;
        self = strncmp(entry->d_name, search->self, length) == 0 &&
               (entry->d_name[length] == '\0' || entry->d_name[length] == '-');
    }
    if (list != NULL) {
        (void)closedir(list);
    } else if (folder >= 0) {
        (void)close(folder);
    }
    return found && !self;
}

int32_t ms_attempt_find(const char *output, const char *run, const struct ms_trace_process *process,
                        int32_t least, bool leads)
{
    struct attempt_search search = {.output = open(output, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    char program[NAME_BYTES / 2], host[NAME_BYTES / 2];
    int32_t newest = least;
    ms_place_name(run, "run", search.run, sizeof search.run);
    ms_place_name(process->program, "process", program, sizeof program);
    ms_place_name(process->host, "host", host, sizeof host);
    (void)snprintf(search.rank, sizeof search.rank, "%s-r%d-", program, process->rank);
    (void)snprintf(search.self, sizeof search.self, "%s%s-%d", search.rank, host, process->pid);
    if (search.output < 0) {
        return least;
    }
    for (int32_t next = least + 1; next <= newest + GAP; next++) {
        newest = is_there(&search, next) ? next : newest;
    }
    const bool next = leads && process->rank >= 0 && has_rank(&search, newest);
    (void)close(search.output);
    return newest + next;
}
