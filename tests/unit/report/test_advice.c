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
