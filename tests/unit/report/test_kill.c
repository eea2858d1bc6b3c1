/* SPDX-License-Identifier: Apache-2.0 */
/* SIGKILL at random moments: every event whose emit had returned is in the trace. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/read/reader.h"
#include "synthetic.h"

enum { KILLS = 200 };

struct shared {
    struct synthetic
        run; /* counts each event when its emit has returned, also those of the start */
    _Atomic uint64_t ooms;
    char dir[PATH_MAX];
    _Atomic bool ready;
};

/* Runs until it is killed. */
static void writer_process(struct shared *shared, const char *output, uint64_t seed)
{
    struct ms_trace_config config = synthetic_config(output);
    const struct ms_oom_state state = synthetic_oom(40 * GIB, MS_OOM_DRIVER);

    config.limit_bytes = seed % 3 == 0 ? 1 * MIB : 0; /* some recycle their windows */
    config.process.pid = (int32_t)getpid();

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    if (!trace) {
        _exit(9);
    }
    snprintf(shared->dir, sizeof(shared->dir), "%s", ms_trace_dir(trace));
    atomic_store(&shared->ready, true);
    synthetic_begin(&shared->run, trace, seed);
    for (uint64_t i = 0;; i++) {
        synthetic_churn(&shared->run, 1);
        if (i % 1000 == 999) {
            ms_trace_oom(trace, 0, &state);
            atomic_fetch_add(&shared->ooms, 1);
        }
    }
}

