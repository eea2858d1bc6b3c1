/* SPDX-License-Identifier: Apache-2.0 */
/* What is live when memory runs out, and the line by way of which most of it came. */
#include <criterion/criterion.h>

#include "dying.h"
#include "report/model/verdict/held_lines.h"
#include "report/model/verdict/held_way.h"
#include "report/render/text/parts.h"

TestSuite(held, .init = begin, .fini = end);

/* What it had still to make is told as it is. */
Test(held, in_the_optimizer_of_the_first_step_gradients_are_there)
{
    born(LOOP_PARAMETER, GRADIENT);
    born(LOOP_INPUT, MIB);
    died(born(LOOP_FORWARD, ACTIVATION), ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    born(LOOP_STATE, GRADIENT);
    dies_at(LOOP_STATE, MIB);
    expect_said("this was the first step, and the optimizer had not yet created all of its state");
    expect_said("  steps  0 completed; 1 backward pass, step 1's included");
}

/* A checkpoint's weights were copied into the model, and the optimizer took its state over. */
Test(held, a_checkpoint_that_is_there_twice)
{
    born(LOOP_PARAMETER, GRADIENT);
    born(LOOP_LOADED, 3 * GRADIENT);
    born(LOOP_INPUT, MIB);
    died(born(LOOP_FORWARD, ACTIVATION), ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    dies_at(LOOP_UPDATE, MIB);
    expect_said(
        "  next   load the checkpoint onto the host (map_location=\"cpu\"), and let go of it "
        "once the model has copied it: 12.0 MiB of the live bytes, more than was short, "
        "were loaded from a file at train.py in <module>; or a smaller model, ");
    expect_not_said("the optimizer had not yet created all of its state");
}

/* Without it, the request would have failed as well. */
Test(held, a_checkpoint_that_is_less_than_was_short_comes_second)
{
    born(LOOP_PARAMETER, GRADIENT);
    born(LOOP_LOADED, 3 * GRADIENT);
    died(born(LOOP_FORWARD, ACTIVATION), ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    dies_at(LOOP_UPDATE, 4 * GRADIENT);
    expect_said("  next   a smaller model, ");
    expect_said(" of the live bytes were loaded from a file at train.py in <module>: if the model "
                "has copied them, load onto the host");
}

/* The step that died had a backward pass as well: the one before did not have two. */
Test(held, passes_of_a_step_that_died_are_not_of_the_steps_before)
{
    step(1);
    born(LOOP_INPUT, MIB);
    born(LOOP_FORWARD, ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    dies_at(LOOP_GRADIENT, MIB);
    expect_said("OUT OF MEMORY in step 2 (1 completed), after ");
    expect_said("  steps  1 completed; 2 backward passes, step 2's included");
}

/* Of a loop whose optimizer allocates nothing only the beginnings of steps are seen. */
Test(held, steps_that_only_began_are_not_completed)
{
    for (int number = 1; number <= 4; number++) {
        const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);
        const uint64_t gradient = born(LOOP_GRADIENT, GRADIENT);

        died(saved, ACTIVATION);
        died(gradient, GRADIENT);
    }
    born(LOOP_FORWARD, ACTIVATION);
    born(LOOP_GRADIENT, GRADIENT);
    dies_at(LOOP_GRADIENT, MIB);
    expect_not_said(" completed)");
    expect_said("OUT OF MEMORY in step 5, ");
    expect_said("  steps  5 begun ");
}

/* One step of many is too large: what is different in it is worth a look. */
Test(held, a_step_that_is_larger_than_those_before)
{
    for (int number = 1; number <= 10; number++) {
        step(number);
    }
    born(LOOP_FORWARD, 3 * GIB);
    dies(MIB);
    cr_expect_eq(judgement.past_steps, 9);
    expect_said(
        "  before at most 77.0 MiB were live in any of steps 1 to 9; step 11 needs at least ");
}

/* No step stands out: the next one would need more still. */
Test(held, steps_that_need_more_each_time)
{
    for (int number = 1; number <= 10; number++) {
        const uint64_t bytes = (uint64_t)number * 2 * ACTIVATION;

        step(number);
        died(born(LOOP_FORWARD, bytes), bytes);
    }
    requested_bytes = 22 * ACTIVATION;
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_eq(judgement.rising_since_step, 1);
    cr_expect_eq(judgement.rising_to_step, 9);
    expect_said("  before each of steps 1 to 9 needed more than all before it, from ");
    expect_not_said("look for what is different in it");
}

Test(held, a_step_that_is_like_those_before)
{
    born(LOOP_PARAMETER, 3 * GIB);
    for (int number = 1; number <= 10; number++) {
        step(number);
    }
    dies(MIB);
    cr_expect_eq(judgement.past_steps, 0);
}

/* No batch is small enough for a model that does not fit. */
Test(held, a_model_that_is_too_large_is_not_told_to_make_its_batch_smaller)
{
    born(LOOP_PARAMETER, 2 * GIB);
    born(LOOP_FORWARD, 16 * MIB);
    died(born(LOOP_CALL_GRADIENT, 512), 512);
    born(LOOP_GRADIENT, GIB);
    dies_at(LOOP_GRADIENT, MIB);
    cr_expect(judgement.of_the_model);
    expect_said("  next   a smaller model, ");
}

/* Nor for a model and a copy of its weights, which an average of them keeps. */
Test(held, what_an_object_took_when_it_was_made_does_not_follow_the_batch)
{
    born(LOOP_PARAMETER, GIB);
    born(LOOP_AVERAGE, GIB);
    died(born(LOOP_FORWARD, 16 * MIB), 16 * MIB);
    born(LOOP_GRADIENT, GIB);
    born(LOOP_STATE, 512 * MIB);
    dies_at(LOOP_STATE, MIB);
    cr_expect(judgement.of_the_model);
    expect_said("  next   a smaller model, ");
}

/* A buffer of samples beside a small model: its size is the program's choice. */
Test(held, an_object_that_is_more_than_the_model_is_none_of_it)
{
    born(LOOP_PARAMETER, 256 * MIB);
    born(LOOP_AVERAGE, 3 * GIB);
    died(born(LOOP_FORWARD, 16 * MIB), 16 * MIB);
    born(LOOP_GRADIENT, 256 * MIB);
    dies_at(LOOP_STATE, MIB);
    cr_expect_not(judgement.of_the_model);
}

/* A data set, before anything was computed: no batch makes it smaller. */
Test(held, what_one_line_made_before_any_call_is_to_be_less_at_once)
{
    born(LOOP_PARAMETER, MIB);
    for (int number = 0; number < 10; number++) {
        born(LOOP_KEPT, KEPT);
    }
    dies_at(LOOP_KEPT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_DEMAND);
    expect_said("  next   hold less of that at once");
}

Test(held, what_one_line_made_for_a_call_is_not)
{
    for (int number = 0; number < 10; number++) {
        born(LOOP_KEPT, KEPT);
    }
    dies(MIB);
    expect_said("  next   a smaller batch or shape");
}

Test(held, a_batch_that_is_too_large_is)
{
    born(LOOP_PARAMETER, 2 * GIB);
    born(LOOP_FORWARD, GIB);
    died(born(LOOP_CALL_GRADIENT, 512), 512);
    born(LOOP_GRADIENT, 512 * MIB);
    dies_at(LOOP_GRADIENT, MIB);
    cr_expect_not(judgement.of_the_model);
    expect_said("  next   a smaller batch or shape");
}

Test(held, one_tensor_that_is_most_of_the_device_is_what_to_make_smaller)
{
    born(LOOP_PARAMETER, MIB);
    requested_bytes = 3 * GIB;
    dies_at(LOOP_INPUT, MIB);
    expect_said("  next   a smaller batch or shape for that one tensor");
}

/* Input, model and evaluation hold as much as each other: none of them is the line to name. */
Test(held, the_way_is_the_line_that_called_all_of_them)
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
    expect_said("  holds  300.0 MiB (97.4 % of live) in calls from train.py in train; of all "
                "that is live:\n");
}

Test(held, the_way_goes_as_deep_as_most_of_it)
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

Test(held, there_is_no_way_where_all_came_by_it)
{
    struct ms_held_way way;

    born(LOOP_INPUT, KEPT);
    born(LOOP_FORWARD, KEPT);
    born(LOOP_EVALUATION, KEPT);
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_not(ms_held_way(model, 0, moment_of_death(), &way), "it would be main");
}

/* train asked for 200 MiB itself, and by way of others for 50: it comes first once. */
Test(held, the_way_is_not_said_twice)
{
    struct ms_held_way way;

    born(LOOP_PARAMETER, 8 * MIB);
    born(LOOP_INPUT, 2 * KEPT);
    born(LOOP_FORWARD, KEPT / 2);
    dies_at(LOOP_FORWARD, MIB);
    cr_assert(ms_held_way(model, 0, moment_of_death(), &way));
    expect_said("  holds  200.0 MiB (77.5 % of live) train.py in train   ");
}

Test(held, there_is_no_way_where_one_line_has_most)
{
    struct ms_held_way way;

    born(LOOP_PARAMETER, 8 * MIB);
    born(LOOP_KEPT, KEPT);
    dies_at(LOOP_FORWARD, MIB);
    cr_expect_not(ms_held_way(model, 0, moment_of_death(), &way), "the line itself says it");
}

Test(held, of_autograds_threads_the_line_is_who_called_autograd)
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

/* A line that holds memory of two kinds is not said to hold one. */
Test(held, a_line_of_two_kinds_says_how_much_of_each)
{
    struct ms_held_line line = {.bytes = 5 * MIB, .kind = MS_KIND_ACTIVATIONS};
    struct ms_buffer out = {0};

    step(1);
    step(2);
    dies(MIB);
    line.kind_bytes[MS_KIND_ACTIVATIONS] = 4 * MIB;
    line.kind_bytes[MS_KIND_TEMPORARY] = MIB;
    line.text.at = (char[]){"train.py:7"};
    ms_held_line_add(model, &line, 10 * MIB, &out);
    ms_buffer_append(&out, "", 1);
    cr_expect_str_eq(
        out.at, "5.0 MiB (50.0 % of live) train.py:7   activations 4.0 MiB, temporary 1.0 MiB");
    ms_buffer_free(&out);
}

/* What was asked for, less what was there, is what was short. */
Test(held, the_sum_of_what_was_short)
{
    hole_bytes = 3 * MIB;
    step(1);
    dies(MIB);
    expect_said("  short  64.0 MiB asked for - 63.0 MiB free = 1.0 MiB\n");
}

/* The words of a table that are memshim's own are explained below it. */
Test(held, kinds_of_the_table_are_explained)
{
    struct ms_buffer out = {0};

    step(1);
    dies(MIB);
    ms_text_add_ledger(&out, model, 0);
    ms_buffer_append(&out, "", 1);
    cr_expect(strstr(out.at, "\n    activations: made by a model's call"), "%s", out.at);
    cr_expect_null(strstr(out.at, "\n    workspace: "), "%s", out.at);
    ms_buffer_free(&out);
}
