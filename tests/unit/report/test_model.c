/* SPDX-License-Identifier: Apache-2.0 */
/* What the model makes of out-of-memories, and what goes on after them. */
#include <criterion/criterion.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "synthetic.h"

static struct synthetic run;

static ms_trace_t *begin(void)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 100);
    return trace;
}

static void fail(ms_trace_t *trace, uint64_t bytes, enum ms_oom_source source)
{
    const struct ms_oom_state state = synthetic_oom(bytes, source);

    ms_trace_oom(trace, 0, &state);
}

static void allocate(ms_trace_t *trace, uint64_t id, uint64_t bytes)
{
    const struct ms_event event = {
        .kind = MS_EVENT_BLOCK_ALLOC, .id = id, .bytes = bytes, .aux = bytes};

    ms_trace_emit(trace, &event);
}

static struct ms_model *end(ms_trace_t *trace, bool known, int status)
{
    char why[512] = "";

    ms_trace_close(trace, known, status);

    struct ms_model *model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    return model;
}

/* PyTorch: the driver refuses, PyTorch frees its cache, asks again and gets it. */
Test(model, a_retry_that_succeeds)
{
    ms_trace_t *trace = begin();

    fail(trace, 30 * GIB, MS_OOM_DRIVER);
    allocate(trace, 1000000, 30 * GIB);

    struct ms_model *model = end(trace, true, 1);

    cr_assert_eq(ms_model_oom_count(model), 1);
    cr_assert(ms_model_oom_at(model, 0)->recovered);
    cr_assert_null(ms_model_fatal_oom(model));
    ms_model_delete(model);
}

Test(model, a_retry_that_fails_too)
{
    ms_trace_t *trace = begin();

    fail(trace, 30 * GIB, MS_OOM_DRIVER);
    fail(trace, 30 * GIB, MS_OOM_DRIVER);
    fail(trace, 29 * GIB, MS_OOM_TORCH);
    allocate(trace, 1000000, 512);

    struct ms_model *model = end(trace, true, 1);

    cr_assert_eq(ms_model_oom_count(model), 2, "what was asked again is one event");
    cr_assert_eq(ms_model_oom_at(model, 0)->times, 2);
    cr_assert_eq(ms_model_oom_at(model, 1)->times, 1);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_not(ms_model_oom_at(model, i)->recovered);
    }
    cr_assert_eq(ms_model_fatal_oom(model)->record.state.source, MS_OOM_TORCH);
    cr_assert_eq(ms_model_fatal_oom(model)->record.state.requested_bytes, 29 * GIB);
    cr_assert_eq(model->devices[0].sums.failed_allocations, 2);
    cr_assert_eq(model->devices[0].sums.torch_ooms, 1);
    ms_model_delete(model);
}

/* Other requests in between, or something that was served, make it another event. */
Test(model, what_is_asked_anew_is_an_event_of_its_own)
{
    ms_trace_t *trace = begin();

    fail(trace, 30 * GIB, MS_OOM_DRIVER);
    fail(trace, 29 * GIB, MS_OOM_DRIVER);
    fail(trace, 30 * GIB, MS_OOM_DRIVER);
    for (uint64_t id = 0; id < 20; id++) {
        allocate(trace, 1000000 + id, 512);
    }
    fail(trace, 30 * GIB, MS_OOM_DRIVER);

    struct ms_model *model = end(trace, true, 1);

    cr_assert_eq(ms_model_oom_count(model), 4);
    ms_model_delete(model);
}

/* An arena that asks for nine tenths each time (ONNX Runtime's, TensorFlow's). */
Test(model, an_arena_that_asks_for_less_is_one_event)
{
    ms_trace_t *trace = begin();

    for (uint64_t bytes = 32 * GIB; bytes > 25 * GIB; bytes = (bytes / 10 * 9 + 255) / 256 * 256) {
        fail(trace, bytes, MS_OOM_DRIVER);
    }

    struct ms_model *model = end(trace, false, 1);

    cr_assert_eq(ms_model_oom_count(model), 1);
    cr_expect_eq(ms_model_oom_at(model, 0)->times, 3);
    cr_expect_lt(ms_model_oom_at(model, 0)->record.state.requested_bytes, 26 * GIB);
    ms_model_delete(model);
}

