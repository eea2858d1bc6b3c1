/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command as a child that behaves as if it ran in this process's place. */
#include "shim/cli/launch/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/clock.h"

/* A launcher that ends a job often signals the process and then its whole group, so that the same
 * signal reaches us twice at once. Torchrun takes a second SIGTERM for impatience and leaves its
 * workers behind. So a repetition within this time is not passed on. */
#define REPEAT_NS 200000000u

/* Signals that mean an error of our own, or that cannot be caught. */
static const int never_passed[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,
                                   SIGTRAP, SIGSYS,  SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU};

static bool is_foreground(void)
{
    int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (terminal < 0) {
        return false;
    }
    bool foreground = tcgetpgrp(terminal) == getpgrp();
    (void)close(terminal);
    return foreground;
}

static void become_command(char *const *argv, char *const *environment, const sigset_t *mask,
                           pid_t parent, bool own_group, int report_fd,
                           const struct ms_supervise_watch *watch)
{
    int error = 0;
    if (own_group) {
        (void)setpgid(0, 0);
    }
    if (watch != NULL && watch->enter != NULL) {
        error = watch->enter(watch->ctx);
    }
    /* Last, because a process that changes its credentials loses this setting. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(127);
    }
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    if (error == 0) {
        (void)execvpe(argv[0], argv, environment);
        error = errno;
    }
    while (write(report_fd, &error, sizeof error) < 0 && errno == EINTR) {
    }
    _exit(127);
}

/* 0 once the command runs, otherwise the errno with which exec failed. */
static int exec_result(int fd)
{
    int error = 0;
    ssize_t got;
    do {
        got = read(fd, &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof error ? error : 0;
}

struct passed {
    int signal;
    uint64_t at_ns;
};

static bool is_repetition(struct passed *last, int signal)
{
    const uint64_t now_ns = ms_clock_ns();
    bool repetition = last->signal == signal && now_ns - last->at_ns < REPEAT_NS;
    last->signal = signal;
    last->at_ns = now_ns;
    return repetition;
}

static bool ends_processes(int signal)
{
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

static void pass_signal(pid_t child, const siginfo_t *info, bool own_group, struct passed *last)
{
    /* If the command is in our group, it gets the terminal's signals directly. */
    if (info->si_code == SI_KERNEL && !own_group) {
        return;
    }
    if (ends_processes(info->si_signo) && is_repetition(last, info->si_signo)) {
        return;
    }
    if (own_group && info->si_signo == SIGCONT) {
        (void)kill(-child, SIGCONT);
        return;
    }
    (void)kill(child, info->si_signo);
}

/* True when the child has ended, with its status. If the child stops, this process stops, too, so
 * that a shell sees the job as stopped. Once a shell continues us, the child continues. */
static bool child_ended(pid_t child, int *status)
{
    for (;;) {
        pid_t got = waitpid(child, status, WNOHANG | WUNTRACED);
        if (got != child) {
            return got < 0 && errno != EINTR;
        }
        if (!WIFSTOPPED(*status)) {
            return true;
        }
        (void)raise(SIGSTOP);
    }
}

/* 0: it is time for a check. */
static int next_signal(const sigset_t *signals, const struct ms_supervise_watch *watch,
                       siginfo_t *info)
{
    if (watch == NULL) {
        return sigwaitinfo(signals, info);
    }
    const struct timespec wait = {0, watch->every_ms * 1000000L};
    int signal = sigtimedwait(signals, info, &wait);
    return signal < 0 && errno == EAGAIN ? 0 : signal;
}

static int wait_for(pid_t child, const sigset_t *signals, bool own_group,
                    const struct ms_supervise_watch *watch)
{
    const pid_t group = own_group ? -child : child;
    struct passed last = {0};
    int status = 0;
    while (!child_ended(child, &status)) {
        siginfo_t info;
        int signal = next_signal(signals, watch, &info);
        if (signal > 0 && signal != SIGCHLD) {
            pass_signal(child, &info, own_group, &last);
        } else if (signal == 0 && (signal = watch->look(watch->ctx)) != 0) {
            (void)kill(group, signal);
        }
    }
    if (watch != NULL && own_group) {
        (void)kill(group, SIGKILL);
    }
    return status;
}

int ms_supervise(char *const *argv, char *const *environment, int *error)
{
    return ms_supervise_watched(argv, environment, NULL, error);
}

int ms_supervise_watched(char *const *argv, char *const *environment,
                         const struct ms_supervise_watch *watch, int *error)
{
    sigset_t signals;
    (void)sigfillset(&signals);
    for (size_t i = 0; i < sizeof never_passed / sizeof *never_passed; i++) {
        (void)sigdelset(&signals, never_passed[i]);
    }
    (void)sigaddset(&signals, SIGCHLD);

    int result_pipe[2];
    if (pipe2(result_pipe, O_CLOEXEC) != 0) {
        *error = errno;
        return -1;
    }
    bool own_group = !is_foreground();
    sigset_t mask;
    (void)sigprocmask(SIG_BLOCK, &signals, &mask);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        become_command(argv, environment, &mask, parent, own_group, result_pipe[1], watch);
    }
    *error = errno;
    (void)close(result_pipe[1]);
    if (child > 0) {
        *error = exec_result(result_pipe[0]);
    }
    (void)close(result_pipe[0]);
    if (child < 0 || *error != 0) {
        if (child > 0) {
            (void)waitpid(child, NULL, 0);
        }
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        return -1;
    }
    return wait_for(child, &signals, own_group, watch);
}

int ms_end_alike(int wait_status)
{
    if (!WIFSIGNALED(wait_status)) {
        return WEXITSTATUS(wait_status);
    }
    int signal_number = WTERMSIG(wait_status);
    struct rlimit no_core = {0, 0};
    sigset_t one;
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(signal_number, SIG_DFL);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, signal_number);
    (void)raise(signal_number);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    return 128 + signal_number;
}
