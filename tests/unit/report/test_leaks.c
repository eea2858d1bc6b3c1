/* SPDX-License-Identifier: Apache-2.0 */
/* Leaks that kill, and what looks like them: loops that are made up, so that the truth is known. */
#include <criterion/criterion.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "loop.h"
#include "report/model/held_way.h"
#include "report/model/leaks.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/site_rows.h"
#include "report/model/survey/state.h"
#include "report/model/survey/take.h"
#include "report/model/verdict_report.h"
#include "report/render/answer.h"
#include "report/render/sites.h"
#include "report/trace/encoding.h"
#include "synthetic.h"

#define ACTIVATION (64 * MIB)
#define GRADIENT   (4 * MIB)
#define KEPT       (100 * MIB)

static ms_trace_t *trace;
static uint64_t next_id = 1, requested_bytes = ACTIVATION;
static struct ms_model *model;
static const struct ms_growth *growth;
static struct ms_judgement judgement;
static uint64_t hole_bytes; /* free in chunks when memory ran out, of no use */

static void define(void *ctx, uint32_t kind, const void *payload, size_t bytes)
{
    ms_trace_define(ctx, kind, payload, bytes);
}

static bool unseen; /* nothing is born in blocks */

/* On a worker of autograd, with a native stack alone. */
#define NATIVE_GRADIENT 60u

static void define_native(void)
{
    const struct ms_native_definition native = {.id = 1, .module = 1, .address = 0x1234};
    const struct ms_site_definition site = {
        .id = NATIVE_GRADIENT, .native = 1, .thread = MS_THREAD_BACKWARD};
    struct {
        struct ms_module_definition is;
        char path[32];
    } module = {.is = {.id = 1, .base = 0x1000, .bytes = 1 << 20}, .path = "/nowhere/libjob.so"};

    define(trace, MS_DEFINE_MODULE, &module, sizeof(module.is) + strlen(module.path));
    define(trace, MS_DEFINE_NATIVE, &native, sizeof(native));
    define(trace, MS_DEFINE_SITE, &site, sizeof(site));
}

static void begin_trace(void)
{
    const struct ms_event cap = {.kind = MS_EVENT_CAP, .bytes = 4 * GIB, .aux = 4 * GIB};

    loop_define(define, trace);
    define_native();
    ms_trace_emit(trace, &cap);
}

static void begin(void)
{
    trace = synthetic_open(synthetic_folder());
    begin_trace();
}

static void begin_blocks(const char *torch_mode)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    char note[256] = "";

    config.process.torch_mode = torch_mode;
    trace = ms_trace_open(&config, note, sizeof(note));
    cr_assert_not_null(trace, "%s", note);
    unseen = true;
    begin_trace();
}

/* Blocks are PyTorch's segments. */
static void begin_unseen(void)
{
    begin_blocks("off");
}

/* Blocks are its tensors. */
static void begin_tensor_mode(void)
{
    begin_blocks("tensor");
}

static void end(void)
{
    if (model) {
        ms_model_delete(model);
        model = NULL;
    }
}

TestSuite(leaks, .init = begin, .fini = end);

static uint64_t born(enum loop_site site, uint64_t bytes)
{
    const struct ms_event event = {.kind = unseen ? MS_EVENT_BLOCK_ALLOC : MS_EVENT_TENSOR_ALLOC,
                                   .id = next_id,
                                   .addr = next_id * GIB,
                                   .bytes = bytes,
                                   .site = site};

    ms_trace_emit(trace, &event);
    return next_id++;
}

static void died(uint64_t id, uint64_t bytes)
{
    const struct ms_event event = {
        .kind = MS_EVENT_TENSOR_FREE, .id = id, .addr = id * GIB, .bytes = bytes};

    ms_trace_emit(trace, &event);
}

/* A trace counts time in units of MS_TIME_UNIT_NS: what comes now has a later time than what came
 * before. */
static void pass_time(void)
{
    const uint64_t before_ns = ms_clock_ns();

    while (ms_clock_ns() - before_ns < 4 * MS_TIME_UNIT_NS) {
    }
}

/* A step that keeps nothing but the optimizer's state, which the first one makes. */
static void step(int number)
{
    pass_time();

    const uint64_t input = born(LOOP_INPUT, MIB);
    const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);
    const uint64_t gradient = born(LOOP_GRADIENT, GRADIENT);

    died(saved, ACTIVATION);
    if (number == 1) {
        born(LOOP_STATE, 2 * GRADIENT);
    }
    died(born(LOOP_UPDATE, GRADIENT), GRADIENT);
    died(gradient, GRADIENT);
    died(input, MIB);
}