/* A batch finder: too large, then smaller ones, many of them. */
Test(model, a_program_that_went_on)
{
    ms_trace_t *trace = begin();

    fail(trace, 30 * GIB, MS_OOM_TORCH);
    synthetic_churn(&run, 2000);

    struct ms_model *model = end(trace, true, 1);

    cr_assert(ms_model_oom_at(model, 0)->recovered);
    ms_model_delete(model);
}

Test(model, a_program_that_ended_well)
{
    ms_trace_t *trace = begin();

    fail(trace, 30 * GIB, MS_OOM_TORCH);

    struct ms_model *model = end(trace, true, 0);

    cr_assert(ms_model_oom_at(model, 0)->recovered);
    ms_model_delete(model);
}

/* A device's allocations say nothing of another's failures, not even where both have failed. */
Test(model, two_devices_that_failed)
{
    ms_trace_t *trace = begin();
    const struct ms_oom_state small = synthetic_oom(GIB, MS_OOM_DRIVER);
    const struct ms_event elsewhere = {.kind = MS_EVENT_BLOCK_ALLOC,
                                       .device = 1,
                                       .id = 1000000,
                                       .bytes = 40 * GIB,
                                       .aux = 40 * GIB};

    fail(trace, 30 * GIB, MS_OOM_TORCH);
    ms_trace_oom(trace, 1, &small);
    ms_trace_emit(trace, &elsewhere);

    struct ms_model *model = end(trace, true, 1);

    cr_assert_not(ms_model_oom_at(model, 0)->recovered);
    cr_assert(ms_model_oom_at(model, 1)->recovered);
    ms_model_delete(model);
}

/* Another device's allocations say nothing. */
Test(model, recovery_is_told_by_the_same_device)
{
    ms_trace_t *trace = begin();
    const struct ms_event elsewhere = {.kind = MS_EVENT_BLOCK_ALLOC,
                                       .device = 1,
                                       .id = 1000000,
                                       .bytes = 40 * GIB,
                                       .aux = 40 * GIB};

    fail(trace, 30 * GIB, MS_OOM_TORCH);
    ms_trace_emit(trace, &elsewhere);

    struct ms_model *model = end(trace, true, 1);

    cr_assert_not(ms_model_oom_at(model, 0)->recovered);
    ms_model_delete(model);
}

Test(model, an_allocation_before_is_no_recovery)
{
    ms_trace_t *trace = begin();

    allocate(trace, 1000000, 30 * GIB);
    fail(trace, 30 * GIB, MS_OOM_DRIVER);

    struct ms_model *model = end(trace, true, 1);

    cr_assert_not(ms_model_oom_at(model, 0)->recovered);
    ms_model_delete(model);
}

Test(model, thresholds_and_notes)
{
    ms_trace_t *trace = begin();
    const struct ms_event crossing = {.kind = MS_EVENT_THRESHOLD, .bytes = 22 * GIB, .aux = 2};

    ms_trace_emit(trace, &crossing);
    ms_trace_note(trace, "one");
    ms_trace_note(trace, "two");

    struct ms_model *model = end(trace, false, 0);
    const struct ms_model_threshold *threshold =
        (const struct ms_model_threshold *)model->thresholds.at;

    cr_assert_eq(model->thresholds.bytes, sizeof(*threshold));
    cr_assert_eq(threshold->state, 2);
    cr_assert_eq(threshold->charged_bytes, 22 * GIB);
    cr_assert_eq(model->note_count, 2);
    cr_assert_str_eq(model->notes.at, "one");
    cr_assert_str_eq(model->notes.at + 4, "two");
    cr_assert_not(model->header.exit_known);
    ms_model_delete(model);
}
