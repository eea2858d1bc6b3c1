/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, found in loops of every style: each test counts for itself what its loop does. */
#include <criterion/criterion.h>
#include <string.h>

#include "loop.h"

#define BYTES UINT64_C(1000)

enum { PARAMETERS = 8 };

static struct loop loop;
static uint64_t gradients[PARAMETERS];

static void start(void)
{
    loop_start(&loop);
}

static void stop(void)
{
    loop_stop(&loop);
}

TestSuite(steps, .init = start, .fini = stop);

static void forward(void)
{
    loop_moment(&loop, LOOP_INPUT, BYTES);

    const uint64_t saved = loop_born(&loop, LOOP_FORWARD, BYTES);

    loop_moment(&loop, LOOP_BACKWARD, BYTES);
    loop_died(&loop, saved, BYTES);
}

/* makes: gradients are made anew; else they are added to. */
static void backward(bool makes)
{
    forward();
    for (int i = 0; i < PARAMETERS; i++) {
        if (makes) {
            gradients[i] = loop_born(&loop, LOOP_GRADIENT, BYTES);
        } else {
            loop_moment(&loop, LOOP_GRADIENT, BYTES);
        }
        loop_moment(&loop, LOOP_BACKWARD, 100 * BYTES);
    }
}

static void drop(void)
{
    loop.time_ns += 1000000; /* the optimizer took its time */
    for (int i = 0; i < PARAMETERS; i++) {
        loop_died(&loop, gradients[i], BYTES);
    }
}

static void expect(uint64_t steps, uint64_t passes)
{
    const struct ms_recurrence found = loop_end(&loop);

    cr_assert(found.known, "%s", found.why);
    cr_assert_eq(found.count, steps, "%zu steps", (size_t)found.count);
    cr_assert_eq(found.passes, passes, "%zu passes", (size_t)found.passes);
}

Test(steps, an_optimizer_that_allocates)
{
    for (int step = 0; step < 5; step++) {
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
    }
    expect(5, 5);
}

Test(steps, accumulated_gradients_are_one_step)
{
    for (int step = 0; step < 3; step++) {
        for (int micro = 0; micro < 4; micro++) {
            backward(micro == 0);
        }
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
    }
    expect(3, 12);
}

Test(steps, gradients_that_are_never_dropped)
{
    for (int micro = 0; micro < 12; micro++) {
        backward(micro == 0);
        if (micro % 4 == 3) {
            loop_moment(&loop, LOOP_UPDATE, BYTES);
        }
    }
    expect(3, 12);
}

/* SGD, fused kernels: only the gradients tell. */
Test(steps, an_optimizer_that_allocates_nothing)
{
    for (int step = 0; step < 6; step++) {
        for (int micro = 0; micro < 2; micro++) {
            backward(micro == 0);
        }
        drop();
    }
    expect(6, 12);
}

/* It is killed in a pass that has made no gradients yet, and did not cease to drop them. */
Test(steps, a_run_that_ends_in_a_pass)
{
    for (int step = 0; step < 6; step++) {
        backward(true);
        drop();
    }
    forward();
    expect(6, 7);
}

/* Its state is made when a parameter first has a gradient, which tells of no other step. */
Test(steps, an_optimizer_that_makes_its_state_and_is_silent_then)
{
    for (int step = 0; step < 6; step++) {
        backward(true);
        if (step == 0 || step == 3) {
            loop_born(&loop, LOOP_STATE, BYTES);
        }
        drop();
    }
    expect(6, 6);
}

/* As cuBLAS makes its own, which is more than all gradients of an adapter. */
Test(steps, a_work_space_that_is_made_in_the_first_pass)
{
    for (int step = 0; step < 6; step++) {
        backward(true);
        if (step == 0) {
            loop_born(&loop, LOOP_GRADIENT, UINT64_C(100) * PARAMETERS * BYTES);
            loop_moment(&loop, LOOP_BACKWARD, BYTES);
        }
        drop();
    }
    expect(6, 6);
}

Test(steps, nothing_but_passes_is_not_enough)
{
    for (int micro = 0; micro < 10; micro++) {
        backward(micro == 0);
    }

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert_not(found.known);
    cr_assert_not_null(found.why);
    cr_assert_eq(found.passes, 10);
}

