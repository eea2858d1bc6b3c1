/* SPDX-License-Identifier: Apache-2.0 */
/* How often a report decodes its trace: every record is counted on its way out of ms_decode, which
 * the linker hands to this test. Once for the sums, once for what needs them; the replays of an
 * out-of-memory have their recording from the second. */
#include <criterion/criterion.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/model/verdict/what_if.h"
#include "report/trace/encoding.h"
#include "shim/cli/launch/report_files.h"
#include "synthetic.h"

#define EVENTS 20000

static uint64_t decoded;

size_t __real_ms_decode(struct ms_codec *codec, const uint8_t *in, size_t bytes,
                        struct ms_event *event, uint64_t *time_ns);
size_t __wrap_ms_decode(struct ms_codec *codec, const uint8_t *in, size_t bytes,
                        struct ms_event *event, uint64_t *time_ns);

size_t __wrap_ms_decode(struct ms_codec *codec, const uint8_t *in, size_t bytes,
                        struct ms_event *event, uint64_t *time_ns)
{
    const size_t used = __real_ms_decode(codec, in, bytes, event, time_ns);

    decoded += used > 0;
    return used;
}

/* Of a run of EVENTS tensors; died: an out-of-memory ended it. */
static struct ms_model *read_run(bool died)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    const struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_DRIVER);
    struct ms_model *model;
    char why[512] = "";

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, EVENTS);
    if (died) {
        ms_trace_oom(trace, 0, &state);
    }
    ms_trace_close(trace, true, died);
    decoded = 0;
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    cr_assert_geq(model->read_events, EVENTS);
    cr_assert_eq(decoded, model->read_events);
    return model;
}

Test(passes, an_out_of_memory_takes_two)
{
    struct ms_model *model = read_run(true);

    ms_what_if_expect(model, MS_WHAT_IF_OPERATIONS);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    cr_assert(model->what_if.tried, "%s", model->what_if.why);
    cr_assert_eq(decoded, 2 * model->read_events);
    ms_model_delete(model);
}

Test(passes, so_does_a_run_that_ended_well)
{
    struct ms_model *model = read_run(false);

    ms_what_if_expect(model, MS_WHAT_IF_OPERATIONS);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    cr_assert_gt(model->what_if.overhead.min_cap_bytes, 0, "%s", model->what_if.overhead.why);
    cr_assert_eq(decoded, 2 * model->read_events);
    ms_model_delete(model);
}

/* The first part of it tells, where its peak comes near the run's; and as little of the time. */
Test(passes, of_a_longer_run_a_part_is_replayed)
{
    struct ms_model *model = read_run(false);
    const uint64_t most = 10000, most_operations = 16 * most;

    ms_what_if_expect(model, most_operations);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    ms_what_if_try(model, most_operations);
    cr_assert_gt(model->what_if.overhead.min_cap_bytes, 0, "%s", model->what_if.overhead.why);
    cr_expect_eq(model->what_if.overhead.part_events, most);
    cr_expect_geq(model->what_if.overhead.min_cap_bytes, model->what_if.overhead.peak_live_bytes);
    cr_assert_eq(decoded, 2 * model->read_events);
    ms_model_delete(model);
}

/* A part that ends far below the run's peak tells nothing of it. */
Test(passes, a_part_that_is_only_the_beginning_is_not_told_of)
{
    struct ms_model *model = read_run(false);

    ms_what_if_try(model, UINT64_C(16) * 20);
    cr_expect_eq(model->what_if.overhead.min_cap_bytes, 0);
    cr_expect_not_null(model->what_if.overhead.why);
    ms_model_delete(model);
}

/* One tensor of 512 bytes takes a chunk of 2 MiB: 4096 times that is said of nobody. */
Test(passes, where_hardly_anything_is_live_no_ratio_is_told)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    const struct ms_event block = {
        .kind = MS_EVENT_BLOCK_ALLOC, .id = 1, .addr = UINT64_C(1) << 40, .bytes = 512};
    struct ms_model *model;
    char why[512] = "";

    ms_trace_emit(trace, &block);
    ms_trace_close(trace, true, 0);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    ms_what_if_expect(model, MS_WHAT_IF_OPERATIONS);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    cr_expect_eq(model->what_if.overhead.min_cap_bytes, 0);
    cr_expect_not_null(model->what_if.overhead.why);
    ms_model_delete(model);
}

/* All four files of it: no form reads the records for itself. */
Test(passes, all_files_of_a_run_take_two)
{
    struct ms_model *model = read_run(true);
    const uint64_t events = model->read_events;
    char why[512] = "";

    decoded = 0;
    cr_assert_eq(ms_report_of_process(model->dir, why, sizeof(why)), 0, "%s", why);
    cr_assert_eq(decoded, 2 * events);
    ms_model_delete(model);
}

/* Both ways to a recording say the same. */
Test(passes, without_a_survey_the_trace_is_read_again)
{
    struct ms_model *model = read_run(true);
    struct ms_what_if found;

    ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    cr_assert(model->what_if.tried);
    cr_assert_eq(decoded, 2 * model->read_events);
    found = model->what_if;

    ms_what_if_expect(model, MS_WHAT_IF_OPERATIONS);
    ms_model_survey(model, MS_SURVEY_SUMS);
    ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    cr_assert_eq(decoded, 3 * model->read_events);
    cr_assert_eq(model->what_if.plain.cap_bytes, found.plain.cap_bytes);
    cr_assert_eq(model->what_if.spilled.cap_bytes, found.spilled.cap_bytes);
    cr_assert_eq(model->what_if.own_cap_host_bytes, found.own_cap_host_bytes);
    cr_assert_eq(model->what_if.replays, found.replays);
    ms_model_delete(model);
}

/* 64 MiB that the program mapped itself, gone before 48 MiB came: what those take says nothing of
 * the most that was live. */
Test(passes, where_the_program_mapped_most_no_ratio_is_told)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    const struct ms_event block = {.kind = MS_EVENT_BLOCK_ALLOC,
                                   .id = 1,
                                   .addr = UINT64_C(1) << 40,
                                   .bytes = 48 * MIB,
                                   .aux = 48 * MIB};
    struct ms_event mapped = {.kind = MS_EVENT_BLOCK_ALLOC,
                              .owner = MS_OWNER_APPLICATION,
                              .id = 2,
                              .addr = UINT64_C(1) << 41,
                              .bytes = 64 * MIB,
                              .aux = 64 * MIB};
    struct ms_model *model;
    char why[512] = "";

    ms_trace_emit(trace, &mapped);
    mapped.kind = MS_EVENT_BLOCK_FREE;
    mapped.aux = 0;
    ms_trace_emit(trace, &mapped);
    ms_trace_emit(trace, &block);
    ms_trace_close(trace, true, 0);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    ms_what_if_expect(model, MS_WHAT_IF_OPERATIONS);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    ms_what_if_try(model, MS_WHAT_IF_OPERATIONS);
    cr_expect_eq(model->what_if.overhead.min_cap_bytes, 0);
    cr_expect_not_null(model->what_if.overhead.why);
    ms_model_delete(model);
}
