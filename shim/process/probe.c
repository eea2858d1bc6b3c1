/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the driver in a throw-away process, and remembers the answer. */
#include "shim/process/probe.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/containers/pages.h"
#include "shim/process/command.h"
#include "shim/process/log.h"
#include "shim/tables/remembered.h"

#define STACK_BYTES ((size_t)64 << 10)
/* A probe ends itself twice, after 10 s each, unless the kernel holds it. */
#define LONGEST_MS 21000
#define POLL_MS    2

/* --- the throw-away process ------------------------------------------------------------------- */

/* The probe must have no effect on this process: no SIGCHLD, and no child that the program's own
 * wait() could find. So it is a grandchild. Both processes are made as by vfork: they share this
 * process's memory, and this thread stops meanwhile. The child in between is invisible to wait()
 * (clone(2), "__WCLONE"), and lives as long as the probe.
 *
 * Only a wait that names __WALL finds it. No child can be hidden from that; and an orphan would
 * become this process's ordinary child where this is the first of a container, or a subreaper.
 * Such a wait may take the child's status, so the answer is left in shared memory. */
struct probe_launch {
    char *const *argv;
    char *const *environment;
    sigset_t signals;
    int code; /* of MS_PROBE_CODES; the child in between writes it */
    _Alignas(16) char stacks[2][STACK_BYTES];
};

static int probe_process(void *argument)
{
    const struct probe_launch *launch = argument;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int signal = 1; signal < NSIG; signal++) {
        (void)sigaction(signal, &standard, NULL); /* this process's handlers must not run in it */
    }
    (void)sigprocmask(SIG_SETMASK, &launch->signals, NULL);
    (void)close(STDIN_FILENO); /* so that there is room for a descriptor */
    int nowhere = open("/dev/null", O_RDWR);
    if (nowhere < 0) {
        /* The command could not open its libraries either, and its loader would say so on the
         * program's stderr. */
        ms_command_leave(MS_PROBE_NOT_RUN_CODE);
    }
    (void)dup2(nowhere, STDIN_FILENO);
    (void)dup2(nowhere, STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO);
    (void)execve(launch->argv[0], launch->argv, launch->environment);
    ms_command_leave(MS_PROBE_NOT_RUN_CODE);
}

static int waiting_process(void *argument)
{
    struct probe_launch *launch = argument;
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    int status = 0;
    (void)sigaction(SIGCHLD, &standard, NULL); /* ignored, it would leave no status to wait for */
    pid_t probe =
        clone(probe_process, launch->stacks[1] + STACK_BYTES, MS_COMMAND_CLONE | SIGCHLD, argument);
    for (int ms = 0; probe > 0 && ms < LONGEST_MS; ms += POLL_MS) {
        if (waitpid(probe, &status, WNOHANG) == probe) {
            launch->code = ms_probe_code_of(status);
            ms_command_leave(0);
        }
        (void)nanosleep(&pause, NULL);
    }
    if (probe > 0) {
        (void)kill(probe, SIGKILL);
        launch->code = MS_PROBE_HUNG_CODE;
    }
    ms_command_leave(0);
}

/* Returns a code of MS_PROBE_CODES. */
static int run_apart(char *const *argv, char *const *environment)
{
    sigset_t all;
    struct probe_launch *launch = mmap(NULL, sizeof *launch, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (launch == MAP_FAILED) {
        return MS_PROBE_NOT_RUN_CODE;
    }
    launch->argv = argv;
    launch->environment = environment;
    launch->code = MS_PROBE_NOT_RUN_CODE;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &launch->signals);
    pid_t waiter =
        clone(waiting_process, launch->stacks[0] + STACK_BYTES, MS_COMMAND_CLONE, launch);
    if (waiter > 0) {
        (void)waitpid(waiter, NULL, __WCLONE);
    }
    (void)pthread_sigmask(SIG_SETMASK, &launch->signals, NULL);
    const int code = launch->code;
    (void)munmap(launch, sizeof *launch);
    return code;
}

/* Too large for a small thread's stack. */
struct probe_texts {
    struct ms_command command;
    struct ms_remembered remembered;
};