static void check(const struct shared *shared)
{
    char why[512];
    struct ms_model *model = ms_model_new(shared->dir, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert_eq(model->end, MS_PROCESS_KILLED);
    cr_assert(model->sums_exact);

    /* At most one more than was acknowledged: the one under way. */
    const uint64_t kept = model->read_events + model->recycled_events;
    const uint64_t told = shared->run.events;

    cr_assert_geq(kept, told);
    cr_assert_leq(kept, told + 1);
    cr_assert_geq(ms_model_oom_count(model), shared->ooms);
    cr_assert_leq(ms_model_oom_count(model), shared->ooms + 1);

    const struct ms_aggregate *sums = &model->devices[0].sums;

    if (told > 10) {
        cr_assert_eq(sums->tensor_allocations + sums->tensor_frees + 5, kept,
                     "sums and records agree");
        cr_assert_eq(sums->tensor_allocations - sums->tensor_frees, sums->now.tensors);
    }
    ms_model_delete(model);
}

Test(kill, nothing_that_was_told_is_missing, .timeout = 600)
{
    const char *output = synthetic_folder();
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = 20261121;

    for (int i = 0; i < KILLS; i++) {
        memset(shared, 0, sizeof(*shared));

        const pid_t child = fork();

        if (child == 0) {
            writer_process(shared, output, (uint64_t)i + 1);
        }
        while (!atomic_load(&shared->ready)) {
            usleep(50);
        }
        /* From right after the start to many windows later. */
        usleep((useconds_t)(synthetic_random(&random) % (i % 4 == 0 ? 100 : 20000)));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        check(shared);
    }
}

/* ---- killed at a chosen moment, before and in the midst of packing ---- */

enum { PACKED = MS_TAIL_EVENTS, BEGUN = 5 /* events of synthetic_begin */ };

static void tell_and_die(const char *output, uint64_t churned, char *dir)
{
    const pid_t child = fork();

    if (child == 0) {
        struct synthetic run;
        struct ms_trace_config config = synthetic_config(output);

        config.process.pid = (int32_t)getpid();

        ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

        snprintf(dir, PATH_MAX, "%s", ms_trace_dir(trace));
        synthetic_begin(&run, trace, 77);
        synthetic_churn(&run, churned);
        kill(getpid(), SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

static struct ms_model *must_read(const char *path)
{
    char why[512];
    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    return model;
}

/* The same run without a trace: what its sums must be. */
static struct synthetic expected(uint64_t churned)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(&run, trace, 77);
    synthetic_churn(&run, churned);
    ms_trace_close(trace, true, 0);
    return run;
}

static void expect_run(const struct ms_model *model, const struct synthetic *run)
{
    const struct ms_aggregate *sums = &model->devices[0].sums;
    const struct ms_series *series = ms_model_series(&model->devices[0]);
    const struct ms_bucket *last = &series->buckets[series->used - 1];

    cr_assert_eq(model->events, run->events);
    cr_assert_eq(model->read_events, run->events);
    cr_assert(model->sums_exact);
    cr_assert_eq(sums->tensor_allocations, run->allocations);
    cr_assert_eq(sums->tensor_frees, run->deaths);
    cr_assert_eq(ms_counters_live(&sums->now), run->live_bytes);
    cr_assert_eq(sums->peak_tensor_bytes, run->peak_live_bytes);
    cr_assert_eq(series->events, run->events);
    cr_assert_eq(last->last_bytes[MS_LINE_LIVE], run->live_bytes);
}

static uint64_t packed_events(const char *dir)
{
    char path[PATH_MAX + 16], why[512];
    struct ms_reader reader;
    uint64_t count = 0;

    snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, dir);
    cr_assert(ms_reader_open(&reader, path, why, sizeof(why)), "%s", why);
    for (size_t i = 0; i < ms_reader_count(&reader.windows); i++) {
        count += ms_reader_place(&reader.windows, i)->count;
    }
    ms_reader_close(&reader);
    return count;
}

Test(kill, what_was_told_and_not_packed, .timeout = 600)
{
    const uint64_t churned[] = {0, 1, 50, PACKED - BEGUN, PACKED - BEGUN + 1, 5 * PACKED + 7};
    char *dir = mmap(NULL, PATH_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool unpacked = false, both = false;

    for (size_t i = 0; i < sizeof(churned) / sizeof(churned[0]); i++) {
        const struct synthetic run = expected(churned[i]);

        tell_and_die(synthetic_folder(), churned[i], dir);

        const uint64_t packed = packed_events(dir);
        struct ms_model *model = must_read(dir);

        cr_assert_eq(model->end, MS_PROCESS_KILLED);
        expect_run(model, &run);
        unpacked |= packed == 0;
        both |= packed > 0 && packed < run.events;
        ms_model_delete(model);
    }
    cr_assert(unpacked && both, "some died before packing, some after it");
}

/* What a process leaves that is killed in the midst of packing: some extents as they were before it
 * and some as they are after. before, after: whole files of the same trace. */
static void splice(char *file, const char *after, size_t bytes, uint32_t kind)
{
    for (size_t at = MS_EXTENT_BYTES; at < bytes; at += MS_EXTENT_BYTES) {
        if (((const struct ms_extent_header *)(after + at))->kind == kind) {
            memcpy(file + at, after + at, MS_EXTENT_BYTES);
        }
    }
}

/* The timeline of the page is written before its sums are. */
static void splice_series(char *file, const char *after, size_t bytes)
{
    const size_t within = sizeof(struct ms_extent_header) + offsetof(struct ms_device_page, series);

    for (size_t at = MS_EXTENT_BYTES; at < bytes; at += MS_EXTENT_BYTES) {
        if (((const struct ms_extent_header *)(after + at))->kind == MS_EXTENT_DEVICE) {
            memcpy(file + at + within, after + at + within, sizeof(struct ms_series_pair));
        }
    }
}

static void expect_file(const char *bytes, size_t count, const struct synthetic *run)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/spliced.mshm", synthetic_folder());

    FILE *file = fopen(path, "wb");

    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    (void)fclose(file);

    struct ms_model *model = must_read(path);

    expect_run(model, run);
    ms_model_delete(model);
}

Test(kill, in_the_midst_of_packing)
{
    struct synthetic run;
    char path[PATH_MAX + 16];
    size_t bytes, same;
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, ms_trace_dir(trace));
    synthetic_begin(&run, trace, 77);
    synthetic_churn(&run, 3 * PACKED - BEGUN);

    char *before = synthetic_read(path, &bytes);
    const struct synthetic told = run;

    synthetic_churn(&run, 1); /* packs those before it */

    char *after = synthetic_read(path, &same);
    char *file = malloc(bytes);

    cr_assert_eq(same, bytes);
    expect_file(before, bytes, &told);
    memcpy(file, before, bytes);
    splice(file, after, bytes, MS_EXTENT_WINDOW);
    expect_file(file, bytes, &told);
    splice_series(file, after, bytes);
    expect_file(file, bytes, &told);
    splice(file, after, bytes, MS_EXTENT_DEVICE);
    expect_file(file, bytes, &told);
    cr_assert_neq(memcmp(file, before, bytes), 0, "something was packed");
    free(before);
    free(after);
    free(file);
}
