/* SPDX-License-Identifier: Apache-2.0 */
/* The writer through the reader: what was told is what is read. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/write/writer_state.h"
#include "synthetic.h"

static struct ms_model *read_model(const char *dir)
{
    char why[512] = "";
    struct ms_model *model = ms_model_new(dir, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    return model;
}

Test(writer, a_run_comes_back)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 200000);
    ms_trace_close(trace, true, 3);

    struct ms_model *model = read_model(ms_trace_dir(trace));
    const struct ms_aggregate *sums = &model->devices[0].sums;

    cr_assert_eq(model->events, run.events);
    cr_assert_eq(model->read_events, run.events);
    cr_assert_eq(model->lost_events, 0);
    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert(model->sums_exact);
    cr_assert_eq(sums->tensor_allocations, run.allocations);
    cr_assert_eq(sums->tensor_frees, run.deaths);
    cr_assert_eq(ms_counters_live(&sums->now), run.live_bytes);
    cr_assert_eq(sums->peak_tensor_bytes, run.peak_live_bytes);
    cr_assert_eq(ms_aggregate_peak_live(sums).live_bytes, run.peak_live_bytes);
    cr_assert_eq(sums->peak_charged.charged_bytes, 4 * GIB + 400 * MIB);
    cr_assert_eq(sums->now.cap_bytes, 23 * GIB);
    cr_assert_str_eq(model->devices[0].name, "Simulated GPU");
    cr_assert_eq(model->devices[0].uuid[1], 0xad);
    cr_assert_str_eq(model->header.versions[MS_VERSION_TORCH], "2.15.0");
    cr_assert_eq(model->end, MS_PROCESS_ENDED);
    cr_assert_eq(model->header.exit_status, 3);
    ms_model_delete(model);
}

/* Also while another thread, or the one that is interrupted, is inside the writer. */
Test(writer, left_open)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 1000);
    ms_trace_acquire(trace);
    ms_trace_leave(trace, 3);
    ms_trace_release(trace);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->end, MS_PROCESS_RUNNING, "its file is still locked");
    ms_model_delete(model);
    ms_trace_file_close(&trace->file);
    model = read_model(ms_trace_dir(trace));
    cr_assert_eq(model->end, MS_PROCESS_EXITED);
    cr_assert_eq(model->header.exit_status, 3);
    cr_assert_eq(model->read_events, run.events);
    cr_assert_geq(model->duration_ns, model->devices[0].sums.last_time_ns);
    cr_assert_eq(model->duration_ns, model->header.end_time_ns);
    ms_model_delete(model);
}

Test(writer, closed_before_it_is_left)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    ms_trace_close(trace, true, 0);
    ms_trace_leave(trace, 3);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->end, MS_PROCESS_ENDED);
    cr_assert_eq(model->header.exit_status, 0);
    ms_model_delete(model);
}

/* The kernel ends a process that writes beyond it. */
Test(writer, limit_on_file_sizes_without_mappings)
{
    const struct rlimit limit = {4096, 4096};
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    ms_trace_file_leave_mappings(&trace->file);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ms_trace_note(trace, "too late");
    cr_assert_eq(ms_trace_close(trace, true, 0), EFBIG);
}

Test(writer, read_while_it_runs)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(&run, trace, 1);
    for (int i = 0; i < 20; i++) {
        synthetic_churn(&run, 1000);

        struct ms_model *model = read_model(ms_trace_dir(trace));

        cr_assert_eq(model->read_events, run.events);
        cr_assert_eq(model->end, MS_PROCESS_RUNNING);
        cr_assert_eq(model->devices[0].sums.peak_tensor_bytes, run.peak_live_bytes);
        ms_model_delete(model);
    }
    ms_trace_close(trace, false, 0);
}

enum { THREADS = 8, EACH = 100000 };

static void *churn_device(void *ctx)
{
    struct synthetic *run = ctx;

    synthetic_churn(run, EACH);
    return NULL;
}

Test(writer, many_threads_and_devices)
{
    static struct synthetic runs[THREADS];
    pthread_t threads[THREADS];
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    for (int i = 0; i < THREADS; i++) {
        synthetic_begin(&runs[i], trace, (uint64_t)i + 1);
        runs[i].events = 0;
        runs[i].device = (uint8_t)(i * 9);
        cr_assert_eq(pthread_create(&threads[i], NULL, churn_device, &runs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert_eq(model->read_events, model->events);
    for (int i = 1; i < THREADS; i++) {
        const struct ms_aggregate *sums = &model->devices[(size_t)i * 9].sums;

        cr_assert_eq(sums->events, EACH);
        cr_assert_eq(sums->tensor_allocations, runs[i].allocations);
        cr_assert_eq(ms_counters_live(&sums->now), runs[i].live_bytes);
        cr_assert_eq(sums->peak_tensor_bytes, runs[i].peak_live_bytes);
    }
    ms_model_delete(model);
}

Test(writer, after_the_end_nothing_is_told_and_nothing_breaks)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(&run, trace, 1);
    ms_trace_close(trace, true, 0);

    const uint64_t events = run.events;
    const struct ms_oom_state state = synthetic_oom(GIB, MS_OOM_DRIVER);

    synthetic_churn(&run, 10);
    ms_trace_oom(trace, 0, &state);
    ms_trace_note(trace, "late");
    ms_trace_version(trace, "cuda", "13");
    ms_trace_device(trace, 1, "late", NULL, 1, 1);
    ms_trace_close(trace, true, 1);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->events, events);
    cr_assert_eq(model->note_count, 0);
    cr_assert_eq(model->header.exit_status, 0);
    ms_model_delete(model);
}

Test(writer, a_fork_child_lets_go)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    int status;

    synthetic_begin(&run, trace, 1);

    const pid_t child = fork();

    if (child == 0) {
        ms_trace_abandon(trace);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    synthetic_churn(&run, 1000);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->end, MS_PROCESS_RUNNING, "the parent's lock was let go");
    cr_assert_eq(model->read_events, run.events);
    ms_model_delete(model);
}

