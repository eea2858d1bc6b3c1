/* SPDX-License-Identifier: Apache-2.0 */
/* Leaks that kill, and what looks like them: loops that are made up, so that the truth is known. */
#include <criterion/criterion.h>

#include "dying.h"
#include "report/model/site_rows.h"
#include "report/model/verdict/held_lines.h"

TestSuite(leaks, .init = begin, .fini = end);

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

/* ---- compiled ---- */

/* A compiled backward pass has Python frames, and none of them is the program's. */
Test(leaks, of_a_compiled_backward_pass_are_of_who_called_it)
{
    for (int number = 1; number <= 4; number++) {
        const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);

        died(born(LOOP_CALL_GRADIENT, 512), 512);
        born(LOOP_COMPILED_BACKWARD, KEPT);
        died(saved, ACTIVATION);
        died(born(LOOP_INPUT, MIB), MIB);
    }
    dies(MIB);
    expect_culprit("accumulate");
    expect_line(LOOP_COMPILED_BACKWARD,
                "a graph of torch.compile, <eval_with_key>.5 in forward, backward");
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
