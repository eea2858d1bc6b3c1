/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a batch where a run died, recovered or leaked: what is true, or nothing. */
#include <criterion/criterion.h>
#include <string.h>

#include "loop.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/model/verdict/verdict_report.h"
#include "report/render/text/answer.h"
#include "synthetic.h"

#define PARAMETERS  (16 * MIB)
#define STATE       (2 * PARAMETERS)
#define ACTIVATIONS 5
#define BESIDE      (128 * MIB)
#define ROOM        (0.99 * 1024 - 128) /* in MiB: in the last hundredth nothing runs */

static ms_trace_t *trace;
static uint64_t next_id, batch_bytes; /* of one activation */
static struct ms_model *model;
static bool unseen;         /* blocks are PyTorch's segments: its tensors are not reported */
static uint64_t hole_bytes; /* when memory runs out */

static void define(void *ctx, uint32_t kind, const void *payload, size_t bytes)
{
    cr_assert(ms_trace_define(ctx, kind, payload, bytes));
}

static void tell(enum ms_event_kind kind, uint64_t id, uint32_t site, uint64_t bytes)
{
    const struct ms_event event = {.kind = (uint8_t)kind,
                                   .id = id,
                                   .addr = (UINT64_C(1) << 40) + id * GIB,
                                   .bytes = bytes,
                                   .site = site};

    ms_trace_emit(trace, &event);
}

static uint64_t born(uint32_t site, uint64_t bytes)
{
    tell(unseen ? MS_EVENT_BLOCK_ALLOC : MS_EVENT_TENSOR_ALLOC, ++next_id, site, bytes);
    return next_id;
}

static void died(uint64_t id, uint64_t bytes)
{
    tell(MS_EVENT_TENSOR_FREE, id, 0, bytes);
}

static void forward(uint64_t activations[ACTIVATIONS])
{
    for (int i = 0; i < ACTIVATIONS; i++) {
        activations[i] = born(LOOP_FORWARD, batch_bytes);
    }
}

/* The backward pass needs twice an activation more at its highest. Returns the gradients. */
static uint64_t backward(const uint64_t activations[ACTIVATIONS])
{
    const uint64_t first = born(LOOP_BACKWARD, batch_bytes);
    uint64_t gradients;

    died(born(LOOP_BACKWARD, batch_bytes), batch_bytes);
    for (int i = 0; i < ACTIVATIONS; i++) {
        died(activations[i], batch_bytes);
    }
    gradients = born(LOOP_GRADIENT, PARAMETERS);
    died(first, batch_bytes);
    return gradients;
}

static void optimize(bool first, uint64_t gradients)
{
    if (first) {
        born(LOOP_STATE, STATE);
    }
    died(born(LOOP_UPDATE, MIB), MIB);
    died(gradients, PARAMETERS);
}

static void step(bool first)
{
    uint64_t activations[ACTIVATIONS];

    forward(activations);
    optimize(first, backward(activations));
}

static void refuse(uint32_t site, uint64_t requested_bytes)
{
    struct ms_oom_state state = synthetic_oom(requested_bytes, MS_OOM_TORCH);

    state.cap_bytes = GIB;
    state.device_total_bytes = GIB;
    state.context_bytes = BESIDE;
    state.forwarded_bytes = 0;
    state.charged_bytes = GIB;
    state.pool_bytes = GIB - BESIDE;
    state.live_bytes = GIB - BESIDE - hole_bytes;
    state.driver_free_bytes = 0;
    state.refused_bytes = requested_bytes;
    state.site = site;
    ms_trace_oom(trace, 0, &state);
}

static const struct ms_headroom *headroom(int status)
{
    char why[512] = "";

    ms_trace_close(trace, true, status);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_model_survey(model, MS_SURVEY_SUMS);
    cr_assert_not_null(model->survey);
    return &model->survey->devices[0].headroom;
}

static double factor(void)
{
    struct ms_judgement judgement;

    cr_assert_neq(ms_judged_fatal(model), SIZE_MAX);
    ms_judge(model, ms_judged_fatal(model), &judgement);
    return judgement.fitting_factor;
}