/* The run is over: what was made of it. */
static void ends(int exit_status)
{
    char why[512] = "";

    ms_trace_close(trace, true, exit_status);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_model_survey(model, MS_SURVEY_SUMS);
    cr_assert_not_null(model->survey);
    growth = &model->survey->devices[0].growth;
}

/* The site asks for more than there is. */
static void dies_at(uint32_t site, uint64_t short_bytes)
{
    struct ms_oom_state state = synthetic_oom(requested_bytes, MS_OOM_TORCH);

    state.cap_bytes = state.device_total_bytes = 4 * GIB;
    state.charged_bytes = state.pool_bytes = 4 * GIB - requested_bytes + short_bytes;
    state.live_bytes = state.charged_bytes - hole_bytes;
    state.context_bytes = state.driver_free_bytes = 0;
    state.refused_bytes = requested_bytes;
    state.pinned_by = unseen ? MS_PINNED_BY_TORCH_OFF : state.pinned_by;
    state.site = site;
    ms_trace_oom(trace, 0, &state);
    ends(1);
    cr_assert_neq(ms_judged_fatal(model), SIZE_MAX);
    ms_judge(model, ms_judged_fatal(model), &judgement);
}

/* A forward in the next step asks for more than there is. */
static void dies(uint64_t short_bytes)
{
    born(LOOP_INPUT, MIB);
    born(LOOP_FORWARD, MIB);
    dies_at(LOOP_FORWARD, short_bytes);
}

static void expect_culprit(const char *function)
{
    cr_assert_geq(growth->leak_count, 1);
    cr_assert(growth->leaks[0].has_culprit);
    cr_expect_str_eq(growth->leaks[0].culprit.function, function);
}

/* The results of an evaluation are kept, with all that was computed for them. */
static void train_and_keep(int steps, int every)
{
    for (int number = 1; number <= steps; number++) {
        step(number);
        if (number % every == 0) {
            born(LOOP_EVALUATION, KEPT);
            born(LOOP_APPENDED, MIB);
        }
    }
    dies(MIB);
}

/* ---- degrees ---- */

Test(leaks, of_ten_steps_is_seen)
{
    train_and_keep(12, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_SEEN);
    cr_expect_eq(growth->leaks[0].all.bytes_per_round, (double)(KEPT + MIB));
    cr_expect_eq(strncmp(judgement.why, "growth: train.py in evaluate has kept", 37), 0, "%s",
                 judgement.why);
}

/* Two stacks lead to one line of the model, and one to a line that keeps more than each of them. */
Test(leaks, the_largest_is_the_line_with_most_of_all_its_stacks)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_EVALUATION, 40 * MIB);
        born(LOOP_FORWARD, 40 * MIB);
        born(LOOP_APPENDED, 60 * MIB);
    }
    dies(MIB);
    expect_culprit("train");
    cr_expect_eq(growth->leaks[0].largest_bytes_per_round, (double)(80 * MIB));
}

Test(leaks, that_kill_in_the_fifth_step_are_likely)
{
    train_and_keep(4, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_LIKELY);
    cr_expect_eq(growth->leaks[0].all.rounds, 4);
    cr_expect_eq(growth->leaks[0].bytes_each_time, KEPT + MIB);
    cr_expect_eq(growth->leaks[0].all.grown_bytes, 4 * (KEPT + MIB));
    cr_expect_eq(strncmp(judgement.why, "likely growth: train.py in evaluate has kept", 44), 0,
                 "%s", judgement.why);
}

Test(leaks, that_kill_in_the_third_step_are_likely)
{
    train_and_keep(2, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_LIKELY);
}

