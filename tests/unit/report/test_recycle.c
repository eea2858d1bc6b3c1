/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded trace: old windows make room, sums do not change. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "synthetic.h"

Test(recycle, a_long_run_in_a_small_trace)
{
    const char *folder = synthetic_folder();
    struct ms_trace_config config = synthetic_config(folder);
    const struct ms_oom_state early = synthetic_oom(40 * GIB, MS_OOM_DRIVER);
    struct synthetic run;
    char path[PATH_MAX + 16], why[512];
    struct stat status;

    config.limit_bytes = 2 * MIB;

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    synthetic_begin(&run, trace, 5);
    synthetic_churn(&run, 1000);
    ms_trace_oom(trace, 0, &early);
    synthetic_churn(&run, 3000000);
    ms_trace_close(trace, true, 0);
    snprintf(path, sizeof(path), "%s/trace.mshm", ms_trace_dir(trace));
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_leq(status.st_size, (off_t)(4 * MIB), "%ld", (long)status.st_size);

    struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    const struct ms_aggregate *sums = &model->devices[0].sums;

    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert(model->sums_exact);
    cr_assert_eq(model->events, run.events);
    cr_assert_eq(model->recycled_events + model->read_events, run.events);
    cr_assert_gt(model->read_events, 100000);
    cr_assert_gt(model->recycled_events, 100000);
    cr_assert_gt(model->first_detail_ns, 0);
    cr_assert_eq(sums->tensor_allocations, run.allocations);
    cr_assert_eq(sums->tensor_frees, run.deaths);
    cr_assert_eq(ms_counters_live(&sums->now), run.live_bytes);
    cr_assert_eq(sums->peak_tensor_bytes, run.peak_live_bytes);
    cr_assert_eq(ms_aggregate_peak_live(sums).live_bytes, run.peak_live_bytes);
    cr_assert_eq(ms_model_oom_count(model), 1);
    cr_assert_eq(sums->failed_allocations, 1);

    /* The timeline still has the whole run. */
    const struct ms_series *series = ms_model_series(&model->devices[0]);
    uint64_t peak = 0, samples = 0;

    for (uint32_t i = 0; i < series->used; i++) {
        const struct ms_bucket *bucket = &series->buckets[i];

        samples += bucket->samples;
        peak = bucket->max_bytes[MS_LINE_LIVE] > peak ? bucket->max_bytes[MS_LINE_LIVE] : peak;
    }
    cr_assert_eq(samples, run.events);
    cr_assert_geq(peak, run.peak_live_bytes);
    ms_model_delete(model);
}

Test(recycle, out_of_memories_are_never_dropped)
{
    const char *folder = synthetic_folder();
    struct ms_trace_config config = synthetic_config(folder);
    const struct ms_oom_state state = synthetic_oom(40 * GIB, MS_OOM_DRIVER);
    struct synthetic run;
    char why[512];

    config.limit_bytes = 1 * MIB;

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    synthetic_begin(&run, trace, 5);
    for (int i = 0; i < 3000; i++) {
        synthetic_churn(&run, 100);
        ms_trace_oom(trace, 0, &state);
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));

    cr_assert_eq(ms_model_oom_count(model), 3000);
    cr_assert_eq(model->devices[0].sums.failed_allocations, 3000);
    cr_assert_eq(model->lost_entries, 0);
    for (size_t i = 1; i < ms_model_oom_count(model); i++) {
        cr_assert_gt(ms_model_oom_at(model, i)->time_ns, ms_model_oom_at(model, i - 1)->time_ns);
    }
    ms_model_delete(model);
}

static struct synthetic live_run;
static _Atomic bool enough;

static void *churn(void *ctx)
{
    (void)ctx;
    while (!atomic_load(&enough)) {
        synthetic_churn(&live_run, 1000);
    }
    return NULL;
}

/* A reader beside a writer that takes the windows away under its eyes. */
Test(recycle, read_while_windows_are_recycled, .timeout = 600)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    pthread_t writer;
    uint64_t last_events = 0, recycled = 0;

    config.limit_bytes = 1 * MIB;

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    synthetic_begin(&live_run, trace, 5);
    cr_assert_eq(pthread_create(&writer, NULL, churn, NULL), 0);
    for (int i = 0; i < 200; i++) {
        char why[512] = "";
        struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));

        cr_assert_not_null(model, "%s", why);
        cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
        cr_assert_eq(model->end, MS_PROCESS_RUNNING);
        cr_assert_geq(model->events, last_events);
        cr_assert_eq(model->devices[0].sums.tensor_allocations -
                         model->devices[0].sums.tensor_frees,
                     model->devices[0].sums.now.tensors);
        last_events = model->events;
        recycled = model->recycled_events;
        ms_model_delete(model);
    }
    atomic_store(&enough, true);
    pthread_join(writer, NULL);
    cr_assert_gt(recycled, 0);
}