static void begin_trace(void)
{
    const struct ms_event cap = {.kind = MS_EVENT_CAP, .bytes = GIB, .aux = GIB};

    loop_define(define, trace);
    ms_trace_emit(trace, &cap);
    born(LOOP_PARAMETER, PARAMETERS);
    batch_bytes = 64 * MIB;
}

static void begin(void)
{
    trace = synthetic_open(synthetic_folder());
    begin_trace();
}

static void begin_unseen(void)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    char note[256] = "";

    config.process.torch_mode = "off";
    trace = ms_trace_open(&config, note, sizeof(note));
    cr_assert_not_null(trace, "%s", note);
    unseen = true;
    begin_trace();
}

static void end(void)
{
    if (model) {
        ms_model_delete(model);
        model = NULL;
    }
}

static void expect_said(const char *words)
{
    struct ms_buffer text = {0};

    ms_answer_text(&text, model);
    ms_buffer_append(&text, "", 1);
    cr_expect_not_null(strstr(text.at, words), "no %s in\n%s", words, text.at);
    ms_buffer_free(&text);
}

TestSuite(headroom, .init = begin, .fini = end);

Test(headroom, of_a_run_that_ended_well_is_exact)
{
    const struct ms_headroom *found;

    step(true);
    step(false);
    step(false);
    found = headroom(0);
    cr_assert(found->known, "%s", found->why);
    /* Parameters, state, five activations and two more. */
    cr_expect_eq(found->peak_bytes[2], PARAMETERS + STATE + 7 * batch_bytes);
    cr_expect_eq(found->peak_bytes[4], PARAMETERS + STATE + 14 * batch_bytes);
    cr_expect_float_eq(found->largest_factor, (1024.0 - 48) / (7 * 64), 0.001);
    cr_expect_eq(found->binding_per_step_bytes, 7 * batch_bytes);
    cr_expect_eq(found->binding_persistent_bytes, PARAMETERS + STATE);
}

static double most(void)
{
    struct ms_judgement judgement;

    cr_assert_neq(ms_judged_fatal(model), SIZE_MAX);
    ms_judge(model, ms_judged_fatal(model), &judgement);
    return judgement.most_factor;
}

static double least(void)
{
    struct ms_judgement judgement;

    cr_assert_neq(ms_judged_fatal(model), SIZE_MAX);
    ms_judge(model, ms_judged_fatal(model), &judgement);
    return judgement.least_factor;
}

/* Of three activations' room there is less than three activations; what comes behind the request
 * takes more, nobody knows how much. */
Test(headroom, in_a_first_forward_pass_only_a_bound_is_known)
{
    batch_bytes = 350 * MIB;
    born(LOOP_FORWARD, batch_bytes);
    born(LOOP_FORWARD, batch_bytes);
    refuse(LOOP_FORWARD, batch_bytes);
    headroom(1);
    cr_expect_eq(factor(), 0);
    cr_expect_float_eq(most(), (1024.0 - 128 - 16) / (3 * 350), 0.001, "%f", most());
    cr_expect_eq(least(), 0);
}

/* Nearly the whole batch that has just failed is no advice. */
Test(headroom, a_bound_of_nearly_the_whole_batch_is_none)
{
    born(LOOP_FORWARD, 442 * MIB);
    refuse(LOOP_FORWARD, 443 * MIB);
    headroom(1);
    cr_expect_eq(most(), 0, "%f", most());
}

/* What fits more than once is known by an estimate: no bound stands beside it. */
Test(headroom, an_estimate_and_a_bound_exclude_each_other)
{
    uint64_t activations[ACTIVATIONS];

    batch_bytes = 144 * MIB;
    forward(activations);
    born(LOOP_BACKWARD, batch_bytes);
    refuse(LOOP_BACKWARD, batch_bytes);
    headroom(1);
    cr_expect_gt(factor(), 0);
    cr_expect_eq(most(), 0);
}

/* What the optimizer will keep of a large model decides much of what the batch may have. The
 * backward pass's block may be a gradient, so it does not follow the batch. */
