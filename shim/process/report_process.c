/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the process that makes the report, and waits for it a little.
 *
 * The program must not find a child that it did not make, neither by wait(-1) nor by a SIGCHLD. A
 * child made by posix_spawn could be found, and if we reaped it ourselves, we would race with a
 * program that reaps whatever it finds. So the process is a grandchild, like a probe (probe.c). The
 * process in between is made by clone without a signal at its end, so only a wait that asks for
 * such children sees it (clone(2), "__WCLONE"). It ends as soon as the grandchild has become
 * `memshim`, which then belongs to init or to a process that adopts orphans. Until then both share
 * this process's memory, as vfork's children do, so that nothing of a large program is copied. */
#include "shim/process/report_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/containers/pages.h"
#include "shim/process/command.h"
#include "shim/tables/identity.h"
#include "shim/tables/report_handover.h"

#define STACK_BYTES    ((size_t)64 << 10)
#define ABOVE_STANDARD 10 /* a descriptor above those that are set up */

/* Static, not on the stack: a process ends only once. */
static struct ms_command command;
static bool command_found;

struct report_launch {
    char *const *argv;
    char *const *environment;
    const char *log;
    char *stacks; /* for two stacks */
    int answer;   /* the pipe's writing end; -1: none */
    int error;    /* an errno; 0: the command runs */
};

void ms_report_process_prepare(void)
{
    command_found = ms_command_find(&command);
}

/* --- The two processes --------------------------------------------------------------------------
 */

/* The program's files, sockets and pipes must close with the program: whoever reads its output, or
 * needs its port, waits only for the program. On kernels before 5.9 the command closes them when it
 * begins. */
static bool keep_own_descriptors(const struct report_launch *launch)
{
    const int answer =
        launch->answer >= 0 ? fcntl(launch->answer, F_DUPFD_CLOEXEC, ABOVE_STANDARD) : -1;
    const int nowhere = open("/dev/null", O_RDWR);
    const int log = open(launch->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (log < 0 && nowhere < 0) {
        return false; /* the command's loader would say on the program's stderr what it misses */
    }
    (void)dup2(log >= 0 ? log : nowhere, STDERR_FILENO);
    (void)dup2(nowhere, STDIN_FILENO);
    (void)dup2(nowhere, STDOUT_FILENO);
    if (answer >= 0) {
        (void)dup2(answer, MS_REPORT_ANSWER_FD);
    } else {
        (void)close(MS_REPORT_ANSWER_FD);
    }
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, MS_REPORT_ANSWER_FD + 1, ~0U, 0);
#endif
    return true;
}

