/* SPDX-License-Identifier: Apache-2.0 */
/* What is advised after an out-of-memory: it follows from what was seen, and names what was not. */
#include <criterion/criterion.h>

#include "dying.h"

TestSuite(advice, .init = begin, .fini = end);

/* ---- an autograd graph, or none ---- */

#define OF_A_GRAPH ".detach() what is kept"
#define OF_NONE    "no autograd graph was seen in what grows: limit how many stay on the device"
#define OF_EITHER  ".detach() what keeps a graph, and otherwise"

/* A cache, or copies of the weights: there is nothing to detach. */
Test(advice, for_what_no_model_computed_is_to_limit_how_much_stays)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_KEPT, KEPT);
    }
    dies(MIB);
    expect_said(OF_NONE);
    expect_not_said(".detach()");
}

/* A model and its optimizer for each fold: the line that made the state keeps nothing itself. */
Test(advice, for_the_state_of_many_optimizers_is_to_let_the_old_ones_go)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_STATE, KEPT);
    }
    dies(MIB);
    expect_said("look for what keeps each optimizer, or the model that it was made for");
    expect_not_said("that line's results");
}

/* The weights after each evaluation: the model was called before, but not to train it. */
Test(advice, for_what_follows_an_evaluation_is_the_same)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        died(born(LOOP_EVALUATION, ACTIVATION), ACTIVATION);
        born(LOOP_KEPT, KEPT);
    }
    dies(MIB);
    expect_said(OF_NONE);
}

/* A state that is carried from step to step may be one operation's result each time. */
Test(advice, for_what_lies_between_a_call_and_its_backward_pass_is_either)
{
    for (int number = 1; number <= 12; number++) {
        died(born(LOOP_FORWARD, ACTIVATION), ACTIVATION);
        born(LOOP_KEPT, KEPT);

        const uint64_t gradient = born(LOOP_GRADIENT, GRADIENT);

        died(born(LOOP_UPDATE, GRADIENT), GRADIENT);
        died(gradient, GRADIENT);
    }
    dies(MIB);
    expect_said(OF_EITHER);
}

/* Keys and values of each answer; a graph would have had the rest of the call as well. */
Test(advice, for_part_of_what_calls_make_without_training_is_to_compute_none)
{
    for (int call = 0; call < 12; call++) {
        died(born(LOOP_EVALUATION, 4 * KEPT), 4 * KEPT);
        died(born(LOOP_FORWARD, 4 * KEPT), 4 * KEPT);
        born(LOOP_REMEMBERED, 64 * MIB);
        born(LOOP_REMEMBERED_TOO, 64 * MIB);
        died(born(LOOP_INPUT, MIB), MIB);
    }
    dies(MIB);
    expect_said(
        "no backward pass was seen: if none is to come, call the model under torch.no_grad()");
    expect_said("limit how many results stay on the device");
    expect_not_said(".detach()");
}

/* The graph of each result keeps its input, which is the larger part. */
Test(advice, for_inputs_beside_what_calls_keep_is_to_compute_none)
{
    for (int call = 0; call < 12; call++) {
        born(LOOP_KEPT, KEPT);
        died(born(LOOP_EVALUATION, 4 * KEPT), 4 * KEPT);
        born(LOOP_REMEMBERED, MIB);
    }
    dies(MIB);
    expect_culprit("note_metrics");
    expect_said("no backward pass was seen: ");
}

Test(advice, for_most_of_what_calls_make_is_to_detach)
{
    train_and_keep(12, 1);
    expect_said(OF_A_GRAPH);
    expect_not_said("otherwise");
}

/* Gradients may have a graph of their own. */
Test(advice, for_what_a_backward_pass_made_is_either)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_BACKWARD, KEPT);
    }
    dies(MIB);
    expect_said(OF_EITHER);
}

/* While it trains, part of a call may be the part that has a graph. */
Test(advice, for_part_of_what_calls_make_in_training_is_either)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        died(born(LOOP_FORWARD, 4 * KEPT), 4 * KEPT);
        born(LOOP_REMEMBERED, 64 * MIB);
        born(LOOP_REMEMBERED_TOO, 64 * MIB);
    }
    dies(MIB);
    expect_said(OF_EITHER);
}

