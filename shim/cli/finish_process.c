/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the report of a process that has just ended, outside that process;
 * shim/process/report_process.c starts it. Nobody waits long for it, and it must not disturb
 * anything. So it is nice, the kernel ends it first when memory runs out, and its memory and time
 * are limited. If it ends early, the next `memshim report` does its work. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report/read/reader.h"
#include "report/read/traces.h"
#include "report/render/forms.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/commands.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/launch/clean.h"
#include "shim/cli/launch/report_files.h"
#include "shim/tables/options.h"
#include "shim/tables/report_handover.h"

#define NICER 10
/* Limit on private memory: the trace's pages do not count. A sanitizer reserves addresses without
 * limit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define MOST_BYTES RLIM_INFINITY
#else
#    define MOST_BYTES (UINT64_C(4) << 30)
#endif
#define MOST_SECONDS 3600 /* of CPU time */
#define WHY_BYTES    (PATH_MAX + 512)
#define POLL_NS      20000000L
#define POLLS_MOST   30000 /* ten minutes: after that, another reader hangs */

/* ---- limits ---- */

/* On kernels before 5.9 the library could not close them. */
static void close_others(void)
{
    DIR *listing = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (listing && (entry = readdir(listing)) != NULL) {
        const long fd = strtol(entry->d_name, NULL, 10);

        if (fd > MS_REPORT_ANSWER_FD && fd != dirfd(listing)) {
            (void)close((int)fd);
        }
    }
    if (listing) {
        (void)closedir(listing);
    }
}

static void limit(int what, uint64_t most)
{
    struct rlimit now;

    if (getrlimit(what, &now) == 0 && now.rlim_cur > most) {
        now.rlim_cur = most;
        (void)setrlimit(what, &now);
    }
}

static void be_modest(void)
{
    const int first_to_go = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (first_to_go >= 0) {
        (void)!write(first_to_go, "1000", 4);
        (void)close(first_to_go);
    }
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICER);
    limit(RLIMIT_DATA, MOST_BYTES);
    limit(RLIMIT_CPU, MOST_SECONDS);
    limit(RLIMIT_CORE, 0);
    (void)signal(SIGPIPE, SIG_IGN); /* for a program that did not wait for the answer */
    (void)!chdir("/");              /* so that the folder can be unmounted */
}

/* ---- one at a time ---- */

/* Opens the lock of this host in the run's folder; -1 on failure. Several hosts may share the
 * folder. */
static int open_lock(const char *run_dir, char *path)
{
    char host[65] = "host";

    (void)gethostname(host, sizeof(host) - 1);
    for (char *at = host; (at = strchr(at, '/')) != NULL;) {
        *at = '_';
    }
    if (snprintf(path, PATH_MAX, "%s/" MS_REPORT_LOCK_PREFIX "%s" MS_REPORT_LOCK_SUFFIX, run_dir,
                 host) >= PATH_MAX) {
        return -1;
    }
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
}

/* Whether the locked file is still the one that others find: the last holder removes it. */
static bool is_there(int lock, const char *path)
{
    struct stat held, found;

    return fstat(lock, &held) == 0 && stat(path, &found) == 0 && held.st_ino == found.st_ino &&
           held.st_dev == found.st_dev;
}

enum turn { OURS, OURS_UNLOCKED, NOT_NEEDED, NEVER };

/* Waits until it is this process's turn to read, or another process has made its report. */
static enum turn wait_for_turn(const char *run_dir, const char *dir, char *path, int *lock)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};

    for (int i = 0; i < POLLS_MOST; i++) {
        *lock = open_lock(run_dir, path);
        if (*lock < 0) {
            return OURS_UNLOCKED;
        }
        if (flock(*lock, LOCK_EX | LOCK_NB) == 0) {
            if (is_there(*lock, path)) {
                return OURS;
            }
        } else if (errno != EWOULDBLOCK) {
            (void)close(*lock);
            return OURS_UNLOCKED; /* the file system has no locks */
        }
        (void)close(*lock);
        if (ms_report_stands(dir)) {
            return NOT_NEEDED;
        }
        (void)nanosleep(&pause, NULL);
    }
    return NEVER;
}

/* ---- other processes' reports ---- */

static bool is_over(const char *dir)
{
    char path[PATH_MAX], why[WHY_BYTES];
    struct ms_reader *reader = calloc(1, sizeof(*reader));
    bool over = false;

    if (reader && snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, dir) < (int)sizeof(path) &&
        ms_reader_open(reader, path, why, sizeof(why))) {
        over = !reader->running;
        ms_reader_close(reader);
    }
    free(reader);
    return over;
}

