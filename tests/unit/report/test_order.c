/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of loops without a backward pass: each test counts for itself what its loop does. */
#include <criterion/criterion.h>

#include "loop.h"
#include "report/model/reading/loop.h"

static struct loop known;         /* for its definitions */
static ms_definitions_t *nothing; /* no model is called */
static ms_landmarks_t *nowhere;
static ms_loop_t *loop;
static struct ms_recurrence found;
static uint64_t now_ns, newest_id;

static void start(void)
{
    newest_id = 0;
    loop_start(&known);
    nothing = ms_definitions_new();
    nowhere = ms_landmarks_new(nothing);
    loop = ms_loop_new(known.definitions, nowhere);
    cr_assert_not_null(loop);
}

static void stop(void)
{
    ms_buffer_free(&found.begins);
    ms_buffer_free(&found.begin_events);
    ms_loop_delete(loop);
    ms_landmarks_delete(nowhere);
    ms_definitions_delete(nothing);
    loop_stop(&known);
}

TestSuite(order, .init = start, .fini = stop);

static uint64_t make(enum loop_site site, uint64_t bytes)
{
    const struct ms_event event = {
        .kind = MS_EVENT_BLOCK_ALLOC, .site = site, .id = ++newest_id, .bytes = bytes};

    ms_loop_allocation(loop, &event, ++now_ns, 0);
    return event.id;
}

/* As a variable that is bound anew: what it named before goes after that was made. */
static void bind(uint64_t *variable, enum loop_site site, uint64_t bytes)
{
    const uint64_t made = make(site, bytes);

    ms_loop_free(loop, *variable);
    *variable = made;
}

static void ask(enum loop_site site, int times)
{
    for (int i = 0; i < times; i++) {
        make(site, 1);
    }
}

static bool judge(void)
{
    return ms_loop_judge(loop, MS_LOOP_FEWEST_STEPS, &found);
}

/* Parameters, then batches; each begins with its input. */
static void steps(int count, int layers)
{
    for (int step = 0; step < count; step++) {
        ask(LOOP_INPUT, 1);
        ask(LOOP_EVALUATION, layers);
    }
}

Test(order, a_step_begins_where_what_comes_once_in_it_is_asked_for)
{
    ask(LOOP_PARAMETER, 20);
    ask(LOOP_COPY, 7); /* the first step compiles */
    steps(10, 12);
    cr_assert(judge());
    cr_assert_eq(found.count, 10);
    cr_assert_eq(found.site, LOOP_INPUT);
    cr_assert_eq(found.confidence, 1);

    const uint64_t *begins = (const uint64_t *)found.begins.at;
    cr_assert_eq(found.begins.bytes, 10 * sizeof(*begins));
    for (uint64_t i = 0; i < 10; i++) {
        cr_assert_eq(begins[i], 28 + i * 13);
    }
}

Test(order, epochs_of_like_steps_are_no_steps)
{
    for (int epoch = 0; epoch < 12; epoch++) {
        steps(10, 12);
        ask(LOOP_KEPT, 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 120);
    cr_assert_eq(found.site, LOOP_INPUT);
}

/* With another number of turns, never the same row again. */
static void something_else(int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        ask(LOOP_KEPT, 1);
        ask(LOOP_APPENDED, 1);
    }
}

Test(order, now_and_then_something_else_lowers_the_confidence)
{
    for (int i = 0; i < 5; i++) {
        steps(200, 12);
        ask(LOOP_INPUT, 1);
        something_else(i + 1);
        ask(LOOP_EVALUATION, 12);
    }
    cr_assert(judge());
    cr_assert_gt(found.confidence, 0.9);
    cr_assert_lt(found.confidence, 0.995);
}