Test(leaks, of_one_step_are_none)
{
    train_and_keep(1, 1);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

Test(leaks, in_every_third_step)
{
    train_and_keep(10, 3);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
    cr_expect_eq(growth->leaks[0].all.rounds, 3);
}

/* ---- what is none ---- */

Test(leaks, a_step_that_is_too_large_is_none)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
    }
    born(LOOP_FORWARD, 2 * GIB);
    dies(MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

Test(leaks, what_ceased_is_none)
{
    for (int number = 1; number <= 7; number++) {
        step(number);
        if (number <= 3) {
            born(LOOP_KEPT, KEPT);
        }
    }
    dies(MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

/* The last so many results: a new one for an old one. */
Test(leaks, a_queue_of_some_length_is_none)
{
    uint64_t queue[4] = {0};

    for (int number = 1; number <= 16; number++) {
        step(number);
        if (queue[number % 4]) {
            died(queue[number % 4], KEPT);
        }
        queue[number % 4] = born(LOOP_KEPT, KEPT);
    }
    dies(MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

Test(leaks, of_what_is_made_anew_and_longer)
{
    uint64_t result = 0, result_bytes = 0;

    for (int number = 1; number <= 12; number++) {
        const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);

        if (result) {
            died(result, result_bytes);
        }
        result_bytes = (uint64_t)number * KEPT;
        result = born(LOOP_KEPT, result_bytes);

        const uint64_t gradient = born(LOOP_GRADIENT, GRADIENT);

        died(saved, ACTIVATION);
        died(born(LOOP_UPDATE, GRADIENT), GRADIENT);
        died(gradient, GRADIENT);
    }
    dies(MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("note_metrics");
}

/* Parts of a model that a program calls one after the other. */
Test(leaks, a_first_forward_is_none)
{
    for (int call = 0; call < 6; call++) {
        born(LOOP_FORWARD, KEPT);
        born(LOOP_INPUT, MIB);
    }
    dies(MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

/* ---- without steps ---- */

Test(leaks, of_a_model_that_is_only_called)
{
    for (int call = 0; call < 10; call++) {
        const uint64_t input = born(LOOP_INPUT, MIB);

        born(LOOP_EVALUATION, KEPT);
        died(input, MIB);
    }
    dies(MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("Net.forward");
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_LIKELY);
    cr_expect_eq(growth->leaks[0].all.round, MS_ROUND_CALL);
}

/* Each call's result is joined to those before it, and replaces them: keys and values of a search,
 * or the predictions of an evaluation. */
static void call_and_join(int calls, bool joins)
{
    uint64_t all = 0, all_bytes = 0;

    for (int call = 1; call <= calls; call++) {
        const uint64_t bytes = (joins ? (uint64_t)call : 1) * KEPT;
        const uint64_t input = born(LOOP_INPUT, MIB);

        died(born(LOOP_EVALUATION, ACTIVATION), ACTIVATION);

        const uint64_t joined = born(LOOP_KEPT, bytes);

        if (all) {
            died(all, all_bytes);
        }
        all = joined;
        all_bytes = bytes;
        died(input, MIB);
    }
    dies(MIB);
}

Test(leaks, of_what_each_call_makes_longer)
{
    call_and_join(12, true);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("note_metrics");
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_LIKELY);
    cr_expect_eq(growth->leaks[0].all.round, MS_ROUND_CALL);
    cr_expect_eq(growth->leaks[0].all.rounds, 12);
    cr_expect_eq(growth->leaks[0].all.grown_bytes, 12 * KEPT);
}

Test(leaks, of_what_each_call_of_an_evaluation_makes_longer)
{
    for (int number = 1; number <= 6; number++) {
        step(number);
    }
    call_and_join(12, true);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("note_metrics");
}

/* It dies where the next one is made: nothing of earlier calls is left but the last call's result.
 */
Test(leaks, of_what_is_made_longer_between_calls)
{
    uint64_t past = 0, past_bytes = 0;

    for (int call = 1; call <= 12; call++) {
        const uint64_t bytes = (uint64_t)call * KEPT;
        const uint64_t longer = born(LOOP_EVALUATION, bytes);

        if (past) {
            died(past, past_bytes);
        }
        past = born(LOOP_KEPT, bytes);
        past_bytes = bytes;
        died(longer, bytes);
    }
    died(born(LOOP_EVALUATION, 13 * KEPT), 13 * KEPT);
    died(past, past_bytes);
    born(LOOP_KEPT, 12 * KEPT);
    dies_at(LOOP_KEPT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("note_metrics");
}

Test(leaks, what_few_calls_make_longer_is_none)
{
    call_and_join(6, true);
    cr_expect_eq(growth->leak_count, 0);
}

Test(leaks, what_each_call_makes_anew_and_no_longer_is_none)
{
    call_and_join(12, false);
    cr_expect_eq(growth->leak_count, 0);
}

/* Training goes on after an evaluation, and of its calls all is there still. */

static void evaluate(int calls)
{
    for (int call = 0; call < calls; call++) {
        born(LOOP_EVALUATION, KEPT);
        died(born(LOOP_INPUT, MIB), MIB);
    }
}

Test(leaks, of_the_first_evaluation)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
    }
    evaluate(3);
    dies(MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_LIKELY);
    cr_expect_eq(growth->leaks[0].all.rounds, 3);
}

Test(leaks, of_an_evaluation_that_goes_on_is_none)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
    }
    evaluate(3);
    born(LOOP_EVALUATION, MIB);
    dies_at(LOOP_EVALUATION, MIB);
    cr_expect_eq(growth->leak_count, 0);
}

/* Teachers are called in each step, and their results go with it. */
Test(leaks, of_what_each_step_calls_first_is_none)
{
    for (int number = 1; number <= 4; number++) {
        uint64_t taught[2];

        for (int call = 0; call < 2; call++) {
            taught[call] = born(LOOP_TEACHER, KEPT);
            died(born(LOOP_INPUT, MIB), MIB);
        }
        step(number);
        died(taught[0], KEPT);
        died(taught[1], KEPT);
    }
    for (int call = 0; call < 2; call++) {
        born(LOOP_TEACHER, KEPT);
        died(born(LOOP_INPUT, MIB), MIB);
    }
    dies(MIB);
    cr_expect_eq(growth->leak_count, 0);
}

/* ---- which line it is ---- */

/* A loop within a function that is called once, and whose inputs are kept with the graphs: nine
 * parts and seven. */
Test(leaks, the_line_that_called_the_loop_is_none)
{
    born(LOOP_IN_MAIN, GRADIENT);
    for (int call = 0; call < 10; call++) {
        born(LOOP_IN_MAIN_INPUT, 70 * MIB);
        born(LOOP_IN_MAIN_MODEL, 90 * MIB);
    }
    dies_at(LOOP_IN_MAIN_MODEL, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("Net.forward");
}

/* The same where nothing tells that main was called once: its caller is as near as one can say. */
Test(leaks, what_joins_in_a_caller_that_may_be_the_loop)
{
    for (int call = 0; call < 10; call++) {
        born(LOOP_IN_MAIN_INPUT, 70 * MIB);
        born(LOOP_IN_MAIN_MODEL, 90 * MIB);
    }
    dies_at(LOOP_IN_MAIN_MODEL, MIB);
    expect_culprit("<module>");
}

/* All that a call of the model asks for stays: the graph, so by who called it. */
Test(leaks, of_a_graph_the_line_is_who_called_the_model)
{
    for (int number = 1; number <= 10; number++) {
        step(number);
        born(LOOP_FORWARD, KEPT);
        born(LOOP_GATHERED, MIB);
        died(born(LOOP_PACKAGE, MIB), MIB);
    }
    dies(MIB);
    expect_culprit("train");
}

/* The model gives back most of what it asks for: it keeps the rest itself. */
Test(leaks, of_one_tensor_the_line_is_the_models)
{
    for (int number = 1; number <= 10; number++) {
        const uint64_t other = born(LOOP_GATHERED, 2 * KEPT);

        step(number);
        born(LOOP_FORWARD, KEPT);
        died(other, 2 * KEPT);
    }
    dies(MIB);
    expect_culprit("Net.forward");
}

/* A function that the model calls keeps it, and allocates nothing else. */
Test(leaks, of_one_tensor_the_line_is_that_of_the_function_that_keeps)
{
    for (int number = 1; number <= 10; number++) {
        const uint64_t other = born(LOOP_FORWARD, 2 * KEPT);

        step(number);
        born(LOOP_REMEMBERED, KEPT);
        died(other, 2 * KEPT);
    }
    dies(MIB);
    expect_culprit("Bank.add");
}

/* What a worker of autograd asked for was asked for by who called autograd. */
Test(leaks, of_gradients)
{
    for (int number = 1; number <= 4; number++) {
        const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);

        died(born(LOOP_CALL_GRADIENT, 512), 512);
        born(LOOP_GRADIENT, KEPT);
        died(saved, ACTIVATION);
        died(born(LOOP_INPUT, MIB), MIB);
    }
    dies(MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("accumulate");
    cr_assert_eq(growth->leaks[0].caller_count, 1);
    cr_expect_str_eq(growth->leaks[0].callers[0].function, "<module>");
}

/* Who called autograd may have asked for nothing himself: then it is who asked for memory last. */
Test(leaks, of_gradients_whose_caller_asked_for_nothing)
{
    died(born(LOOP_CALL_BACKWARD, 512), 512);
    for (int number = 1; number <= 4; number++) {
        const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);

        died(born(LOOP_IN_MAIN, 512), 512);
        born(LOOP_GRADIENT, KEPT);
        died(saved, ACTIVATION);
        died(born(LOOP_INPUT, MIB), MIB);
    }
    dies(MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("main");
}

/* One operation of autograd's, asked for by two: of one of them all is kept, of the other none. */
Test(leaks, of_gradients_that_one_of_two_callers_keeps)
{
    for (int number = 1; number <= 4; number++) {
        const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);

        died(born(LOOP_CALL_GRADIENT, 512), 512);
        born(LOOP_GRADIENT, KEPT);
        died(born(LOOP_CALL_BACKWARD, 512), 512);
        died(born(LOOP_GRADIENT, GRADIENT), GRADIENT);
        died(saved, ACTIVATION);
        died(born(LOOP_INPUT, MIB), MIB);
    }
    dies(MIB);
    expect_culprit("accumulate");
}

/* ---- in other people's loops ---- */

static void expect_line(enum loop_site site, const char *line)
{
    struct ms_buffer text = {0};

    ms_site_add_line(model, site, &text);
    ms_buffer_append(&text, "", 1);
    cr_expect_str_eq(text.at, line);
    ms_buffer_free(&text);
}

/* Of a model that was installed the line is the model's, of all else that of who called it. */
Test(leaks, in_a_package)
{
    struct ms_held_line held;

    for (int number = 1; number <= 4; number++) {
        step(number);
        born(LOOP_PACKAGE, KEPT);
        died(born(LOOP_PACKAGE_UPDATE, KEPT), KEPT);
    }
    dies(MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("main");
    cr_expect_eq(growth->leaks[0].all.site, LOOP_PACKAGE);
    expect_line(LOOP_PACKAGE, "models.py in Attention.forward");
    expect_line(LOOP_PACKAGE_UPDATE, "train.py in main");
    expect_line(LOOP_FORWARD, "net.py in Net.forward");

    const struct ms_survey_moment *moment =
        ms_survey_oom_moment(&model->survey->devices[0], ms_judged_fatal(model));

    cr_assert_eq(ms_held_lines(model, 0, moment, MS_KIND_COUNT, &held, 1), 1);
    cr_expect_str_eq(held.text.at, "models.py in Attention.forward, from train.py in main");
    ms_held_lines_free(&held, 1);
}

/* ---- what is live, and by way of whom ---- */

static const struct ms_survey_moment *moment_of_death(void)
{
    return ms_survey_oom_moment(&model->survey->devices[0], ms_judged_fatal(model));
}

/* The lines of the answer, as report.txt has them, have this among them. */
static void expect_said(const char *words)
{
    struct ms_buffer text = {0};

    ms_answer_text(&text, model);
    ms_buffer_append(&text, "", 1);
    cr_expect_not_null(strstr(text.at, words), "no %s in\n%s", words, text.at);
    ms_buffer_free(&text);
}

/* What it had still to make is told as it is. */
Test(leaks, in_the_optimizer_of_the_first_step_gradients_are_there)
{
    born(LOOP_PARAMETER, GRADIENT);
    born(LOOP_INPUT, MIB);
    died(born(LOOP_FORWARD, ACTIVATION), ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    born(LOOP_STATE, GRADIENT);
    dies_at(LOOP_STATE, MIB);
    expect_said("this was the first step, and the optimizer had not yet created all of its state");
}

/* The step that died had a backward pass as well: the one before did not have two. */
Test(leaks, passes_of_a_step_that_died_are_not_of_the_steps_before)
{
    step(1);
    born(LOOP_INPUT, MIB);
    born(LOOP_FORWARD, ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    dies_at(LOOP_GRADIENT, MIB);
    expect_said("  steps  1, 2 backward passes in all");
}

/* One step of many is too large: what is different in it is worth a look. */
Test(leaks, a_step_that_is_larger_than_those_before)
{
    for (int number = 1; number <= 10; number++) {
        step(number);
    }
    born(LOOP_FORWARD, 3 * GIB);
    dies(MIB);
    cr_expect_eq(judgement.past_steps, 9);
    expect_said("  until  this step at most 77.0 MiB were live, over 9 steps; this one needs at "
                "least ");
}

Test(leaks, a_step_that_is_like_those_before)
{
    born(LOOP_PARAMETER, 3 * GIB);
    for (int number = 1; number <= 10; number++) {
        step(number);
    }
    dies(MIB);
    cr_expect_eq(judgement.past_steps, 0);
}

/* No batch is small enough for a model that does not fit. */
Test(leaks, a_model_that_is_too_large_is_not_told_to_make_its_batch_smaller)
{
    born(LOOP_PARAMETER, 2 * GIB);
    born(LOOP_FORWARD, 16 * MIB);
    died(born(LOOP_CALL_GRADIENT, 512), 512);
    born(LOOP_GRADIENT, GIB);
    dies_at(LOOP_GRADIENT, MIB);
    cr_expect(judgement.of_the_model);
    expect_said("  next   a smaller model, ");
}

/* A data set, before anything was computed: no batch makes it smaller. */
Test(leaks, what_one_line_made_before_any_call_is_to_be_less_at_once)
{
    born(LOOP_PARAMETER, MIB);
    for (int number = 0; number < 10; number++) {
        born(LOOP_KEPT, KEPT);
    }
    dies_at(LOOP_KEPT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_DEMAND);
    expect_said("  next   hold less of that at once");
}

Test(leaks, what_one_line_made_for_a_call_is_not)
{
    for (int number = 0; number < 10; number++) {
        born(LOOP_KEPT, KEPT);
    }
    dies(MIB);
    expect_said("  next   a smaller batch or shape");
}

Test(leaks, a_batch_that_is_too_large_is)
{
    born(LOOP_PARAMETER, 2 * GIB);
    born(LOOP_FORWARD, GIB);
    died(born(LOOP_CALL_GRADIENT, 512), 512);
    born(LOOP_GRADIENT, 512 * MIB);
    dies_at(LOOP_GRADIENT, MIB);
    cr_expect_not(judgement.of_the_model);
    expect_said("  next   a smaller batch or shape");
}

Test(leaks, one_tensor_that_is_most_of_the_device_is_what_to_make_smaller)
{
    born(LOOP_PARAMETER, MIB);
    requested_bytes = 3 * GIB;
    dies_at(LOOP_INPUT, MIB);
    expect_said("  next   a smaller batch or shape for that one tensor");
}

/* Input, model and evaluation hold as much as each other: none of them is the line to name. */
Test(leaks, the_way_is_the_line_that_called_all_of_them)
{
    struct ms_held_way way;

    born(LOOP_PARAMETER, 8 * MIB);
    born(LOOP_INPUT, KEPT);
    born(LOOP_FORWARD, KEPT);
    born(LOOP_EVALUATION, KEPT);
    dies_at(LOOP_FORWARD, MIB);
    cr_assert(ms_held_way(model, 0, moment_of_death(), &way));
    cr_expect_str_eq(way.frame.function, "train");
    cr_expect_eq(way.bytes, 3 * KEPT);
    expect_said("  holds  300.0 MiB (97.4 % of live) by way of train.py in train\n");
}

Test(leaks, the_way_goes_as_deep_as_most_of_it)
{
    struct ms_held_way way;

    born(LOOP_INPUT, KEPT);
    born(LOOP_EVALUATION, KEPT);
    born(LOOP_APPENDED, KEPT);
    dies_at(LOOP_FORWARD, MIB);
    cr_assert(ms_held_way(model, 0, moment_of_death(), &way));
    cr_expect_str_eq(way.frame.function, "evaluate");
    cr_expect_eq(way.bytes, 2 * KEPT);
}

Test(leaks, there_is_no_way_where_all_came_by_it)
{
    struct ms_held_way way;

    born(LOOP_INPUT, KEPT);
    born(LOOP_FORWARD, KEPT);
    born(LOOP_EVALUATION, KEPT);
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_not(ms_held_way(model, 0, moment_of_death(), &way), "it would be main");
}

/* train asked for 200 MiB itself, and by way of others for 50: it comes first once. */
Test(leaks, the_way_is_not_said_twice)
{
    struct ms_held_way way;

    born(LOOP_PARAMETER, 8 * MIB);
    born(LOOP_INPUT, 2 * KEPT);
    born(LOOP_FORWARD, KEPT / 2);
    dies_at(LOOP_FORWARD, MIB);
    cr_assert(ms_held_way(model, 0, moment_of_death(), &way));
    expect_said("  holds  200.0 MiB (77.5 % of live) train.py in train   ");
}

Test(leaks, there_is_no_way_where_one_line_has_most)
{
    struct ms_held_way way;

    born(LOOP_PARAMETER, 8 * MIB);
    born(LOOP_KEPT, KEPT);
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_not(ms_held_way(model, 0, moment_of_death(), &way), "the line itself says it");
}

Test(leaks, of_autograds_threads_the_line_is_who_called_autograd)
{
    born(LOOP_PARAMETER, 8 * MIB);
    died(born(LOOP_CALL_GRADIENT, 512), 512);
    /* A checkpointed part is computed again: its Python did not call autograd. */
    died(born(LOOP_RECOMPUTED, ACTIVATION), ACTIVATION);
    born(LOOP_GRADIENT, KEPT);
    dies_at(NATIVE_GRADIENT, MIB);
    cr_expect_eq(moment_of_death()->backward_site, LOOP_CALL_GRADIENT);
    expect_said(", backward called by train.py in accumulate\n");
}

/* ---- beside another reason ---- */

Test(leaks, that_do_not_cover_what_is_short_are_told_beside)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
        born(LOOP_KEPT, 8 * MIB);
    }
    dies(60 * MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_DEMAND);
    expect_culprit("note_metrics");
    cr_expect_not_null(strstr(judgement.beside, "likely growth: train.py in note_metrics"), "%s",
                       judgement.beside);
}

/* 8 MiB by growth, where 60 were short, and 4 GiB are in use. */
/* Bytes enough are free, in holes: of these or of what grew the reason is what is more. */
Test(leaks, that_are_less_than_the_holes_are_told_beside)
{
    hole_bytes = 2 * GIB;
    train_and_keep(4, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_FRAGMENTATION);
    cr_expect_neq(judgement.beside[0], '\0');
}

Test(leaks, that_are_more_than_the_holes_are_the_reason)
{
    hole_bytes = GIB / 4;
    train_and_keep(4, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
}

/* The holes were there in each step. */
Test(leaks, that_were_seen_are_the_reason_beside_holes)
{
    hole_bytes = 2 * GIB;
    train_and_keep(12, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
}

Test(leaks, that_are_a_small_part_of_what_is_short_are_not_told)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
        born(LOOP_KEPT, 2 * MIB);
    }
    dies(60 * MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_DEMAND);
    cr_expect_eq(judgement.beside[0], '\0');
    cr_expect_null(judgement.leak);
}

/* A loss that is kept, in a run that fills its cap to the last MiB and ends well. */
Test(leaks, that_are_negligible_at_the_edge_of_the_cap_are_not_told)
{
    const uint64_t filled = 4 * GIB - ACTIVATION - 4 * GRADIENT;
    const struct ms_event chunk = {.kind = MS_EVENT_CHUNK_CREATE,
                                   .owner = MS_OWNER_POOL,
                                   .id = 1,
                                   .bytes = 4 * GIB - MIB,
                                   .aux = MS_LOCATION_DEVICE};

    ms_trace_emit(trace, &chunk);
    born(LOOP_PARAMETER, filled);
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_KEPT, 512);
    }
    ends(0);
    cr_assert_eq(growth->leak_count, 1);
    cr_expect_neq(growth->leaks[0].all.cap_at_step, 0);
    cr_expect(growth->leaks[0].negligible, "%zu B, cap at %zu",
              (size_t)growth->leaks[0].all.grown_bytes, (size_t)growth->leaks[0].all.cap_at_step);
}

Test(leaks, that_are_negligible_are_not_told)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
        born(LOOP_KEPT, 9000);
    }
    dies(10000);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(judgement.beside[0], '\0');
    cr_assert_eq(growth->leak_count, 1);
    cr_expect(growth->leaks[0].negligible);
}