/* ---- how much smaller ---- */

/* The largest batch with which the request that failed would have succeeded is no batch to take:
 * the step goes on. */
static void die_in_the_first_forward(void)
{
    born(LOOP_PARAMETER, 256 * MIB);
    born(LOOP_INPUT, GIB);
    born(LOOP_FORWARD, GIB);
    requested_bytes = 2 * GIB;
    dies_at(LOOP_FORWARD, GIB);
}

Test(advice, for_a_batch_that_dies_in_its_first_pass_is_half_of_what_passes, .init = begin_batch)
{
    die_in_the_first_forward();
    expect_said("  fits   try batch 468 first (a start, not a measurement): at most batch 937 "
                "instead of 1,000 passes this request, and the rest of the step needs more\n");
    expect_said("; this one request was 1.00 GiB short, and the rest of the step was still to "
                "come\n");
}

/* Once a backward pass has begun, the figure is of all that the step asks for. */
Test(advice, for_a_batch_that_dies_in_a_backward_pass_is_one_for_the_whole_step,
     .init = begin_batch)
{
    born(LOOP_PARAMETER, 256 * MIB);
    step(1);
    born(LOOP_FORWARD, 3 * GIB);
    born(LOOP_GRADIENT, 256 * MIB);
    requested_bytes = GIB;
    dies_at(LOOP_GRADIENT, 512 * MIB);
    expect_said(" instead of 1,000, for the whole step (~)\n");
}

Test(advice, names_no_batch_that_the_program_did_not_name)
{
    die_in_the_first_forward();
    expect_said("  fits   try 0.46 of this batch first (a start, not a measurement): at most 0.94 "
                "of this batch passes this request, and the rest of the step needs more\n");
}

/* Nearly the whole batch passes here: then only that it is too near is known. */
Test(advice, for_a_near_miss_in_the_first_pass_is_more_than_the_miss)
{
    born(LOOP_PARAMETER, 256 * MIB);
    born(LOOP_FORWARD, 3 * GIB);
    dies_at(LOOP_FORWARD, MIB);
    expect_not_said("  fits ");
    expect_said("; this one request was 1.0 MiB short, and the rest of the step was still to "
                "come\n");
    expect_said("no backward pass had begun: if this is training, the rest of the step needs "
                "memory as well, so take a clearly smaller batch (half of it, to begin with)\n");
}

Test(advice, for_an_evaluation_is_the_batch_that_the_program_named, .init = begin_batch)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
    }
    born(LOOP_EVALUATION, 3 * GIB);
    requested_bytes = 2 * GIB;
    dies_at(LOOP_EVALUATION, GIB);
    expect_said("  fits   try 0.");
    expect_said(" of this evaluation's batch (batch ");
    expect_said(", if it has MEMSHIM_BATCH's 1,000 samples) first (a start, not a measurement): "
                "at most 0.");
    expect_said(" of this evaluation's batch passes this request, and what comes after it may "
                "need more\n");
    expect_not_said("the rest of the step");
}

/* What a model returned waits for its backward pass as well. */
Test(advice, for_a_loss_in_the_first_pass_is_more_than_the_miss)
{
    born(LOOP_PARAMETER, 256 * MIB);
    born(LOOP_FORWARD, 3 * GIB);
    dies_at(LOOP_KEPT, MIB);
    expect_said("; this one request was 1.0 MiB short, and the rest of the step was still to "
                "come\n");
    expect_said("no backward pass had begun: ");
}

/* A data set, or a queue that nobody empties. */
Test(advice, for_what_one_line_keeps_before_all_else_is_to_hold_less)
{
    above_cap_bytes = 20 * GIB;
    for (int number = 0; number < 32; number++) {
        born(LOOP_KEPT, KEPT);
    }
    dies_at(LOOP_KEPT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_CAP);
    expect_said("  next   a larger MEMSHIM_FRACTION, or hold less of that at once: no model was "
                "called yet, and that line keeps all that it asked for; ");
}