/* Programs close every descriptor and open files of their own under the same numbers. */
Test(writer, descriptors_that_the_program_took_are_not_written_to)
{
    struct synthetic run;
    const char *folder = synthetic_folder();
    ms_trace_t *trace = synthetic_open(folder);
    char path[PATH_MAX];
    struct stat status;

    synthetic_begin(&run, trace, 1);
    for (int fd = 3; fd < 1100; fd++) {
        char link[64], target[PATH_MAX];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);

        const ssize_t length = readlink(link, target, sizeof(target) - 1);

        if (length > 0) {
            target[length] = '\0';
            if (strstr(target, "trace.mshm")) {
                snprintf(path, sizeof(path), "%s/stranger", folder);

                const int stranger = open(path, O_RDWR | O_CREAT, 0600);

                cr_assert_eq(dup2(stranger, fd), fd);
            }
        }
    }
    synthetic_churn(&run, 200000);
    cr_assert_eq(stat(path, &status), 0, "the trace's descriptor was found");
    cr_assert_eq(status.st_size, 0, "the stranger's file was written to");
    ms_trace_close(trace, true, 0);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->read_events, run.events);
    ms_model_delete(model);
}

Test(writer, errno_stays)
{
    struct synthetic run;
    const char *folder = synthetic_folder();

    errno = 77;

    ms_trace_t *trace = synthetic_open(folder);

    cr_assert_eq(errno, 77);
    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 100000);
    cr_assert_eq(errno, 77);
    ms_trace_close(trace, true, 0);
    cr_assert_eq(errno, 77);
}

Test(writer, a_folder_that_cannot_be_written)
{
    char file[PATH_MAX], fallback[PATH_MAX], note[1024];
    const char *folder = synthetic_folder();

    snprintf(file, sizeof(file), "%s/file", folder);
    snprintf(fallback, sizeof(fallback), "%s/elsewhere", folder);
    cr_assert_eq(close(open(file, O_CREAT | O_WRONLY, 0600)), 0);

    struct ms_trace_config config = synthetic_config(file);

    cr_assert_null(ms_trace_open(&config, note, sizeof(note)));
    cr_assert_not_null(strstr(note, file), "%s", note);
    cr_assert_not_null(strstr(note, "Not a directory"), "%s", note);

    config.fallback_dir = fallback;

    ms_trace_t *trace = ms_trace_open(&config, note, sizeof(note));

    cr_assert_not_null(trace);
    cr_assert_not_null(strstr(note, fallback), "%s", note);
    cr_assert_eq(strncmp(ms_trace_dir(trace), fallback, strlen(fallback)), 0);
    ms_trace_close(trace, true, 0);

    struct ms_model *model = read_model(ms_trace_dir(trace));

    cr_assert_eq(model->note_count, 1);
    cr_assert_str_eq(model->notes.at, note);
    ms_model_delete(model);
}

/* As another user: root may write everywhere. */
Test(writer, a_read_only_folder)
{
    char fallback[PATH_MAX], locked[PATH_MAX];
    const char *folder = synthetic_folder();
    int status;

    snprintf(fallback, sizeof(fallback), "%s/fallback", folder);
    snprintf(locked, sizeof(locked), "%s/locked", folder);
    cr_assert_eq(chmod(folder, 0755), 0);
    cr_assert_eq(mkdir(fallback, 0700), 0);
    cr_assert(getuid() != 0 || chown(fallback, 65534, 65534) == 0, "it has to be the user's own");
    cr_assert_eq(mkdir(locked, 0555), 0);

    const pid_t child = fork();

    if (child == 0) {
        struct ms_trace_config config = synthetic_config(locked);
        char note[1024];

        config.fallback_dir = fallback;
        if (getuid() == 0 && setuid(65534) != 0) {
            _exit(2);
        }

        ms_trace_t *trace = ms_trace_open(&config, note, sizeof(note));

        _exit(trace && strstr(note, locked) && strstr(note, "Permission denied") ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}