Test(order, what_lies_behind_a_step_is_no_part_of_it)
{
    for (int i = 0; i < 5; i++) {
        steps(200, 12);
        something_else(i + 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 1000);
    cr_assert_eq(found.confidence, 1);
}

/* What is validated is kept, so that epochs differ. */
Test(order, a_validation_after_each_of_few_epochs_hides_no_steps)
{
    for (int epoch = 0; epoch < 5; epoch++) {
        for (int step = 0; step < 16; step++) {
            ask(LOOP_INPUT, 1);
            ask(LOOP_UPDATE, 3);
        }
        for (int batch = 0; batch < 4; batch++) {
            ask(epoch == 0 ? LOOP_COPY : LOOP_APPENDED, 1);
            ask(LOOP_EVALUATION, 2);
            ask(LOOP_KEPT, 1);
        }
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 80);
}

Test(order, what_begins_alike_and_mostly_goes_on_differently_is_no_loop)
{
    uint64_t random = 1;
    for (int i = 0; i < 60; i++) {
        ask(LOOP_INPUT, 1);
        ask(LOOP_UPDATE, 1);
        for (int other = 0; other < 3; other++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            ask((enum loop_site)(LOOP_KEPT + (random >> 33) % 12), 1);
        }
    }
    cr_assert_not(judge());
}

/* The first time it compiles, so that no two of these rows are alike. */
Test(order, an_evaluation_after_some_steps_of_a_short_run_hides_none)
{
    for (int step = 0; step < 24; step++) {
        ask(LOOP_INPUT, 1);
        ask(LOOP_FORWARD, 1);
        ask(LOOP_UPDATE, 2);
        ask(LOOP_KEPT, 1);
        if (step % 8 == 7) {
            ask(step < 8 ? LOOP_COPY : LOOP_EVALUATION, 3);
        }
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 24);
    cr_assert_eq(found.site, LOOP_INPUT);
}

Test(order, layers_within_a_step_are_no_steps)
{
    for (int step = 0; step < 20; step++) {
        ask(LOOP_INPUT, 1);
        for (int layer = 0; layer < 50; layer++) { /* deeper in calls */
            ask(LOOP_EVALUATION, 2);
            ask(LOOP_APPENDED, 1);
        }
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 20);
    cr_assert_eq(found.site, LOOP_INPUT);
}

Test(order, what_never_comes_in_the_same_order_is_no_loop)
{
    uint64_t random = 1;
    for (int i = 0; i < 2000; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ask((enum loop_site)(LOOP_PARAMETER + (random >> 33) % LOOP_KEPT), 1);
    }
    cr_assert_not(judge());
}

Test(order, a_loop_that_ended_long_ago_or_was_short_tells_no_steps)
{
    steps(7, 12);
    cr_assert_not(judge(), "seven steps are too few");
    steps(13, 12);
    cr_assert(judge());
    for (int i = 0; i < 400; i++) {
        ask(i % 3 == i % 7 ? LOOP_COPY : LOOP_LOADED, 1 + i % 5);
    }
    cr_assert_not(judge());
}

/* Keras's fit: one line asks for everything, and each step is a call. */
Test(order, calls_of_one_line_are_steps)
{
    const uint32_t line = ms_definitions_site(known.definitions, LOOP_INPUT)->python;

    for (int i = 0; i < 50; i++) { /* many turns, few requests */
        ask(LOOP_PARAMETER, 1);
        ask(LOOP_COPY, 1);
    }
    for (int step = 0; step < 40; step++) {
        ms_loop_call(loop, line);
        ask(LOOP_INPUT, 12 + step % 3); /* its threads ask in any order */
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 40);
    cr_assert_eq(found.site, LOOP_INPUT);
    cr_assert_eq(found.confidence, 1);
}

Test(order, compiling_may_ask_for_more_than_all_steps)
{
    const uint32_t line = ms_definitions_site(known.definitions, LOOP_INPUT)->python;

    for (int i = 0; i < 30; i++) {
        ask(LOOP_PARAMETER, 20);
        ask(LOOP_COPY, 20);
    }
    for (int step = 0; step < 40; step++) {
        ms_loop_call(loop, line);
        ask(LOOP_INPUT, 5);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 40);
}

/* Keras's fit with a callback that makes something after each batch. The program's own line called
 * functions before the first step, too; and the first call, which traces, is reached in another
 * way. */
Test(order, a_callback_beside_the_calls_hides_no_steps)
{
    const uint32_t before = ms_definitions_site(known.definitions, LOOP_PACKAGE)->python;
    const uint32_t line = ms_definitions_site(known.definitions, LOOP_PACKAGE_UPDATE)->python;

    ask(LOOP_PARAMETER, 100);
    for (int i = 0; i < 4; i++) { /* they compile */
        ms_loop_call(loop, before);
        ask(LOOP_PACKAGE, 100);
    }
    ask(LOOP_KEPT, 1);
    for (int step = 1; step < 40; step++) {
        ms_loop_call(loop, line);
        ask(LOOP_PACKAGE_UPDATE, 10);
        ask(LOOP_KEPT, 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 39);
    cr_assert_eq(found.site, LOOP_PACKAGE_UPDATE);
    cr_assert_eq(found.confidence, 1);
}

Test(order, calls_after_a_longer_loop_are_no_steps)
{
    const uint32_t line = ms_definitions_site(known.definitions, LOOP_KEPT)->python;

    steps(100, 12);
    for (int call = 0; call < 20; call++) {
        ms_loop_call(loop, line);
        ask(LOOP_KEPT, 5);
    }
    cr_assert_not(judge());
}

Test(order, a_validation_after_each_epoch_is_no_step)
{
    const uint32_t trains = ms_definitions_site(known.definitions, LOOP_INPUT)->python;
    const uint32_t validates = ms_definitions_site(known.definitions, LOOP_KEPT)->python;

    for (int epoch = 0; epoch < 4; epoch++) {
        for (int step = 0; step < 40; step++) {
            ms_loop_call(loop, trains);
            ask(LOOP_INPUT, 12);
        }
        for (int batch = 0; batch < 10; batch++) {
            ms_loop_call(loop, validates);
            ask(LOOP_KEPT, 5);
        }
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 160);
    cr_assert_eq(found.site, LOOP_INPUT);
}

Test(order, a_call_that_asks_for_nothing_is_no_step)
{
    const uint32_t line = ms_definitions_site(known.definitions, LOOP_INPUT)->python;

    for (int call = 0; call < 40; call++) {
        ms_loop_call(loop, line);
        ask(LOOP_INPUT, call % 4 == 0 ? 12 : 0);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 10);
}

Test(order, sites_without_python_are_not_looked_at)
{
    for (int step = 0; step < 50; step++) {
        ask(LOOP_UNKNOWN, 1);
        ask(LOOP_GRADIENT, 3);
    }
    cr_assert_not(judge());
}

Test(order, of_long_runs_some_beginnings_are_kept)
{
    steps(5000, 2);
    cr_assert(judge());
    cr_assert_eq(found.count, 5000);

    const uint64_t *begins = (const uint64_t *)found.begins.at;
    const size_t kept = found.begins.bytes / sizeof(*begins);
    cr_assert_leq(kept, 512);
    cr_assert_geq(kept, 256);
    for (size_t i = 0; i < kept; i++) {
        cr_assert_eq(begins[i], 1 + i * found.every * 3);
    }
}

static void call_models(void)
{
    ms_loop_delete(loop);
    loop = ms_loop_new(known.definitions, known.landmarks);
    cr_assert_not_null(loop);
}

Test(order, inference_is_a_step_for_each_call_of_the_model)
{
    call_models();
    ask(LOOP_PARAMETER, 20);
    ask(LOOP_INPUT, 1); /* before the first call: of no step that can be told */
    for (int step = 0; step < 12; step++) {
        ask(LOOP_FORWARD, 5);
        ask(LOOP_KEPT, 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 12);
    cr_assert_eq(found.site, LOOP_FORWARD);
}

Test(order, parameters_and_layers_of_a_model_are_no_steps)
{
    call_models();
    for (int i = 0; i < 50; i++) {
        ask(LOOP_PARAMETER, 1);
        ask(LOOP_COPY, 1);
    }
    ask(LOOP_INPUT, 1);
    for (int layer = 0; layer < 50; layer++) {
        ask(LOOP_FORWARD, 1);
    }
    cr_assert_not(judge());
}

/* ---- a loop within a step, and an epoch of steps: what is made tells which */

#define WIDTH UINT64_C(1000)

enum { STEPS = 20, LAYERS = 6 };

Test(order, layers_in_the_function_of_the_step_are_no_steps)
{
    uint64_t x = 0, h = 0, y = 0;

    for (int step = 0; step < STEPS; step++) {
        bind(&x, LOOP_INPUT, WIDTH);
        for (int layer = 0; layer < LAYERS; layer++) {
            bind(&h, LOOP_OTHER_UPDATE, WIDTH);
            bind(&x, LOOP_KEPT, WIDTH);
        }
        bind(&y, LOOP_LOADED, 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, STEPS);
    cr_assert_eq(found.site, LOOP_INPUT);
}

/* Forward, backward, and an optimizer that goes over the layers again. */
Test(order, layers_of_a_training_step_are_no_steps)
{
    uint64_t acts[LAYERS + 1] = {0}, h = 0, g = 0, parameters[LAYERS] = {0}, leak = 0;

    for (int step = 0; step < STEPS; step++) {
        for (int layer = 0; layer <= LAYERS; layer++) {
            ms_loop_free(loop, acts[layer]);
        }
        acts[0] = make(LOOP_INPUT, WIDTH);
        for (int layer = 0; layer < LAYERS; layer++) {
            bind(&h, LOOP_OTHER_UPDATE, WIDTH);
            acts[layer + 1] = make(LOOP_KEPT, WIDTH);
        }
        bind(&g, LOOP_LOADED, WIDTH);
        for (int layer = 0; layer < LAYERS; layer++) {
            bind(&g, LOOP_PACKAGE_UPDATE, WIDTH);
            bind(&parameters[layer], LOOP_COPY, 10 * WIDTH);
        }
        leak = make(LOOP_STATE_TOO, WIDTH);
    }
    cr_assert_gt(leak, 0);
    cr_assert(judge());
    cr_assert_eq(found.count, STEPS);
}

/* The state that steps hand on is there in the next epoch, too. */
Test(order, steps_of_an_epoch_hand_on_what_the_next_epoch_begins_with)
{
    uint64_t x = 0, parameters = 0, score = 0;

    for (int epoch = 0; epoch < 12; epoch++) {
        for (int step = 0; step < 10; step++) {
            bind(&x, LOOP_INPUT, WIDTH);
            bind(&parameters, LOOP_KEPT, 10 * WIDTH);
        }
        for (int batch = 0; batch < 3; batch++) { /* it has the same name */
            bind(&x, LOOP_LOADED, WIDTH);
        }
        bind(&score, LOOP_OTHER_UPDATE, 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 120);
    cr_assert_eq(found.site, LOOP_INPUT);
}

/* Inference: nothing is handed on, and predictions are gathered for each epoch. */
Test(order, batches_whose_predictions_are_gathered_are_steps)
{
    uint64_t x = 0, p[10] = {0}, all = 0;

    for (int epoch = 0; epoch < 12; epoch++) {
        for (int batch = 0; batch < 10; batch++) {
            ms_loop_free(loop, epoch > 0 && batch == 0 ? p[0] : 0);
            bind(&x, LOOP_INPUT, WIDTH);
            p[batch] = make(LOOP_KEPT, WIDTH / 10);
        }
        bind(&all, LOOP_LOADED, WIDTH);
        for (int batch = 1; batch < 10; batch++) {
            ms_loop_free(loop, p[batch]);
        }
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 120);
}

/* Each prompt's answer has another length, so that no two rows of its tokens are alike. */
Test(order, tokens_of_a_package_that_the_program_calls_are_no_steps)
{
    call_models();
    uint64_t cache = 0;

    for (int prompt = 0; prompt < 16; prompt++) {
        make(LOOP_INPUT, 10);
        for (int token = 0; token < 5 + prompt * 7 % 11; token++) {
            bind(&cache, LOOP_PACKAGE, WIDTH);
            make(LOOP_PACKAGE_UPDATE, 1);
        }
        ms_loop_free(loop, cache);
        cache = 0;
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 16);
}

/* One line of the program makes a step by two calls of a package. */
Test(order, a_step_of_one_line_in_epochs_is_a_step)
{
    uint64_t x = 0, parameters = 0, score = 0;

    for (int epoch = 0; epoch < 12; epoch++) {
        for (int step = 0; step < 10; step++) {
            bind(&x, LOOP_INPUT, WIDTH);
            bind(&parameters, LOOP_UPDATE, 10 * WIDTH);
        }
        bind(&score, LOOP_KEPT, 1);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, 120);
}

/* The first step passes through another line of the package, which compiles. */
Test(order, a_step_that_compiles_is_a_step)
{
    for (int step = 0; step < STEPS; step++) {
        ask(step == 0 ? LOOP_STATE : LOOP_UPDATE, 3);
        ask(LOOP_KEPT, 1);
        ask(step == 0 ? LOOP_PACKAGE : LOOP_PACKAGE_UPDATE, 3);
    }
    cr_assert(judge());
    cr_assert_eq(found.count, STEPS);
}
