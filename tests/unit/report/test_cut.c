/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever becomes of a trace's file, the program goes on: it is cut, its disk breaks a promise,
 * its file system has no shared mappings. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/read/reader.h"
#include "report/trace/format.h"
#include "synthetic.h"

enum { PACKS = 40 * MS_TAIL_EVENTS };

static bool without_mappings, lying;

/* Instead of the system's: a file system without shared mappings that can be written. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (without_mappings && fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE)) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* Likewise: one that promises space and does not have it. */
int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return lying ? ftruncate(fd, offset + bytes)
                 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

static const char *path_of(const ms_trace_t *trace)
{
    static char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, ms_trace_dir(trace));
    return path;
}

static ms_trace_t *begin_in(const char *folder, struct synthetic *run)
{
    ms_trace_t *trace = synthetic_open(folder);

    synthetic_begin(run, trace, 1);
    synthetic_churn(run, PACKS);
    return trace;
}

static ms_trace_t *begin(struct synthetic *run)
{
    return begin_in(synthetic_folder(), run);
}

/* All that can store to a window does, and many windows are filled. */
static void go_on(struct synthetic *run)
{
    const struct ms_oom_state state = synthetic_oom(40 * GIB, MS_OOM_DRIVER);
    const struct ms_code_definition code = {.id = 1};

    synthetic_churn(run, 60 * (uint64_t)PACKS);
    ms_trace_oom(run->trace, 0, &state);
    ms_trace_note(run->trace, "a note");
    ms_trace_version(run->trace, "cuda", "13.0");
    (void)ms_trace_define(run->trace, MS_DEFINE_CODE, &code, sizeof(code));
    ms_trace_device(run->trace, 1, "Another", NULL, 8 * GIB, 7 * GIB);
    synthetic_churn(run, PACKS);
}

static void cut_at(off_t bytes)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);

    cr_assert_eq(truncate(path_of(trace), bytes), 0);
    go_on(&run);
    cr_assert_eq(ms_trace_close(trace, true, 0) == 0, false, "the file is not whole");
}

Test(cut, to_nothing)
{
    cut_at(0);
}

Test(cut, in_the_tail)
{
    cut_at(MS_TAIL_OFFSET + 4096);
}

Test(cut, behind_the_header)
{
    cut_at(MS_EXTENT_BYTES);
}

Test(cut, where_windows_are_copies)
{
    without_mappings = true;
    cut_at(0);
}

/* Cut and made long again: no store faults, and still nothing is told that nobody could read. */
Test(cut, and_long_again)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);
    const char *path = path_of(trace);

    cr_assert_eq(truncate(path, 0), 0);
    cr_assert_eq(truncate(path, 1024 * (off_t)MIB), 0);
    cr_assert_eq(truncate(path, 0), 0);
    go_on(&run);
    cr_assert_eq(ms_trace_close(trace, true, 0) == 0, false);
}

Test(cut, and_closed_at_once)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);

    cr_assert_eq(truncate(path_of(trace), 0), 0);
    (void)ms_trace_close(trace, true, 0);
}

Test(cut, removed)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);

    cr_assert_eq(unlink(path_of(trace)), 0);
    go_on(&run);
    cr_assert_eq(ms_trace_close(trace, true, 0), 0, "the file is whole, if without a name");
}

/* Less on the disk than it said: what is there can be read, and the process goes on. */
static void fill_disk(void)
{
    const char *folder = synthetic_folder();
    struct synthetic run;

    if (!synthetic_mount("size=1500k")) {
        cr_skip("mounting needs root");
    }
    lying = true;

    ms_trace_t *trace = synthetic_open(folder);

    synthetic_begin(&run, trace, 1);
    go_on(&run);
    cr_assert_eq(ms_trace_close(trace, true, 0) == 0, false);

    char why[512];
    struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_gt(model->read_events, 0);
    ms_model_delete(model);
    (void)umount2(folder, MNT_DETACH);
}