Test(steps, no_passes_at_all)
{
    loop_moment(&loop, LOOP_FORWARD, BYTES);

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert_not(found.known);
    cr_assert_eq(found.passes, 0);
}

Test(steps, the_more_frequent_of_two_optimizers_counts)
{
    for (int step = 0; step < 6; step++) {
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
        if (step % 2 == 1) {
            backward(true);
            loop_moment(&loop, LOOP_OTHER_UPDATE, BYTES);
            drop();
        }
    }
    expect(6, 9);
}

static void update(int kind)
{
    backward(true);
    loop_moment(&loop, kind, BYTES);
    drop();
}

/* As of a generator and its critic, each of which has a step of its own. */
Test(steps, the_rarest_of_two_optimizers)
{
    update(LOOP_UPDATE);
    update(LOOP_OTHER_UPDATE);
    update(LOOP_UPDATE);
    cr_assert_eq(loop_end(&loop).rarest, 1);
}

Test(steps, the_rarest_of_two_optimizers_that_recur)
{
    for (int step = 0; step < 2; step++) {
        update(LOOP_UPDATE);
        update(LOOP_OTHER_UPDATE);
    }
    cr_assert_eq(loop_end(&loop).rarest, 2);
}

Test(steps, a_warm_up_is_not_the_rarest)
{
    update(LOOP_OTHER_UPDATE);
    for (int step = 0; step < 4; step++) {
        update(LOOP_UPDATE);
    }
    cr_assert_eq(loop_end(&loop).rarest, 4);
}

Test(steps, an_optimizer_of_the_user_s)
{
    for (int step = 0; step < 3; step++) {
        backward(true);
        backward(false);
        loop_moment(&loop, LOOP_OWN_UPDATE, BYTES);
    }
    expect(3, 6);
}

/* A function named step that holds the whole loop is no optimizer. */
Test(steps, a_loop_that_is_named_step)
{
    for (int micro = 0; micro < 8; micro++) {
        loop_moment(&loop, LOOP_IN_STEP, BYTES);
        backward(micro % 2 == 0);
        loop_moment(&loop, LOOP_STEP_ITSELF, BYTES);
        if (micro % 2 == 1) {
            loop_moment(&loop, LOOP_OWN_UPDATE, BYTES);
            drop();
        }
    }
    expect(4, 8);
}

Test(steps, another_thread_s_memory_parts_no_pass)
{
    for (int step = 0; step < 4; step++) {
        backward(true);
        loop_moment(&loop, LOOP_PREFETCH, BYTES);
        loop_moment(&loop, LOOP_BACKWARD, BYTES);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
    }
    expect(4, 4);
}

Test(steps, evaluations_are_counted_apart)
{
    for (int step = 1; step <= 6; step++) {
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
        for (int batch = 0; step % 3 == 0 && batch < 4; batch++) {
            loop_moment(&loop, LOOP_INPUT, BYTES);
            loop_moment(&loop, LOOP_EVALUATION, BYTES);
            loop_moment(&loop, LOOP_EVALUATION, BYTES);
        }
    }

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert(found.known && found.evaluations_known);
    cr_assert_eq(found.count, 6);
    cr_assert_eq(found.evaluations, 2);
    cr_assert_eq(found.evaluation_batches, 8);
    cr_assert_eq(found.evaluations_ended, 1, "no backward pass shows that the second has ended");
}

/* As a trainer does to see that it works. */
Test(steps, an_evaluation_before_the_first_step_is_none_of_what_is_trained)
{
    for (int step = 0; step < 4; step++) {
        loop_moment(&loop, LOOP_INPUT, BYTES);
        for (int batch = 0; step % 2 == 0 && batch < 2; batch++) {
            loop_moment(&loop, LOOP_EVALUATION, BYTES);
        }
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
    }

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert_eq(found.evaluations, 2);
    cr_assert_eq(found.evaluations_ended, 1);
}