/* ---- an evaluation, by grad mode ---- */

static void die_in_an_evaluation(uint8_t mode)
{
    for (int number = 1; number <= 4; number++) {
        step(number);
    }
    born(LOOP_EVALUATION, 3 * GIB);
    requested_bytes = GIB;
    grad_mode = mode;
    dies_at(LOOP_EVALUATION, MIB);
}

Test(advice, for_an_evaluation_with_grad_mode_on_is_to_switch_it_off)
{
    die_in_an_evaluation(MS_GRAD_ON);
    expect_said("OUT OF MEMORY in an evaluation (grad mode on), in step ");
    expect_said("  next   evaluate under torch.no_grad(): grad mode was on, so ");
}

Test(advice, for_an_evaluation_with_grad_mode_off_is_a_smaller_batch)
{
    die_in_an_evaluation(MS_GRAD_OFF);
    expect_said("  next   evaluate with a smaller batch, or use a larger device: grad mode was off "
                "already");
}

Test(advice, for_an_evaluation_of_unknown_grad_mode_names_both)
{
    die_in_an_evaluation(MS_GRAD_UNKNOWN);
    expect_said("OUT OF MEMORY in an evaluation, in step ");
    expect_said("  next   evaluate with a smaller batch, and under torch.no_grad() if it does not "
                "yet");
}

/* Where the cap is what it met, the cap comes last. */
Test(advice, for_an_evaluation_under_a_cap_begins_with_the_evaluation)
{
    above_cap_bytes = 20 * GIB;
    die_in_an_evaluation(MS_GRAD_ON);
    cr_expect_eq(judgement.verdict, MS_VERDICT_CAP);
    expect_said("  next   evaluate under torch.no_grad(): grad mode was on, so what the model "
                "computes was kept for a backward pass; if that is not enough, a smaller batch, "
                "or a larger MEMSHIM_FRACTION; this one request was 1.0 MiB short\n");
}

/* The first call of an evaluation is not known as one; a checkpointed part of a model has it off
 * as well. */
Test(advice, says_of_a_models_call_that_grad_mode_was_off)
{
    step(1);
    grad_mode = MS_GRAD_OFF;
    dies(MIB);
    expect_said("OUT OF MEMORY with grad mode off, in step 2 (1 completed), after ");
}

Test(advice, says_nothing_of_grad_mode_where_it_is_on_in_training)
{
    step(1);
    grad_mode = MS_GRAD_ON;
    dies(MIB);
    expect_not_said("grad mode");
}

/* An optimizer computes without it. */
Test(advice, says_nothing_of_grad_mode_of_an_optimizer)
{
    step(1);
    grad_mode = MS_GRAD_OFF;
    dies_at(LOOP_UPDATE, MIB);
    expect_not_said("grad mode");
}

/* ---- what became of each refusal ---- */

Test(advice, names_no_end_of_the_run_before_the_last_refusal)
{
    refused_before(2 * GIB);
    dies(MIB);
    cr_assert_eq(ms_model_oom_count(model), 2);
    cr_expect_str_eq(ms_model_oom_outcome(model, 0), "the run went on to another request");
    cr_expect_str_eq(ms_model_oom_outcome(model, 1), "the run did not go on");
}

/* ---- copies of the weights ---- */

static void keep_each_step(uint64_t bytes)
{
    born(LOOP_PARAMETER, 100 * MIB);
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_KEPT, bytes);
    }
    dies(MIB);
}

#define OF_COPIES "as much as the model's parameters (100.0 MiB): probably a copy of the weights"

Test(advice, says_that_what_is_kept_is_as_much_as_the_weights)
{
    keep_each_step(102 * MIB);
    expect_said(OF_COPIES);
}

Test(advice, takes_no_other_amount_for_a_copy)
{
    keep_each_step(90 * MIB);
    expect_not_said("copy of the weights");
}