Test(headroom, without_the_optimizers_state_a_range_is_known)
{
    const uint64_t parameters = PARAMETERS + 100 * MIB;
    uint64_t activations[ACTIVATIONS];
    double room;

    born(LOOP_PARAMETER, parameters - PARAMETERS);
    batch_bytes = 120 * MIB;
    forward(activations);
    born(LOOP_BACKWARD, batch_bytes);
    refuse(LOOP_BACKWARD, batch_bytes);
    headroom(1);
    room = ROOM * MIB - (double)(parameters + batch_bytes);
    cr_expect_eq(factor(), 0);
    cr_expect_float_eq(most(), room / (6 * (double)batch_bytes), 0.001, "%f", most());
    cr_expect_float_eq(least(), (room - 2 * (double)parameters) / (6 * (double)batch_bytes), 0.001,
                       "%f", least());
}

/* In a later step the same batch had been carried before: no bound is told for it. */
Test(headroom, in_a_later_step_no_bound_is_known)
{
    for (int i = 0; i < 4; i++) {
        step(i == 0);
    }
    born(LOOP_KEPT, 500 * MIB);
    refuse(LOOP_FORWARD, 500 * MIB);
    headroom(1);
    cr_expect_eq(most(), 0);
}

/* The request of a first forward pass says nothing of what the pass would have needed. */
Test(headroom, in_a_first_forward_pass_nothing_is_known)
{
    batch_bytes = 300 * MIB;
    born(LOOP_FORWARD, batch_bytes);
    born(LOOP_FORWARD, batch_bytes);
    refuse(LOOP_FORWARD, batch_bytes);
    cr_expect_not(headroom(1)->known);
    cr_expect_eq(factor(), 0);
}

/* The first step fitted without the optimizer's state, the second does not with it. */
Test(headroom, in_the_second_step_the_batch_is_told_with_the_state)
{
    uint64_t activations[ACTIVATIONS];

    batch_bytes = 124 * MIB;
    step(true);
    forward(activations);
    born(LOOP_BACKWARD, batch_bytes);
    refuse(LOOP_BACKWARD, batch_bytes);
    headroom(1);
    cr_expect_float_eq(factor(), (ROOM - 48) / (7 * 124), 0.006, "%f", factor());
}

/* A step of two passes. The second step is the run's third and fourth pass. */
Test(headroom, in_the_second_step_of_several_passes_the_batch_is_told)
{
    uint64_t activations[ACTIVATIONS], gradients;

    batch_bytes = 120 * MIB;
    forward(activations);
    gradients = backward(activations);
    forward(activations);
    died(backward(activations), PARAMETERS);
    optimize(true, gradients);
    forward(activations);
    backward(activations);
    forward(activations);
    born(LOOP_BACKWARD, batch_bytes);
    refuse(LOOP_BACKWARD, batch_bytes);
    headroom(1);
    cr_expect_float_eq(factor(), (ROOM - 64) / (7 * 120), 0.02, "%f", factor());
}

/* Where even the first forward pass of the second step has no room, the first step tells of the
 * rest. */
Test(headroom, what_the_second_step_had_not_asked_for_is_of_the_first)
{
    batch_bytes = 126 * MIB;
    step(true);
    born(LOOP_FORWARD, batch_bytes);
    refuse(LOOP_FORWARD, batch_bytes);
    headroom(1);
    cr_expect_float_eq(factor(), (ROOM - 48) / (7 * 126), 0.006, "%f", factor());
}

/* The first pass is known whole; what the state will be makes little difference here. */
Test(headroom, in_a_first_backward_pass_the_batch_is_told)
{
    uint64_t activations[ACTIVATIONS], passing;

    batch_bytes = 144 * MIB;
    forward(activations);
    passing = born(LOOP_BACKWARD, batch_bytes);
    refuse(LOOP_BACKWARD, batch_bytes);
    died(passing, batch_bytes); /* as the pass is given up */
    headroom(1);
    cr_expect_float_eq(factor(), (ROOM - 16 - 32) / (7 * 144), 0.01, "%f", factor());
}

/* What is as large as the batch that failed is no advice. */
Test(headroom, the_whole_batch_that_failed_is_not_advised)
{
    step(true);
    born(LOOP_FORWARD, batch_bytes);
    refuse(LOOP_FORWARD, batch_bytes);
    headroom(1);
    cr_expect_eq(factor(), 0);
}

/* What fitted for several steps did not fail because of its batch. */
Test(headroom, a_later_step_does_not_die_of_the_batch)
{
    for (int i = 0; i < 4; i++) {
        step(i == 0);
    }
    born(LOOP_KEPT, 500 * MIB);
    refuse(LOOP_FORWARD, 500 * MIB);
    headroom(1);
    cr_expect_eq(factor(), 0);
}