static int report_process(void *argument)
{
    struct report_launch *launch = argument;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;
    (void)setsid(); /* signals from the terminal or a launcher to the program's group must not reach
                       it */
    for (int signal = 1; signal < NSIG; signal++) {
        (void)sigaction(signal, &standard, NULL);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (keep_own_descriptors(launch)) {
        (void)execve(launch->argv[0], launch->argv, launch->environment);
    }
    launch->error = errno;
    ms_command_leave(1);
}

static int between(void *argument)
{
    struct report_launch *launch = argument;
    if (clone(report_process, launch->stacks + 2 * STACK_BYTES, MS_COMMAND_CLONE | SIGCHLD,
              launch) < 0) {
        launch->error = errno;
    }
    ms_command_leave(0);
}

/* 0 if the command runs, otherwise an errno. */
static int start(struct report_launch *launch)
{
    sigset_t all, signals;
    launch->stacks = ms_pages_map(2 * STACK_BYTES);
    if (launch->stacks == NULL) {
        return ENOMEM;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &signals);
    const pid_t child = clone(between, launch->stacks + STACK_BYTES, MS_COMMAND_CLONE, launch);
    if (child < 0) {
        launch->error = errno;
    } else {
        while (waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR) {
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &signals, NULL);
    ms_pages_unmap(launch->stacks, 2 * STACK_BYTES);
    return launch->error;
}

/* --- The wait -----------------------------------------------------------------------------------
 */

/* True if the pipe becomes readable before end_ns. */
static bool readable_before(int pipe, uint64_t end_ns)
{
    struct pollfd asked = {.fd = pipe, .events = POLLIN};
    int ready;
    do {
        const uint64_t now_ns = ms_clock_ns();
        const uint64_t left_ms = now_ns < end_ns ? (end_ns - now_ns) / 1000000 + 1 : 0;
        ready = poll(&asked, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* The process's answer, if it comes before end_ns. */
static enum ms_reported answer_before(int pipe, uint64_t end_ns, char *why, size_t why_bytes)
{
    size_t used = 0;
    while (readable_before(pipe, end_ns)) {
        const ssize_t got = read(pipe, why + used, why_bytes - used);
        used += got > 0 ? (size_t)got : 0;
        if (got > 0 && why[used - 1] == '\0') {
            return why[0] == '\0' ? MS_REPORTED : MS_REPORT_FAILED;
        }
        if (got == 0 || used == why_bytes) {
            (void)snprintf(why, why_bytes, "the process that makes it ended early");
            return MS_REPORT_FAILED;
        }
    }
    return MS_REPORT_GOES_ON;
}

/* --- Under `memshim run` ------------------------------------------------------------------------
 */

/* 0: none. *host: where it runs; null if there is none. */
static int32_t find_supervisor(const char **host)
{
    const char *supervisor = ms_environment(environ, MS_SUPERVISOR);
    char *end = NULL;
    const long pid = supervisor != NULL ? strtol(supervisor, &end, 10) : 0;
    const bool known = pid > 0 && pid <= INT32_MAX && *end == ' ';
    *host = known ? end + 1 : NULL;
    return known ? (int32_t)pid : 0;
}

int32_t ms_report_process_supervisor(void)
{
    const char *host;
    return find_supervisor(&host);
}

/* False if `memshim run` is on another host, or has ended before this process. */
static bool supervised(void)
{
    const char *its_host;
    const pid_t pid = find_supervisor(&its_host);
    char host[65] = "";
    (void)gethostname(host, sizeof(host) - 1);
    return pid > 0 && strcmp(its_host, host) == 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* --- All of it ----------------------------------------------------------------------------------
 */

static enum ms_reported start_and_wait(const char *dir, uint64_t wait_ns, char *why,
                                       size_t why_bytes)
{
    static char log[PATH_MAX + sizeof(MS_REPORT_LOG)];
    static char version[] = MEMSHIM_VERSION;
    char *argv[] = {command.path, (char[]){"finish"}, version, (char *)dir, NULL};
    int answer[2] = {-1, -1};
    enum ms_reported done = MS_REPORT_GOES_ON;
    const uint64_t end_ns = ms_clock_ns() + wait_ns;
    (void)snprintf(log, sizeof(log), "%s/" MS_REPORT_LOG, dir);
    if (!ms_command_environment(&command, true)) {
        (void)snprintf(why, why_bytes, "out of memory");
        return MS_REPORT_FAILED;
    }
    /* Without a pipe the process is started all the same, and not waited for. */
    (void)pipe2(answer, O_CLOEXEC);
    struct report_launch launch = {
        .argv = argv, .environment = command.environment, .log = log, .answer = answer[1]};
    const int error = start(&launch);
    if (answer[1] >= 0) {
        (void)close(answer[1]);
    }
    if (error != 0) {
        char reason[64];
        (void)snprintf(why, why_bytes, "no process could be started: %s",
                       strerror_r(error, reason, sizeof(reason)));
        done = MS_REPORT_FAILED;
    } else if (answer[0] >= 0 && wait_ns > 0) {
        done = answer_before(answer[0], end_ns, why, why_bytes);
    }
    if (answer[0] >= 0) {
        (void)close(answer[0]);
    }
    ms_command_free(&command);
    return done;
}

enum ms_reported ms_report_process(const char *dir, uint64_t wait_ns, char *why, size_t why_bytes)
{
    const int saved = errno;
    enum ms_reported done;
    if (supervised()) {
        done = MS_REPORT_LATER;
    } else if (!command_found) {
        (void)snprintf(why, why_bytes, "the memshim command is not beside the library");
        done = MS_REPORT_FAILED;
    } else {
        done = start_and_wait(dir, wait_ns, why, why_bytes);
    }
    errno = saved;
    return done;
}