/* ---- the optimizer's state that is still to come ---- */

#define WEIGHT (64 * MIB)
#define LAYERS 8

/* A pass through layers of one size; then the optimizer makes two values of each weight, weight by
 * weight, up to so many of them. */
static void die_in_the_optimizer(int values)
{
    uint64_t saved[LAYERS];

    for (int layer = 0; layer < LAYERS; layer++) {
        born(LOOP_PARAMETER, WEIGHT);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        saved[layer] = born(LOOP_FORWARD, 16 * MIB);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        born(LOOP_GRADIENT, WEIGHT);
        died(saved[layer], 16 * MIB);
    }
    for (int value = 0; value < values; value++) {
        born(value % 2 ? LOOP_STATE_TOO : LOOP_STATE, WEIGHT);
    }
    requested_bytes = WEIGHT;
    dies_at(values % 2 ? LOOP_STATE_TOO : LOOP_STATE, MIB);
}

Test(advice, names_the_state_that_is_still_to_come)
{
    die_in_the_optimizer(9);
    expect_said("this was the first step, and the optimizer had not yet created all of its state: "
                "about 448.0 MiB of it were still to come, with this request\n");
}

Test(advice, names_no_state_that_does_not_follow_from_what_was_seen)
{
    die_in_the_optimizer(1);
    expect_said("this was the first step, and the optimizer had not yet created all of its "
                "state\n");
}

/* An update's temporary memory, when all state is there: its sizes are the weights', too. */
Test(advice, names_no_state_where_all_is_there)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        born(LOOP_PARAMETER, WEIGHT);
    }
    died(born(LOOP_FORWARD, 16 * MIB), 16 * MIB);
    for (int layer = 0; layer < LAYERS; layer++) {
        born(LOOP_GRADIENT, WEIGHT);
    }
    for (int value = 0; value < 2 * LAYERS; value++) {
        born(value % 2 ? LOOP_STATE_TOO : LOOP_STATE, WEIGHT);
    }
    born(LOOP_UPDATE, WEIGHT);
    born(LOOP_UPDATE, WEIGHT);
    requested_bytes = WEIGHT;
    dies_at(LOOP_UPDATE, MIB);
    expect_not_said("still to come");
}

/* What an optimizer asks for follows from the weights, whatever of it there is as yet. */
Test(advice, for_the_first_state_that_does_not_fit_is_no_smaller_batch)
{
    born(LOOP_PARAMETER, GIB);
    died(born(LOOP_FORWARD, 16 * MIB), 16 * MIB);
    born(LOOP_GRADIENT, GIB);
    requested_bytes = GIB;
    dies_at(LOOP_STATE, MIB);
    cr_expect(judgement.of_the_model);
    expect_said("  next   a smaller model, ");
}

/* ---- growth's pace ---- */

/* Weights that are copied after every fifth step: none of the steps keeps their mean. */
Test(advice, tells_growth_that_comes_every_fifth_step_as_such)
{
    for (int number = 1; number <= 60; number++) {
        step(number);
        if (number % 5 == 0) {
            born(LOOP_KEPT, KEPT);
        }
    }
    dies(MIB);
    expect_said("has kept 100.0 MiB more about every 5 steps (");
    expect_said(" MiB a step on average)");
    expect_not_said("every step since");
}

Test(advice, tells_growth_of_every_step_as_such)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_KEPT, KEPT);
    }
    dies(MIB);
    expect_said("has kept 100.0 MiB more every step since step 2.\n");
    expect_not_said("only likely");
}

Test(advice, tells_why_growth_of_few_steps_is_only_likely)
{
    train_and_keep(4, 1);
    expect_said("has kept 101.0 MiB more in each of 4 steps, 404.0 MiB in all; only likely, as it "
                "was seen fewer than 8 times.\n");
}

Test(advice, tells_growth_of_a_few_later_steps_as_such)
{
    train_and_keep(10, 3);
    expect_said("has kept 101.0 MiB more 3 times (once in about 3 steps), 303.0 MiB in all; only "
                "likely, as it was seen fewer than 8 times.\n");
}