/* A call without gradients in every step, whose result outlives the pass. */
Test(steps, a_teacher_is_no_evaluation)
{
    uint64_t taught = 0;

    for (int step = 0; step < 6; step++) {
        const uint64_t before = taught;

        loop_moment(&loop, LOOP_INPUT, BYTES);
        taught = loop_born(&loop, LOOP_TEACHER, BYTES);
        if (before) {
            loop_died(&loop, before, BYTES);
        }
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
    }

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert_eq(found.count, 6);
    cr_assert_eq(found.evaluations, 0);
}

/* What was computed for a loss that a list keeps. */
Test(steps, a_leak_is_no_evaluation)
{
    for (int step = 0; step < 20; step++) {
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
        loop_moment(&loop, LOOP_INPUT, BYTES);
        loop_born(&loop, LOOP_EVALUATION, BYTES);
        loop_moment(&loop, LOOP_EVALUATION, BYTES);
    }

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert(found.known && found.evaluations_known);
    cr_assert_eq(found.count, 20);
    cr_assert_eq(found.evaluations, 0);
}

/* An evaluation after each step, of whose results the last digits are kept. */
Test(steps, an_evaluation_may_keep_a_little)
{
    for (int step = 0; step < 20; step++) {
        backward(true);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        drop();
        loop_moment(&loop, LOOP_INPUT, BYTES);
        loop_born(&loop, LOOP_EVALUATION, BYTES / 100);
        loop_moment(&loop, LOOP_EVALUATION, BYTES);
    }

    const struct ms_recurrence found = loop_end(&loop);

    cr_assert_eq(found.count, 20);
    cr_assert_eq(found.evaluations, 20);
}

Test(steps, a_trace_that_is_not_whole_says_why)
{
    const struct ms_steps_failures none = {0};
    struct ms_recurrence found;

    backward(true);
    ms_site_table_finish(loop.table, &loop.end);
    ms_steps_judge(loop.steps, loop.table, &none, "its beginning is gone", &found);
    cr_assert_not(found.known || found.whole || found.evaluations_known);
    cr_assert_str_eq(found.why, "its beginning is gone");
}

/* Whether the request of that site fails in an evaluation. */
static bool evaluates(const struct ms_recurrence *found, enum loop_site site)
{
    const struct ms_steps_failure failure = {site, loop.time_ns};

    return ms_steps_evaluates(loop.steps, loop.table, loop.definitions, found,
                              &(struct ms_steps_failures){&failure, 1}, 0);
}

static void train(int steps)
{
    for (int step = 0; step < steps; step++) {
        const uint64_t saved = loop_born(&loop, LOOP_FORWARD, BYTES);

        loop_moment(&loop, LOOP_BACKWARD, BYTES);
        loop_died(&loop, saved, BYTES);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
    }
}

/* What a model is called for where no backward pass ever came is an evaluation, once a few steps
 * have told what training is. */
Test(steps, an_evaluation_is_told_from_training)
{
    struct ms_recurrence found;

    train(3);
    found = loop_end(&loop);
    cr_assert(found.known);
    cr_expect(evaluates(&found, LOOP_EVALUATION));
    cr_expect_not(evaluates(&found, LOOP_FORWARD));
    cr_expect_not(evaluates(&found, LOOP_INPUT));
    cr_expect_not(ms_steps_trains(loop.steps, loop.table, loop.definitions, LOOP_EVALUATION));
    cr_expect(ms_steps_trains(loop.steps, loop.table, loop.definitions, LOOP_BACKWARD));
    found.count = 1;
    cr_expect_not(evaluates(&found, LOOP_EVALUATION));
}

/* A batch fails in its forward pass, and so does the half of it, on another line. */
Test(steps, a_forward_pass_that_fails_is_no_evaluation)
{
    struct ms_steps_failure failed[2];
    const struct ms_steps_failures failures = {failed, 2};

    train(3);
    loop_moment(&loop, LOOP_FORWARD, BYTES);
    failed[0] = (struct ms_steps_failure){LOOP_FORWARD, ++loop.time_ns};
    loop_moment(&loop, LOOP_EVALUATION, BYTES);
    failed[1] = (struct ms_steps_failure){LOOP_EVALUATION, ++loop.time_ns};

    const struct ms_recurrence found = loop_end_after(&loop, &failures);

    cr_expect(found.evaluations_known);
    cr_expect_eq(found.evaluations, 0);
    cr_expect_eq(found.evaluation_batches, 0);
    cr_expect_not(
        ms_steps_evaluates(loop.steps, loop.table, loop.definitions, &found, &failures, 0));
    cr_expect_not(
        ms_steps_evaluates(loop.steps, loop.table, loop.definitions, &found, &failures, 1));
}

