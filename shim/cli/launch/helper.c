/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program, and ends it where somebody ends this process. */
#include "shim/cli/launch/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/cli/arguments/complain.h"

#define ENDING 4

static const int ending[ENDING] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static volatile sig_atomic_t ended_by; /* 0: nobody has ended it */
static volatile pid_t running;

/* A program that does not heed the first one is killed by the second. */
static void end(int signal_number)
{
    (void)kill(running, ended_by == 0 ? SIGTERM : SIGKILL);
    ended_by = signal_number;
}

static void block(sigset_t *before)
{
    sigset_t all;

    (void)sigemptyset(&all);
    for (int i = 0; i < ENDING; i++) {
        (void)sigaddset(&all, ending[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &all, before);
}

static void take_signals(struct sigaction before[ENDING])
{
    const struct sigaction action = {.sa_handler = end};

    for (int i = 0; i < ENDING; i++) {
        if (sigaction(ending[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN) {
            (void)sigaction(ending[i], &action, NULL);
        }
    }
}

static void give_signals_back(const struct sigaction before[ENDING])
{
    for (int i = 0; i < ENDING; i++) {
        (void)sigaction(ending[i], &before[i], NULL);
    }
}

static void run(char *const *argv, int output, pid_t parent, const sigset_t *mask)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(127);
    }
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    (void)unsetenv("LD_PRELOAD");
    (void)dup2(output, STDOUT_FILENO);
    (void)execv(argv[0], argv);
    ms_complain("memshim: %s does not start: %s", argv[0], strerror(errno));
    _exit(127);
}

/* Until it has ended. Its number stays its own until it is reaped, so that no signal reaches
 * another. */
static void wait_for(pid_t child)
{
    siginfo_t end_of_it;

    while (waitid(P_PID, (id_t)child, &end_of_it, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
}

int ms_helper_run(char *const *argv, ms_helper_reader_t reader, void *ctx, const char *interrupted)
{
    const pid_t parent = getpid();
    struct sigaction before[ENDING] = {0};
    sigset_t mask;
    int ends[2], status = 0;
    bool good = false;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    block(&mask); /* until there is a program to end */
    running = fork();
    if (running == 0) {
        run(argv, ends[1], parent, &mask);
    }
    (void)close(ends[1]);
    if (running > 0) {
        take_signals(before);
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        reader(ctx, ends[0]);
        wait_for(running);
        give_signals_back(before);
        good = waitpid(running, &status, 0) == running && WIFEXITED(status);
    } else {
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        (void)close(ends[0]);
    }
    if (ended_by != 0) {
        if (interrupted) {
            ms_complain("%s", interrupted);
        }
        (void)raise(ended_by);
    }
    return good ? WEXITSTATUS(status) : -1;
}

static void read_all(void *ctx, int from)
{
    struct ms_buffer *out = ctx;
    char piece[4096];
    ssize_t got;

    while ((got = read(from, piece, sizeof(piece))) > 0 || (got < 0 && errno == EINTR)) {
        ms_buffer_append(out, piece, got > 0 ? (size_t)got : 0);
    }
    (void)close(from);
}

int ms_helper_read(char *const *argv, struct ms_buffer *out, const char *interrupted)
{
    const int status = ms_helper_run(argv, read_all, out, interrupted);

    ms_buffer_append(out, "", 1);
    return out->failed ? -1 : status;
}