/* ---- of segments alone ---- */

TestSuite(leaks_unseen, .init = begin_unseen, .fini = end);

/* Two lines call models in turn: so a loop turned, and a steady one needs no more segments. */
Test(leaks_unseen, segments_that_a_loop_asks_for_again_are_likely)
{
    for (int turn = 0; turn < 3; turn++) {
        born(LOOP_TEACHER, 2 * MIB);
        born(LOOP_FORWARD, KEPT);
    }
    for (int more = 0; more < 12; more++) {
        born(LOOP_FORWARD, KEPT);
    }
    hole_bytes = KEPT;
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_assert_geq(growth->leak_count, 1);
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_LIKELY);
    expect_said("likely growth: net.py in Net.forward has asked for 116.7 MiB more in segments on "
                "each of 12 occasions");
    expect_said("; which line keeps what is in them is not known");
    expect_said("run without MEMSHIM_TORCH=off to see its line");
}

/* The line that asks for segments keeps nothing that is known. */
Test(leaks_unseen, segments_that_grow_in_a_good_run_are_told_as_such)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_EVALUATION, KEPT);
    }
    ends(0);
    expect_said("  GROWS  train.py in evaluate: 100.0 MiB more every step");
    expect_said("this line only asked for the segments");
}

/* One call of a model with many layers does the same as a loop that keeps their results. */
Test(leaks_unseen, segments_of_one_call_may_be_growth_or_not)
{
    for (int layer = 0; layer < 20; layer++) {
        born(LOOP_FORWARD, KEPT);
    }
    hole_bytes = KEPT;
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_FRAGMENTATION);
    cr_expect_eq(growth->leak_count, 0);
    expect_said("  also   1.95 GiB are in 20 segments that were asked for one by one");
    expect_said("  holds  1.95 GiB (100.0 % of live) net.py in Net.forward   segments\n");
}