static int run_probe(const char *name, const char *argument, struct probe_texts *texts)
{
    struct ms_command *command = &texts->command;
    if (!ms_command_find(command)) {
        return MS_PROBE_NO_COMMAND_CODE;
    }
    if (!ms_command_environment(command, false)) {
        return MS_PROBE_NOT_RUN_CODE;
    }
    char *argv[] = {command->path, (char *)name, (char *)argument, NULL};
    int status = run_apart(argv, command->environment);
    ms_command_free(command);
    return status;
}

/* One error may be chance: only a no that comes twice counts. */
static int run_twice(const char *name, const char *argument, struct probe_texts *texts)
{
    int code = run_probe(name, argument, texts);
    if (ms_probe_answer_of(code) != MS_PROBE_NO) {
        return code;
    }
    int again = run_probe(name, argument, texts);
    if (ms_probe_answer_of(again) == MS_PROBE_UNKNOWN) {
        return again;
    }
    return again == code ? code : MS_PROBE_DIFFERED_CODE;
}

/* --- remembered answers ----------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    return (int64_t)ms_clock_unix_ns();
}

/* Whether a stored answer counts. An unknown counts only if it was found while this process waited:
 * then another process asked the same question at the same time. */
static bool counts(const struct ms_remembered_answer *answer, int64_t asked_ns)
{
    const int64_t age_ns = now_ns() - answer->when_ns;
    switch (ms_probe_answer_of(answer->code)) {
    case MS_PROBE_YES:
        return true;
    case MS_PROBE_NO:
        return age_ns >= 0 && age_ns < MS_REMEMBERED_NO_LASTS_S * (int64_t)MS_NS_PER_S;
    default:
        return answer->when_ns >= asked_ns && age_ns >= 0;
    }
}

static bool recall(const struct ms_remembered *remembered, const char *key, int64_t asked_ns,
                   struct ms_probe_result *result)
{
    struct ms_remembered_answer answer;
    const char *trouble = NULL;
    if (!ms_remembered_read(remembered, key, &answer, &trouble)) {
        if (trouble) {
            MS_LOG_ONCE(MS_LOG_WARN,
                        "the result of an earlier test is not used, and is replaced: %s/%s is %s",
                        remembered->path, key, trouble);
        }
        return false;
    }
    if (!counts(&answer, asked_ns)) {
        return false;
    }
    result->code = answer.code;
    result->remembered_ns = answer.when_ns;
    return true;
}

static void say_trouble(const struct ms_remembered *remembered)
{
    if (remembered->trouble) {
        MS_LOG_ONCE(remembered->state == MS_REMEMBERED_UNSAFE ? MS_LOG_WARN : MS_LOG_INFO,
                    "the results of tests of the device are not saved: %s: %s", remembered->path,
                    remembered->trouble);
    }
}

/* Among processes that start together, one asks, and the others wait for its answer. */
static void probe(const char *name, const char *argument, const char *key,
                  struct probe_texts *texts, struct ms_probe_result *result)
{
    struct ms_remembered *remembered = &texts->remembered;
    const int64_t asked_ns = now_ns();
    ms_remembered_open(remembered, environ, true);
    say_trouble(remembered);
    bool known = false;
    if (remembered->state == MS_REMEMBERED_OPEN) {
        (void)ms_remembered_lock(remembered, key, 2 * LONGEST_MS);
        known = recall(remembered, key, asked_ns, result);
    }
    if (!known) {
        result->code = run_twice(name, argument, texts);
        const struct ms_remembered_answer answer = {.code = result->code, .when_ns = now_ns()};
        if (remembered->state == MS_REMEMBERED_OPEN &&
            !ms_remembered_write(remembered, key, &answer)) {
            MS_LOG_ONCE(MS_LOG_INFO, "the result of a test of the device cannot be written to %s",
                        remembered->path);
        }
    }
    ms_remembered_close(remembered);
}

struct ms_probe_result ms_probe(const char *name, const char *argument, const char *key)
{
    struct ms_probe_result result = {.code = MS_PROBE_NOT_RUN_CODE};
    struct probe_texts *texts = ms_pages_map(sizeof *texts);
    if (texts) {
        if (key) {
            probe(name, argument, key, texts, &result);
        } else {
            result.code = run_twice(name, argument, texts);
        }
        ms_pages_unmap(texts, sizeof *texts);
    }
    result.answer = ms_probe_answer_of(result.code);
    return result;
}
