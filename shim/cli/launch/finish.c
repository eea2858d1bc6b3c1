/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the runs that a command has made, and completes their reports. */
#include "shim/cli/launch/finish.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/own_folder.h"
#include "report/read/reader.h"
#include "report/trace/format.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/launch/interrupt.h"
#include "shim/cli/launch/report_files.h"
#include "shim/tables/identity.h"
#include "shim/tables/options.h"

struct trace_search {
    time_t start; /* traces that began before belong to another command */
    int32_t self; /* traces of another supervisor belong to another command, too */
    bool say;
};

/* Calls `each` with every folder below `folder`. Does not follow symbolic links, such as the one to
 * the latest run. Returns the sum of the results. */
static int for_each_folder(const char *folder, const struct trace_search *search,
                           int (*each)(const char *path, const struct trace_search *search))
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int sum = 0;
    if (listing == NULL) {
        return 0;
    }
    while ((entry = readdir(listing)) != NULL) {
        char path[PATH_MAX];
        struct stat info;
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && length < (int)sizeof path && lstat(path, &info) == 0 &&
            S_ISDIR(info.st_mode)) {
            sum += each(path, search);
        }
    }
    (void)closedir(listing);
    return sum;
}

/* A trace that cannot be read, because its process died early, is recognized by its time alone. */
static int is_own_trace(const char *process_folder, const struct trace_search *search)
{
    struct ms_file_header header;
    char path[PATH_MAX], why[128];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s/" MS_TRACE_FILE, process_folder);
    const bool fresh =
        length < (int)sizeof path && stat(path, &info) == 0 && info.st_mtime >= search->start;
    const bool own = fresh && (!ms_reader_header(path, &header, why, sizeof why) ||
                               header.supervisor_pid == search->self);
    return own ? 1 : 0;
}

/* Returns how many of its processes belong to this call of the command. */
static int finish_run(const char *run_folder, const struct trace_search *search)
{
    char line[PATH_MAX + 128];
    int traces = for_each_folder(run_folder, search, is_own_trace);
    if (traces == 0) {
        return 0;
    }
    (void)snprintf(line, sizeof line,
                   "memshim: interrupted while it made reports; memshim report %s completes them",
                   run_folder);
    ms_interrupt_begin(search->say ? line : NULL);
    bool complete = ms_report_complete(run_folder) == 0;
    ms_interrupt_end();
    if (search->say) {
        ms_complain("memshim: %d process%s traced, %s%s%s", traces, traces == 1 ? "" : "es",
                    complete ? "report: " : "not every report could be made in ", run_folder,
                    complete ? "/report.html, and report.txt beside it" : "");
    }
    return traces;
}

void ms_finish_runs(const char *output, time_t start, bool say)
{
    char fallback[PATH_MAX];
    ms_identity_fallback_dir(environ, getuid(), fallback, sizeof fallback);
    const struct trace_search search = {start, (int32_t)getpid(), say};
    int traces = for_each_folder(output, &search, finish_run) +
                 (ms_own_folder_is(fallback) ? for_each_folder(fallback, &search, finish_run) : 0);
    if (traces == 0 && say) {
        ms_complain("memshim: no process of the command used a CUDA device; "
                    "there is nothing to report");
    }
}