static bool has_text(const char *dir)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s", dir, ms_form_rows[MS_FORM_TEXT].file) <
               (int)sizeof(path) &&
           access(path, F_OK) == 0;
}

/* Makes the reports of processes that left their traces open, which nobody else makes, and those of
 * processes that wait for their turn. Traces that cannot be read are left to `memshim report`,
 * which says why. */
static void do_left_over(const char *run_dir)
{
    struct ms_buffer traces = {0};
    char why[WHY_BYTES];

    if (ms_traces_find(run_dir, &traces, why, sizeof(why))) {
        for (size_t i = 0; i < ms_traces_count(&traces); i++) {
            const char *dir = ms_traces_at(&traces, i);

            if (!has_text(dir) && is_over(dir)) {
                (void)ms_report_of_process(dir, why, sizeof(why));
            }
        }
    }
    ms_buffer_free(&traces);
}

/* Cleans the output folder if the program's environment says how much to keep. What could not be
 * removed is noted in this process's log. */
static void keep_room(const char *run_dir)
{
    char output[PATH_MAX], why[WHY_BYTES];
    const char *wanted = getenv("MEMSHIM_KEEP"), *slash = strrchr(run_dir, '/');
    struct ms_keep keep;

    if (!wanted || !ms_parse_keep(wanted, &keep) || !slash || slash == run_dir) {
        return;
    }
    (void)snprintf(output, sizeof(output), "%.*s", (int)(slash - run_dir), run_dir);
    if (!ms_clean(output, &keep, false, NULL, NULL, why, sizeof(why))) {
        ms_complain("memshim finish: MEMSHIM_KEEP: %s", why);
    }
}

/* ---- all of it ---- */

/* The log exists while this process works. It stays if it has an unread message, or if this process
 * does not reach its end. */
static void end_log(const char *dir, bool good)
{
    char path[PATH_MAX];

    if (good && snprintf(path, sizeof(path), "%s/" MS_REPORT_LOG, dir) < (int)sizeof(path)) {
        (void)unlink(path);
    }
}

static void answer(const char *why)
{
    struct stat pipe;

    if (fstat(MS_REPORT_ANSWER_FD, &pipe) == 0 && S_ISFIFO(pipe.st_mode)) {
        (void)!write(MS_REPORT_ANSWER_FD, why, strlen(why) + 1);
        (void)close(MS_REPORT_ANSWER_FD);
    }
}

/* True if the report exists now. */
static bool make_report(const char *dir, char *why, size_t why_bytes)
{
    why[0] = '\0';
    return ms_report_stands(dir) || ms_report_of_process(dir, why, why_bytes) == 0;
}

static int finish(const char *run_dir, const char *dir)
{
    char lock_path[PATH_MAX], why[WHY_BYTES] = "";
    int lock = -1;
    const enum turn turn = wait_for_turn(run_dir, dir, lock_path, &lock);
    bool made = turn == NOT_NEEDED;

    if (turn == NEVER) {
        (void)snprintf(why, sizeof(why), "another process makes reports of %s, and does not end",
                       run_dir);
    } else if (turn != NOT_NEEDED) {
        made = make_report(dir, why, sizeof(why));
    }
    if (!made) {
        ms_complain("memshim finish: %s", why);
    }
    end_log(dir, made);
    answer(why);
    if (turn == OURS) {
        do_left_over(run_dir);
        keep_room(run_dir);
        (void)unlink(lock_path);
    }
    return made ? 0 : 1;
}

int ms_cli_finish(int argc, char **argv)
{
    char run_dir[PATH_MAX], why[WHY_BYTES];
    const char *slash = argc == 3 ? strrchr(argv[2], '/') : NULL;

    if (!slash || slash == argv[2] || argv[2][0] != '/') {
        ms_complain("memshim finish VERSION FOLDER: what the library starts when a program ends; "
                    "memshim report makes reports");
        return MS_CLI_WRONG_CALL;
    }
    close_others();
    be_modest();
    /* After an upgrade under a running program, the command may be newer than the library; it can
     * read what the library recorded. */
    if (strverscmp(argv[1], MEMSHIM_VERSION) > 0) {
        (void)snprintf(why, sizeof(why),
                       "the memshim command beside the library is version %s, the library %s",
                       MEMSHIM_VERSION, argv[1]);
        ms_complain("memshim finish: %s", why);
        answer(why);
        return 1;
    }
    (void)snprintf(run_dir, sizeof(run_dir), "%.*s", (int)(slash - argv[2]), argv[2]);
    return finish(run_dir, argv[2]);
}
