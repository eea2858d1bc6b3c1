/* SPDX-License-Identifier: Apache-2.0 */
/* launch DIR CMD...: runs CMD as if it had been started in this process's place (it passes signals
 * on, and ends with CMD's exit status or deadly signal), and then removes DIR.
 *
 * A shell cannot do this: what it starts in the background ignores SIGINT, and while it runs
 * something in the foreground it does not pass signals on. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_NOT_FOUND = 127, EXIT_NOT_RUNNABLE = 126 };

static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                SIGUSR1, SIGUSR2, SIGALRM, SIGCONT};

/* DIR has only plain files: the simulated device's shared file and those of NCCL's double. */
static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        return;
    }
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    closedir(folder);
    rmdir(path);
}

static void run_child(char **command, const sigset_t *mask, pid_t parent)
{
    /* If the launcher is killed, its job must not go on with nobody waiting for it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(EXIT_FAILURE);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(command[0], command);
    int error = errno;
    fprintf(stderr, "simgpu.sh: cannot run %s: %s\n", command[0], strerror(error));
    _exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE);
}

/* Waits for the child's end; returns its wait status. */
static int attend(pid_t child, const sigset_t *watched)
{
    for (;;) {
        int status = 0;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            return status;
        }
        siginfo_t info;
        int number = sigwaitinfo(watched, &info);
        /* The terminal's signals have reached the child already. */
        if (number > 0 && number != SIGCHLD && info.si_code != SI_KERNEL) {
            kill(child, number);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: launch DIR CMD...\n", stderr);
        return EXIT_USAGE;
    }
    sigset_t watched;
    sigset_t before;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
        sigaddset(&watched, passed_on[i]);
    }
    sigprocmask(SIG_BLOCK, &watched, &before);
    signal(SIGCHLD, SIG_DFL);
    pid_t self = getpid();
    pid_t child = fork();
    if (child < 0) {
        perror("simgpu.sh: fork");
        remove_folder(argv[1]);
        return EXIT_FAILURE;
    }
    if (child == 0) {
        run_child(argv + 2, &before, self);
    }
    int status = attend(child, &watched);
    remove_folder(argv[1]);
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
    }
    /* Die of the same signal, without a second core file. */
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    sigset_t deadly;
    sigemptyset(&deadly);
    sigaddset(&deadly, WTERMSIG(status));
    signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &deadly, NULL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}