/* As a list of losses in its first steps. */
Test(headroom, what_is_kept_beside_the_model_is_no_part_of_a_batch)
{
    step(true);
    born(LOOP_KEPT, 300 * MIB);
    step(false);
    born(LOOP_FORWARD, 300 * MIB);
    refuse(LOOP_FORWARD, 300 * MIB);
    headroom(1);
    cr_expect_eq(factor(), 0);
}

Test(headroom, of_a_run_that_recovered_is_not_told)
{
    step(true);
    refuse(LOOP_FORWARD, 2 * GIB);
    batch_bytes /= 2;
    step(false);
    step(false);
    cr_expect_not(headroom(0)->known);
    cr_expect_not_null(model->survey->devices[0].headroom.why);
}

Test(headroom, of_a_leak_is_not_told)
{
    for (int i = 0; i < 12; i++) {
        step(i == 0);
        born(LOOP_KEPT, 2 * MIB);
    }

    const struct ms_headroom *found = headroom(0);

    cr_assert_gt(model->survey->devices[0].growth.count, 0);
    cr_expect_not(found->known);
    cr_expect_not_null(found->why);
}

/* As of a model of many parameters with two samples: 32 times as many are lost in what stays. */
Test(headroom, what_hardly_follows_the_batch_foretells_none)
{
    const uint64_t near_cap = GIB - PARAMETERS - 128 * KIB;
    uint64_t activations[ACTIVATIONS];
    const struct ms_headroom *found;

    batch_bytes = 2 * KIB;
    born(LOOP_PARAMETER, near_cap);
    for (int i = 0; i < 3; i++) {
        forward(activations);
        died(born(LOOP_BACKWARD, batch_bytes), batch_bytes);
        for (int k = 0; k < ACTIVATIONS; k++) {
            died(activations[k], batch_bytes);
        }
    }
    found = headroom(0);
    cr_expect_not(found->known);
    cr_expect(found->flat);
    cr_expect_not_null(found->why);
}

/* It ran: its own batch is not told not to fit. */
Test(headroom, a_batch_that_ran_without_spilling_is_not_told_to_be_too_large)
{
    const struct ms_headroom *found;

    batch_bytes = 160 * MIB;
    step(true);
    step(false);
    step(false);
    found = headroom(0);
    cr_expect_not(found->known);
    cr_expect_not(found->flat);
    cr_expect_not_null(found->why);
}

Test(headroom, a_batch_that_spilled_is_told_how_much_of_it_would_have_fitted)
{
    const struct ms_headroom *found;

    batch_bytes = 160 * MIB;
    step(true);
    tell(MS_EVENT_SPILL, 1, LOOP_PARAMETER, PARAMETERS);
    step(false);
    step(false);
    found = headroom(0);
    cr_assert(found->known, "%s", found->why);
    cr_expect_float_eq(found->largest_factor, (1024.0 - 48) / (7 * 160), 0.001);
    expect_said("  fits   0.87 times this batch without memory on the host (~)");
}

/* ---- of segments alone ---- */

TestSuite(headroom_unseen, .init = begin_unseen, .fini = end);

/* What is free in segments is of the model's or of the batch's: in either case it counts for more
 * batch. */
Test(headroom_unseen, a_bound_leaves_out_what_is_free_in_segments)
{
    born(LOOP_FORWARD, 442 * MIB);
    hole_bytes = 40 * MIB;
    refuse(LOOP_FORWARD, 600 * MIB);
    headroom(1);
    cr_expect_float_eq(most(), (1024.0 - 128 - 16 + 40) / (442 + 600 - 40), 0.001, "%f", most());
}

/* Which part of a segment follows the batch is not seen. */
Test(headroom_unseen, no_batch_is_estimated)
{
    uint64_t activations[ACTIVATIONS];

    batch_bytes = 144 * MIB;
    forward(activations);
    born(LOOP_BACKWARD, batch_bytes);
    refuse(LOOP_BACKWARD, batch_bytes);
    headroom(1);
    cr_expect_eq(factor(), 0, "%f", factor());
    cr_expect_eq(least(), 0, "%f", least());
}