Test(cut, a_disk_that_breaks_its_promise)
{
    fill_disk();
}

Test(cut, a_disk_that_breaks_its_promise_to_copies)
{
    without_mappings = true;
    fill_disk();
}

/* ---- copies ---- */

/* The trace says the same, whichever way it came into the file. */
Test(copies, hold_the_same)
{
    struct ms_model *models[2];
    struct synthetic run;

    for (int i = 0; i < 2; i++) {
        char why[512];

        without_mappings = i == 1;

        ms_trace_t *trace = begin(&run);

        go_on(&run);
        cr_assert_eq(ms_trace_close(trace, true, 3), 0);
        models[i] = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
        cr_assert_not_null(models[i], "%s", why);
        cr_assert_eq(models[i]->warning_count, 0, "%s", models[i]->warnings.at);
        cr_assert_eq(models[i]->header.exit_status, 3);
        cr_assert(models[i]->sums_exact);
        cr_assert_eq(models[i]->read_events, models[i]->events);
        cr_assert_eq(ms_model_oom_count(models[i]), 1);
        cr_assert_str_eq(models[i]->header.versions[MS_VERSION_CUDA], "13.0");
    }
    cr_assert_eq(models[0]->events, models[1]->events);
    cr_assert_eq(models[0]->devices[0].sums.tensor_allocations,
                 models[1]->devices[0].sums.tensor_allocations);
    cr_assert_eq(ms_model_series(&models[0]->devices[0])->events,
                 ms_model_series(&models[1]->devices[0])->events);
    ms_model_delete(models[0]);
    ms_model_delete(models[1]);
}

struct shared {
    struct synthetic run; /* counts each event when its emit has returned */
    char dir[PATH_MAX];
    _Atomic bool ready;
};

static void tell_until_killed(struct shared *shared, const char *folder, uint64_t seed)
{
    ms_trace_t *trace = synthetic_open(folder);

    snprintf(shared->dir, sizeof(shared->dir), "%s", ms_trace_dir(trace));
    atomic_store(&shared->ready, true);
    synthetic_begin(&shared->run, trace, seed);
    for (;;) {
        synthetic_churn(&shared->run, 1);
    }
}

Test(copies, survive_a_kill)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *folder = synthetic_folder();
    uint64_t random = 20261123;

    without_mappings = true;
    for (uint64_t i = 1; i <= 40; i++) {
        char why[512];

        memset(shared, 0, sizeof(*shared));

        const pid_t child = fork();

        if (child == 0) {
            tell_until_killed(shared, folder, i);
        }
        while (!atomic_load(&shared->ready)) {
            usleep(50);
        }
        usleep((useconds_t)(synthetic_random(&random) % 5000));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);

        struct ms_model *model = ms_model_new(shared->dir, why, sizeof(why));

        cr_assert_not_null(model, "%s", why);
        cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
        cr_assert_geq(model->read_events, shared->run.events);
        cr_assert_leq(model->read_events, shared->run.events + 1);
        cr_assert(model->sums_exact);
        ms_model_delete(model);
    }
}

/* A number of the application's own, where the trace's was: not a byte goes into its file. */
Test(copies, a_descriptor_that_was_taken_away)
{
    struct synthetic run;
    char name[64];
    struct stat status;
    int own;

    without_mappings = true;

    ms_trace_t *trace = begin(&run);

    snprintf(name, sizeof(name), "%s/own", synthetic_folder());
    own = open(name, O_RDWR | O_CREAT, 0600);
    for (int fd = own + 1; fd < 1024; fd++) {
        (void)dup2(own, fd);
    }
    go_on(&run);
    cr_assert_eq(ms_trace_close(trace, true, 0), 0);
    cr_assert_eq(fstat(own, &status), 0);
    cr_assert_eq(status.st_size, 0);
}

/* ---- the signal ---- */