Test(leaks_unseen, segments_of_many_lines_are_none)
{
    born(LOOP_INPUT, 3 * KEPT);
    born(LOOP_TEACHER, 3 * KEPT);
    born(LOOP_EVALUATION, 3 * KEPT);
    for (int layer = 0; layer < 7; layer++) {
        born(LOOP_FORWARD, KEPT);
    }
    hole_bytes = KEPT;
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_FRAGMENTATION);
    cr_expect_eq(judgement.repeated.segments, 0);
}

/* A cache that falls to pieces grows, too: then most of what grew lies in holes. */
Test(leaks_unseen, segments_with_more_in_holes_than_grew_are_fragmentation)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_EVALUATION, KEPT);
    }
    hole_bytes = 2 * GIB;
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_eq(growth->leaks[0].all.degree, MS_GROWTH_SEEN);
    cr_expect_eq(judgement.verdict, MS_VERDICT_FRAGMENTATION);
}

/* PyTorch's cache takes some steps to be as large as it stays: the optimizer's state takes what the
 * first one had, and the second asks anew. */
static void warm_up(int passes)
{
    for (int pass = 0; pass < passes; pass++) {
        born(LOOP_INPUT, MIB);
        for (int layer = 0; layer < 12; layer++) {
            born(LOOP_FORWARD, 16 * MIB);
        }
        born(LOOP_GRADIENT, 16 * MIB);
    }
}

