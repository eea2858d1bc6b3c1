/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is full costs records, never the run. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "synthetic.h"

/* The sums hold, the newest events are there, and the report says what is not. */
static void check(const char *dir, const struct synthetic *run)
{
    char why[512];
    struct ms_model *model = ms_model_new(dir, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);

    const struct ms_aggregate *sums = &model->devices[0].sums;

    cr_assert_eq(model->header.disk_full, 1);
    cr_assert_eq(model->events, run->events);
    cr_assert_eq(model->read_events + model->lost_events + model->recycled_events, run->events);
    cr_assert_gt(model->lost_events + model->recycled_events, 0);
    cr_assert(model->sums_exact);
    cr_assert_eq(sums->tensor_allocations, run->allocations);
    cr_assert_eq(ms_counters_live(&sums->now), run->live_bytes);
    cr_assert_eq(sums->peak_tensor_bytes, run->peak_live_bytes);
    ms_model_delete(model);
}

Test(full, file_size_limit_with_its_signal_at_the_default)
{
    const char *folder = synthetic_folder();
    const struct rlimit limit = {3 * MIB, 3 * MIB};
    struct synthetic run;

    cr_assert_eq(signal(SIGXFSZ, SIG_DFL) == SIG_ERR, 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);

    ms_trace_t *trace = synthetic_open(folder);

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 2000000);
    ms_trace_close(trace, true, 0);
    check(ms_trace_dir(trace), &run);
}

/* Too little for a second full window: nothing to recycle, records are lost. */
Test(full, room_for_the_first_windows_only)
{
    const char *folder = synthetic_folder();
    const struct rlimit limit = {5 * MIB / 4, 5 * MIB / 4};
    struct synthetic run;
    char why[512];

    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);

    ms_trace_t *trace = synthetic_open(folder);

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 1000000);
    ms_trace_close(trace, true, 0);

    struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_gt(model->lost_events, 0);
    ms_model_delete(model);
    check(ms_trace_dir(trace), &run);
}

Test(full, no_room_at_all_is_said)
{
    const char *folder = synthetic_folder();
    const struct ms_trace_config config = synthetic_config(folder);
    const struct rlimit limit = {MIB / 4 + 1000, MIB / 4 + 1000};
    char note[512];

    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_null(ms_trace_open(&config, note, sizeof(note)));
    cr_assert_not_null(strstr(note, "File too large"), "%s", note);
    cr_assert_eq(rmdir(folder), 0, "nothing is left behind");
}

Test(full, a_small_file_system)
{
    const char *folder = synthetic_folder();
    struct synthetic run;

    if (!synthetic_mount("size=3m")) {
        cr_skip("mounting needs root");
    }

    ms_trace_t *trace = synthetic_open(folder);

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 2000000);
    ms_trace_close(trace, true, 0);
    check(ms_trace_dir(trace), &run);
    (void)umount(folder);
}