static sigjmp_buf back;
static volatile sig_atomic_t caught;

static void catch (int number)
{
    caught = number;
    siglongjmp(back, 1);
}

/* A fault in a mapping of the program's own. */
static void fault(void)
{
    char name[64];

    snprintf(name, sizeof(name), "%s/own", synthetic_folder());

    const int fd = open(name, O_RDWR | O_CREAT, 0600);

    cr_assert_eq(ftruncate(fd, 4096), 0);

    volatile char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    cr_assert_eq(ftruncate(fd, 0), 0);
    *own = 1;
}

/* The handler that stood there before gets what is none of ours, and stands there afterwards. */
Test(signal, a_program_that_has_a_handler)
{
    const struct sigaction own = {.sa_handler = catch};
    struct sigaction now;
    struct synthetic run;

    cr_assert_eq(sigaction(SIGBUS, &own, NULL), 0);

    ms_trace_t *trace = begin(&run);

    if (sigsetjmp(back, 1) == 0) {
        fault();
    }
    cr_assert_eq(caught, SIGBUS);
    caught = 0;
    cr_assert_eq(truncate(path_of(trace), 0), 0);
    go_on(&run);
    cr_assert_eq(caught, 0);
    (void)ms_trace_close(trace, true, 0);
    cr_assert_eq(sigaction(SIGBUS, NULL, &now), 0);
    cr_assert(now.sa_handler == catch);
}

/* A program that dies of its own fault, or of a signal that somebody sends, dies of it with us. */
static int status_of(void (*die)(void))
{
    const char *folder = synthetic_folder();
    const pid_t child = fork();
    struct synthetic run;
    int status = 0;

    if (child == 0) {
        (void)signal(SIGBUS, SIG_DFL);
        (void)begin_in(folder, &run);
        die();
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

static void send(void)
{
    (void)kill(getpid(), SIGBUS);
}

Test(signal, a_program_without_one)
{
    cr_assert_eq(WTERMSIG(status_of(fault)), SIGBUS);
    cr_assert_eq(WTERMSIG(status_of(send)), SIGBUS);
}

/* Whoever installs a handler later owns the signal: no fault of ours comes to it. */
Test(signal, a_handler_that_comes_later)
{
    const struct sigaction own = {.sa_handler = catch};
    struct synthetic run;
    ms_trace_t *trace = begin(&run);

    cr_assert_eq(sigaction(SIGBUS, &own, NULL), 0);
    synthetic_churn(&run, (uint64_t)2 * MS_TAIL_EVENTS);
    cr_assert_eq(truncate(path_of(trace), 0), 0);
    if (sigsetjmp(back, 1) == 0) {
        go_on(&run);
    }
    cr_assert_eq(caught, 0);
    cr_assert_eq(ms_trace_close(trace, true, 0) == 0, false);
}

static void *tell_blocked(void *ctx)
{
    struct synthetic *run = ctx;
    sigset_t all;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    synthetic_churn(run, 1); /* it is met */
    cr_assert_eq(truncate(path_of(run->trace), 0), 0);
    go_on(run);
    return NULL;
}

/* A fault in a thread that blocks the signal would end the process whatever stands there. */
Test(signal, a_thread_that_blocks_it)
{
    struct synthetic run;
    ms_trace_t *trace = begin(&run);
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, tell_blocked, &run), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(ms_trace_close(trace, true, 0) == 0, false);
}

/* What was told before the windows ceased to be mappings is in the file as well as what came after.
 */
Test(signal, nothing_is_lost_by_leaving_the_mappings)
{
    char why[512];
    struct synthetic run;
    ms_trace_t *trace = begin(&run);

    (void)signal(SIGBUS, SIG_DFL);
    go_on(&run);
    cr_assert_eq(ms_trace_close(trace, true, 0), 0);

    struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert(model->sums_exact);
    cr_assert_eq(model->read_events, model->events);
    ms_model_delete(model);
}
