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

#include "allocator/base/buffer.h"
#include "allocator/base/clock.h"
#include "shim/cli/launch/descendants.h"

/* A launcher that ends a job often signals the process and then its whole group, so that the same
 * signal reaches us twice at once. Torchrun takes a second SIGTERM for impatience and leaves its
 * workers behind. So a repetition within this time is not passed on. */
#define REPEAT_NS 200000000u

#define REST_MS    10  /* between checks for processes that were left */
#define REST_TRIES 500 /* a process in an uninterruptible call ends later */

/* Signals that mean an error of our own, or that cannot be caught. */
static const int never_passed[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,
                                   SIGTRAP, SIGSYS,  SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU};

struct command {
    pid_t child;
    bool own_group;
    const struct ms_supervise_watch *watch; /* may be null */
    /* struct ms_descendant: processes of ours that are not the command's, such as a shell's process
     * substitution that reads what we print. */
    struct ms_buffer others;
};

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

static void pass_signal(const struct command *command, const siginfo_t *info, struct passed *last)
{
    const struct ms_supervise_watch *watch = command->watch;

    if (ends_processes(info->si_signo)) {
        if (is_repetition(last, info->si_signo)) {
            return;
        }
        if (watch != NULL && watch->asked != NULL) {
            watch->asked(watch->ctx);
        }
    }
    /* If the command is in our group, it gets the terminal's signals directly. */
    if (info->si_code == SI_KERNEL && !command->own_group) {
        return;
    }
    if (command->own_group && info->si_signo == SIGCONT) {
        (void)kill(-command->child, SIGCONT);
        return;
    }
    (void)kill(command->child, info->si_signo);
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

static bool is_other(const struct command *command, pid_t pid)
{
    for (size_t i = 0; i < ms_descendants_count(&command->others); i++) {
        if (ms_descendants_at(&command->others, i)->pid == pid) {
            return true;
        }
    }
    return false;
}

/* Sends it to all processes of the command, or to those in that group alone if it is not 0. Returns
 * how many there were. */
static size_t signal_all(const struct command *command, pid_t group, int signal)
{
    struct ms_buffer ours = {0};
    size_t count = 0;

    ms_descendants_find(getpid(), &ours);
    for (size_t i = 0; i < ms_descendants_count(&ours); i++) {
        const struct ms_descendant *process = ms_descendants_at(&ours, i);

        if ((group == 0 || process->group == group) && !is_other(command, process->pid)) {
            (void)kill(process->pid, signal);
            count++;
        }
    }
    ms_buffer_free(&ours);
    return count;
}

/* Takes leave of processes that lost their parent and became ours. */
static void reap_adopted(pid_t child)
{
    siginfo_t ended = {0};

    while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid > 0 &&
           ended.si_pid != child) {
        (void)waitpid(ended.si_pid, NULL, 0);
        ended.si_pid = 0;
    }
}

/* Kills what the command has left. Those that lose their parent become ours. */
static void end_rest(const struct command *command)
{
    const struct timespec pause = {0, REST_MS * 1000000L};

    for (int tries = 0; tries < REST_TRIES && signal_all(command, 0, SIGKILL) > 0; tries++) {
        reap_adopted(0);
        (void)nanosleep(&pause, NULL);
    }
}

static int wait_for(const struct command *command, const sigset_t *signals)
{
    const struct ms_supervise_watch *watch = command->watch;
    struct passed last = {0};
    int status = 0;
    while (!child_ended(command->child, &status)) {
        siginfo_t info;
        int signal = next_signal(signals, watch, &info);
        if (signal > 0 && signal != SIGCHLD) {
            pass_signal(command, &info, &last);
        } else if (signal == 0 && (signal = watch->look(watch->ctx)) != 0) {
            (void)signal_all(command, command->own_group ? command->child : getpgrp(), signal);
        }
        if (watch != NULL) {
            reap_adopted(command->child);
        }
    }
    if (watch != NULL) {
        end_rest(command);
    }
    return status;
}

/* The signals that were blocked when this process started its first command. */
static sigset_t first_mask(void)
{
    static sigset_t mask;
    static bool is_known;

    if (!is_known) {
        (void)sigprocmask(SIG_SETMASK, NULL, &mask);
        is_known = true;
    }
    return mask;
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
    struct command command = {.own_group = !is_foreground(), .watch = watch};
    const sigset_t commands_mask = first_mask();
    sigset_t mask;
    (void)sigprocmask(SIG_BLOCK, &signals, &mask);
    if (watch != NULL) {
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
        ms_descendants_find(getpid(), &command.others);
    }
    pid_t parent = getpid();
    command.child = fork();
    if (command.child == 0) {
        become_command(argv, environment, &commands_mask, parent, command.own_group, result_pipe[1],
                       watch);
    }
    *error = errno;
    (void)close(result_pipe[1]);
    if (command.child > 0) {
        *error = exec_result(result_pipe[0]);
    }
    (void)close(result_pipe[0]);

    int status = -1;
    if (command.child > 0 && *error == 0) {
        status = wait_for(&command, &signals);
    } else {
        if (command.child > 0) {
            (void)waitpid(command.child, NULL, 0);
        }
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    }
    ms_buffer_free(&command.others);
    return status;
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
