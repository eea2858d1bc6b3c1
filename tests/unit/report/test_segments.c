/* SPDX-License-Identifier: Apache-2.0 */
/* Growth where the trace has no tensors, or where tensors are blocks. */
#include <criterion/criterion.h>

#include "dying.h"
#include "report/render/text/parts.h"

TestSuite(segments, .init = begin_unseen, .fini = end);

/* Two lines call models in turn: so a loop turned, and a steady one needs no more segments. */
Test(segments, that_a_loop_asks_for_again_are_likely)
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
    expect_said(
        "likely growth: net.py in Net.forward has asked for 116.7 MiB more in segments with "
        "each of 12 calls of a model");
    expect_said("; which line keeps what is in them is not known");
    expect_said("run without MEMSHIM_TORCH=off to see its line");
}

/* The line that asks for segments keeps nothing that is known. */
Test(segments, that_grow_in_a_good_run_are_told_as_such)
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
Test(segments, of_one_call_may_be_growth_or_not)
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

Test(segments, of_many_lines_are_none)
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
Test(segments, with_more_in_holes_than_grew_are_fragmentation)
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

Test(segments, of_the_first_passes_are_none)
{
    warm_up(3);
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

/* Whatever asks when the cache is full: here a backward pass, whose gradients are let go of. */
static void ask_in_backward_passes(int segments)
{
    born(LOOP_PARAMETER, 16 * MIB);
    born(LOOP_FORWARD, 16 * MIB);
    for (int number = 0; number < segments; number++) {
        born(LOOP_GRADIENT, 20 * MIB);
    }
    hole_bytes = 12 * MIB;
    dies_at(LOOP_GRADIENT, MIB);
}

Test(segments, of_more_than_a_step_needs_are_likely)
{
    ask_in_backward_passes(40);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(judgement.step, 0, "which one it was is not seen");
    expect_said(" has asked for 20.0 MiB more in segments 40 times, 800.0 MiB in all; only likely, "
                "as only the amount shows it: no one step needs so much; which line keeps ");
}

Test(segments, that_one_backward_pass_may_need_are_none)
{
    ask_in_backward_passes(12);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}

Test(segments, of_pass_after_pass_are_likely)
{
    warm_up(5);
    dies_at(LOOP_INPUT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
}

/* A second pass asks for as much as the first, in as many pieces. */
Test(segments, of_a_second_pass_like_the_first_are_none)
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

Test(segments, of_many_more_calls_than_a_pass_has_are_likely)
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

Test(segments, steps_of_the_first_segments_are_no_clock_of_a_long_run)
{
    warm_up(2);
    ends(0);
    expect_steps_said("; without tensors, there may have been more)\n");
    cr_expect(is_told_over_time(MS_GROWTH_TIME_NS));
    cr_expect_not(is_told_over_time(MS_GROWTH_TIME_NS - 1));
}

Test(tensors, steps_are_the_clock_of_a_long_run, .init = begin, .fini = end)
{
    warm_up(2);
    ends(0);
    cr_expect_not(is_told_over_time(MS_GROWTH_TIME_NS));
}

/* ---- of tensors that are blocks ---- */

TestSuite(tensor_blocks, .init = begin_tensor_mode, .fini = end);

Test(tensor_blocks, that_kill_in_the_third_step_are_likely)
{
    train_and_keep(2, 1);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_culprit("evaluate");
}

Test(tensor_blocks, a_second_pass_with_many_more_layers_is_none)
{
    step(1);
    for (int layer = 0; layer < 30; layer++) {
        born(LOOP_FORWARD, 16 * MIB);
    }
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_neq(judgement.verdict, MS_VERDICT_GROWTH);
    cr_expect_eq(growth->leak_count, 0);
}