Test(advice, tells_growth_of_calls_as_such)
{
    for (int call = 0; call < 10; call++) {
        const uint64_t input = born(LOOP_INPUT, MIB);

        born(LOOP_EVALUATION, KEPT);
        died(input, MIB);
    }
    dies(MIB);
    expect_said("has kept 100.0 MiB more with each of 10 calls of a model, 1000.0 MiB in all "
                "before the latest one; only likely, as no step ended in between.\n");
}

/* ---- a block that is made anew, and longer ---- */

static void make_longer(uint64_t part)
{
    uint64_t result = 0, result_bytes = 0;

    for (int number = 1; number <= 12; number++) {
        step(number);
        if (result) {
            died(result, result_bytes);
        }
        result_bytes = (uint64_t)number * part;
        result = born(LOOP_KEPT, result_bytes);
    }
}

Test(advice, for_a_block_that_is_copied_into_a_longer_one_is_to_say_so)
{
    make_longer(KEPT);
    requested_bytes = 13 * KEPT;
    dies_at(LOOP_KEPT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_GROWTH);
    expect_said("  next   look for what keeps that line's result: it is made anew and longer each "
                "time. The request of 1.27 GiB is the 1.17 GiB that are kept and 100.0 MiB more, "
                "and while it is filled both are there: ");
}

/* The request is another line's, or it is of one more of many blocks. */
Test(advice, for_a_block_that_another_line_asks_for_is_not_to_say_so)
{
    make_longer(KEPT);
    requested_bytes = 13 * KEPT;
    dies_at(LOOP_INPUT, MIB);
    expect_not_said("made anew");
}

Test(advice, for_one_more_of_many_blocks_is_not_to_say_so)
{
    for (int number = 1; number <= 12; number++) {
        step(number);
        born(LOOP_KEPT, KEPT);
    }
    requested_bytes = KEPT;
    dies_at(LOOP_KEPT, MIB);
    expect_said(OF_NONE);
    expect_not_said("made anew");
}

/* ---- what is beside a request that is too large ---- */

/* Each of them fits, and both do not. */
Test(advice, for_the_second_of_two_large_tensors_is_to_let_go_of_the_first)
{
    born(LOOP_KEPT, 5 * GIB / 2);
    requested_bytes = 5 * GIB / 2;
    dies_at(LOOP_INPUT, GIB);
    expect_said("  next   a smaller batch or shape for that one tensor");
    expect_said(
        "         2.50 GiB of train.py in note_metrics are live beside it, and without them "
        "it fits: let go of them first (del), if they are not needed together\n");
}

/* A model is needed beside whatever it computes. */
Test(advice, for_a_large_tensor_beside_a_model_is_not_to_let_go_of_that)
{
    born(LOOP_PARAMETER, 5 * GIB / 2);
    requested_bytes = 5 * GIB / 2;
    dies_at(LOOP_INPUT, GIB);
    expect_said("  next   a smaller batch or shape for that one tensor");
    expect_not_said("let go of them");
}

/* Memory in a graph's pool is free, and only the graph may use it. */
Test(advice, for_holes_in_graphs_pools_names_what_was_captured)
{
    const uint64_t input = born(LOOP_INPUT, MIB);
    const struct ms_event frozen = {
        .kind = MS_EVENT_ARENA_FROZEN, .addr = (input + 1) * GIB, .bytes = GIB};

    ms_trace_emit(trace, &frozen);
    died(born(LOOP_FORWARD, 512 * MIB), 512 * MIB);
    pinned_by = MS_PINNED_BY_CAPTURE;
    hole_bytes = 512 * MIB;
    dies_at(LOOP_INPUT, MIB);
    cr_expect_eq(judgement.verdict, MS_VERDICT_FRAGMENTATION);
    expect_said("  next   capture fewer or smaller CUDA graphs: each keeps the memory that was "
                "allocated during its capture\n         most of that was asked for at net.py in "
                "Net.forward\n         from train.py in train\n");
}