/* The first call of an evaluation fails, long after a batch that failed and was left out. */
Test(steps, an_evaluation_after_a_failure_is_told)
{
    struct ms_steps_failure failed[2];
    const struct ms_steps_failures failures = {failed, 2};

    train(3);
    loop_moment(&loop, LOOP_FORWARD, BYTES);
    failed[0] = (struct ms_steps_failure){LOOP_FORWARD, ++loop.time_ns};
    train(3);
    loop_moment(&loop, LOOP_EVALUATION, BYTES);
    failed[1] = (struct ms_steps_failure){LOOP_EVALUATION, ++loop.time_ns};

    const struct ms_recurrence found = loop_end_after(&loop, &failures);

    cr_expect(ms_steps_evaluates(loop.steps, loop.table, loop.definitions, &found, &failures, 1));
}

Test(steps, who_calls_a_compiled_model_calls_the_model)
{
    const struct ms_doings *compiled = ms_landmarks_of(loop.landmarks, LOOP_COMPILED);

    cr_expect_eq(compiled->doing, MS_DOING_FORWARD);
    cr_expect_eq(compiled->caller, ms_landmarks_of(loop.landmarks, LOOP_FORWARD)->caller);
}

/* ---- on threads ---- */

enum { ASKS = 1, CALLS, CALLS_IN_MAIN };

/* Frame `id` of a stack, with a code of its own. */
static void define(ms_definitions_t *to, uint32_t id, uint32_t caller, const char *file,
                   const char *function)
{
    const struct ms_python_definition node = {.id = id, .caller = caller, .code = id};
    struct {
        struct ms_code_definition is;
        char text[128];
    } code = {.is = {.id = id,
                     .file_bytes = (uint32_t)strlen(file),
                     .function_bytes = (uint32_t)strlen(function)}};

    memcpy(code.text, file, code.is.file_bytes);
    memcpy(code.text + code.is.file_bytes, function, code.is.function_bytes);
    ms_definitions_add(to, MS_DEFINE_CODE, &code,
                       sizeof(code.is) + code.is.file_bytes + code.is.function_bytes);
    ms_definitions_add(to, MS_DEFINE_PYTHON, &node, sizeof(node));
}

static void define_site(ms_definitions_t *to, uint32_t id, uint32_t python)
{
    const struct ms_site_definition site = {.id = id, .python = python, .thread = MS_THREAD_PYTHON};

    ms_definitions_add(to, MS_DEFINE_SITE, &site, sizeof(site));
}

/* What a thread asks for beside the model, where models are called on threads, and maybe in main
 * too. */
static uint8_t doing_on_a_thread(bool calls_in_main)
{
    ms_definitions_t *definitions = ms_definitions_new();
    uint8_t doing;

    define(definitions, 1, 0, "/usr/lib/python3.11/threading.py", "Thread._bootstrap");
    define(definitions, 2, 1, "serve.py", "work");
    define(definitions, 3, 2, "/site-packages/torch/nn/modules/module.py", "Module._call_impl");
    define(definitions, 4, 0, "/site-packages/torch/nn/modules/module.py", "Module._call_impl");
    define_site(definitions, ASKS, 2);
    define_site(definitions, CALLS, 3);
    if (calls_in_main) {
        define_site(definitions, CALLS_IN_MAIN, 4);
    }

    ms_landmarks_t *landmarks = ms_landmarks_new(definitions);

    doing = ms_landmarks_of(landmarks, ASKS)->doing;
    ms_landmarks_delete(landmarks);
    ms_definitions_delete(definitions);
    return doing;
}

Test(steps, a_thread_is_aside_only_where_the_model_is_called_elsewhere)
{
    cr_expect_eq(doing_on_a_thread(true), MS_DOING_ASIDE);
    cr_expect_eq(doing_on_a_thread(false), MS_DOING_OTHER);
}