Test(leaks_unseen, segments_of_the_first_passes_are_none)
{
    warm_up(3);
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

Test(leaks_unseen, segments_of_pass_after_pass_are_likely)
{
    warm_up(5);
    dies_at(LOOP_INPUT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
}

/* A second pass asks for as much as the first, in as many pieces. */
Test(leaks_unseen, segments_of_a_second_pass_like_the_first_are_none)
{
    warm_up(1);
    died(born(LOOP_STATE, MIB), MIB);
    for (int layer = 0; layer < 12; layer++) {
        born(LOOP_FORWARD, 16 * MIB);
    }
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

Test(leaks_unseen, segments_of_many_more_calls_than_a_pass_has_are_likely)
{
    warm_up(1);
    for (int call = 0; call < 30; call++) {
        born(LOOP_FORWARD, 16 * MIB);
    }
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
}

static void expect_steps_said(const char *words)
{
    struct ms_buffer text = {0};

    model->recurrence.known = true;
    ms_text_add_steps(&text, model);
    ms_buffer_append(&text, "", 1);
    cr_expect_not_null(strstr(text.at, words), "no %s in %s", words, text.at);
    ms_buffer_free(&text);
}

/* Steps that end with the first segments are no clock for a run that went on for long. */
static bool is_told_over_time(uint64_t ran_ns)
{
    static struct ms_growth told;

    told = (struct ms_growth){0};
    model->recurrence.known = true;
    model->recurrence.count = 2;
    model->duration_ns = ran_ns;
    ms_survey_set_clock(model, &told);
    return told.clock.by_time;
}

Test(leaks_unseen, steps_of_the_first_segments_are_no_clock_of_a_long_run)
{
    warm_up(2);
    ends(0);
    expect_steps_said("; without tensors, there may have been more)\n");
    cr_expect(is_told_over_time(MS_GROWTH_TIME_NS));
    cr_expect_not(is_told_over_time(MS_GROWTH_TIME_NS - 1));
}

Test(leaks, steps_of_tensors_are_the_clock_of_a_long_run)
{
    warm_up(2);
    ends(0);
    cr_expect_not(is_told_over_time(MS_GROWTH_TIME_NS));
}

/* ---- of tensors that are blocks ---- */

TestSuite(leaks_tensor_mode, .init = begin_tensor_mode, .fini = end);

Test(leaks_tensor_mode, that_kill_in_the_third_step_are_likely)
{
    train_and_keep(2, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
}

Test(leaks_tensor_mode, a_second_pass_with_many_more_layers_is_none)
{
    step(1);
    for (int layer = 0; layer < 30; layer++) {
        born(LOOP_FORWARD, 16 * MIB);
    }
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}
