/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds: each rule by a loop in which it holds, and what looks like it and is not. */
#include <criterion/criterion.h>
#include <string.h>

#include "loop.h"

#define BYTES UINT64_C(1000)

enum { STEPS = 6, PARAMETERS = 8 };

static struct loop loop;
static bool resumed; /* the optimizer has its state */
static uint64_t parameter_id, gradient_id;

static void stop(void)
{
    loop_stop(&loop);
}

/* What a step of training asks for; its update asks for state in the first. */
static void train(bool dropped_at_once)
{
    uint64_t gradients[PARAMETERS];

    for (int step = 0; step < STEPS; step++) {
        const uint64_t input = loop_born(&loop, LOOP_INPUT, BYTES);
        const uint64_t saved = loop_born(&loop, LOOP_FORWARD, BYTES);

        loop_moment(&loop, LOOP_EVALUATION, BYTES);
        for (int i = 0; i < PARAMETERS; i++) {
            gradients[i] = loop_born(&loop, LOOP_GRADIENT, BYTES);
            loop_moment(&loop, LOOP_BACKWARD, BYTES);
            loop_moment(&loop, LOOP_RECOMPUTED, BYTES);
        }

        /* The last result of a pass outlives its last allocation, and is no gradient. */
        const uint64_t last = loop_born(&loop, LOOP_BACKWARD, 100 * BYTES);

        loop_died(&loop, saved, BYTES);
        loop_died(&loop, last, 100 * BYTES);
        loop.time_ns += 1000000;
        if (!dropped_at_once || step == 0) {
            if (step == 0 && !resumed) {
                loop_born(&loop, LOOP_STATE, 2 * BYTES);
            }
            loop_moment(&loop, LOOP_UPDATE, BYTES);
        }
        for (int i = 0; i < PARAMETERS; i++) {
            loop_died(&loop, gradients[i], BYTES);
        }
        loop_born(&loop, LOOP_KEPT, BYTES);
        loop_died(&loop, input, BYTES);
    }
}

/* A forward and its backward. */
static void pass_once(void)
{
    const uint64_t saved = loop_born(&loop, LOOP_FORWARD, BYTES);

    gradient_id = loop_born(&loop, LOOP_GRADIENT, BYTES);
    loop_moment(&loop, LOOP_BACKWARD, BYTES);
    loop_died(&loop, saved, BYTES);
}

static void start(void)
{
    loop_start(&loop);
    parameter_id = loop_born(&loop, LOOP_PARAMETER, BYTES);
    loop_born(&loop, LOOP_COPY, BYTES);
}

TestSuite(kinds, .init = start, .fini = stop);

static void expect(enum loop_site site, enum ms_kind kind, uint64_t bytes)
{
    const struct ms_site_kinds kinds = loop_kinds(&loop, site);

    cr_expect_str_eq(ms_kind_name(kinds.kind), ms_kind_name(kind), "site %d: %s, since %s", site,
                     ms_kind_name(kinds.kind), kinds.reason);
    cr_expect_eq(kinds.bytes[kind], bytes, "site %d: %zu bytes", site, (size_t)kinds.bytes[kind]);
}

Test(kinds, of_a_training_loop)
{
    train(false);
    loop_end(&loop);
    expect(LOOP_PARAMETER, MS_KIND_PARAMETERS, BYTES);
    expect(LOOP_COPY, MS_KIND_PERSISTENT, BYTES);
    expect(LOOP_GRADIENT, MS_KIND_GRADIENTS, UINT64_C(1) * STEPS * PARAMETERS * BYTES);
    expect(LOOP_BACKWARD, MS_KIND_TEMPORARY, UINT64_C(1) * STEPS * (PARAMETERS + 100) * BYTES);
    expect(LOOP_RECOMPUTED, MS_KIND_ACTIVATIONS, UINT64_C(1) * STEPS * PARAMETERS * BYTES);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, 2 * BYTES);
    expect(LOOP_UPDATE, MS_KIND_TEMPORARY, UINT64_C(1) * STEPS * BYTES);
    expect(LOOP_FORWARD, MS_KIND_ACTIVATIONS, UINT64_C(1) * STEPS * BYTES);
    expect(LOOP_EVALUATION, MS_KIND_TEMPORARY, UINT64_C(1) * STEPS * BYTES);
    expect(LOOP_KEPT, MS_KIND_PERSISTENT, UINT64_C(1) * STEPS * BYTES);
}

/* Gradients die before anything else is asked for: they are told from the pass's last result. */
Test(kinds, of_gradients_that_are_dropped_at_once)
{
    train(true);
    loop_end(&loop);
    expect(LOOP_GRADIENT, MS_KIND_GRADIENTS, UINT64_C(1) * STEPS * PARAMETERS * BYTES);
    expect(LOOP_BACKWARD, MS_KIND_TEMPORARY, UINT64_C(1) * STEPS * (PARAMETERS + 100) * BYTES);
}

Test(kinds, of_an_optimizer_of_ones_own)
{
    train(false);
    loop_born(&loop, LOOP_OWN_UPDATE, BYTES);
    train(false);
    loop_end(&loop);
    expect(LOOP_OWN_UPDATE, MS_KIND_OPTIMIZER, BYTES);
}

/* Without gradients no function named step is an optimizer's: a simulation, a server, a loop. */
Test(kinds, of_a_step_where_nothing_is_trained, .init = NULL)
{
    loop_start_without_training(&loop);
    for (int i = 0; i < STEPS; i++) {
        loop_moment(&loop, LOOP_INPUT, BYTES);
        loop_born(&loop, LOOP_OWN_UPDATE, BYTES);
    }
    loop_end(&loop);
    expect(LOOP_OWN_UPDATE, MS_KIND_PERSISTENT, UINT64_C(1) * STEPS * BYTES);
}

/* Nothing has died, and no pass has come: what a call of the model asked for is no part of it. */
Test(kinds, of_a_run_that_ends_in_its_first_step)
{
    loop_born(&loop, LOOP_FORWARD, BYTES);
    loop_end(&loop);
    expect(LOOP_PARAMETER, MS_KIND_PARAMETERS, BYTES);
    expect(LOOP_COPY, MS_KIND_PERSISTENT, BYTES);
    expect(LOOP_FORWARD, MS_KIND_ACTIVATIONS, BYTES);
}

/* What the last step began is as what the same lines made before. */
Test(kinds, of_a_run_that_ends_within_a_step)
{
    train(false);
    loop_born(&loop, LOOP_INPUT, BYTES);
    loop_born(&loop, LOOP_FORWARD, BYTES);
    loop_born(&loop, LOOP_EVALUATION, BYTES);
    loop_born(&loop, LOOP_KEPT, BYTES);
    loop_end(&loop);
    expect(LOOP_INPUT, MS_KIND_TEMPORARY, UINT64_C(1) * (STEPS + 1) * BYTES);
    expect(LOOP_FORWARD, MS_KIND_ACTIVATIONS, UINT64_C(1) * (STEPS + 1) * BYTES);
    expect(LOOP_EVALUATION, MS_KIND_TEMPORARY, UINT64_C(1) * (STEPS + 1) * BYTES);
    expect(LOOP_KEPT, MS_KIND_PERSISTENT, UINT64_C(1) * (STEPS + 1) * BYTES);
}

/* It dies in its second step; the state goes before the parameters, as the program falls apart. */
Test(kinds, of_a_run_that_runs_out_in_its_second_step)
{
    const uint64_t first = loop_born(&loop, LOOP_FORWARD, BYTES);
    uint64_t state;

    loop_moment(&loop, LOOP_BACKWARD, BYTES);
    loop_died(&loop, first, BYTES);
    state = loop_born(&loop, LOOP_STATE, 2 * BYTES);
    loop_moment(&loop, LOOP_UPDATE, BYTES);

    const uint64_t second = loop_born(&loop, LOOP_FORWARD, BYTES);

    loop.end.ran_out_ns = loop.time_ns + 1;
    loop_died(&loop, second, BYTES);
    loop_died(&loop, state, 2 * BYTES);
    loop_end(&loop);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, 2 * BYTES);
    expect(LOOP_FORWARD, MS_KIND_ACTIVATIONS, 2 * BYTES);
}

/* Its first step was its last: at the end the state goes first, then the gradients, then the model.
 * Which of the step's memory was to stay is seen from when it goes: what asked last, with the
 * update's results, goes as the step returns. */
static void end_after_the_first_step(const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        loop_died(&loop, ids[i], BYTES);
    }
    loop_died(&loop, gradient_id, BYTES);
    loop_died(&loop, parameter_id, BYTES);
    loop_end(&loop);
}

Test(kinds, of_a_run_that_ends_after_its_first_step)
{
    uint64_t ids[4];

    pass_once();
    ids[2] = loop_born(&loop, LOOP_STATE, BYTES);
    ids[3] = loop_born(&loop, LOOP_STATE, BYTES);
    ids[0] = loop_born(&loop, LOOP_UPDATE, BYTES);
    ids[1] = loop_born(&loop, LOOP_UPDATE, BYTES);
    end_after_the_first_step(ids, 4);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, 2 * BYTES);
    expect(LOOP_UPDATE, MS_KIND_TEMPORARY, 2 * BYTES);
    expect(LOOP_PARAMETER, MS_KIND_PARAMETERS, BYTES);
}

/* As of momentum, which is made last. */
Test(kinds, of_a_first_step_that_makes_state_last)
{
    uint64_t ids[4];

    pass_once();
    ids[0] = loop_born(&loop, LOOP_UPDATE, BYTES);
    ids[1] = loop_born(&loop, LOOP_UPDATE, BYTES);
    ids[2] = loop_born(&loop, LOOP_STATE, BYTES);
    ids[3] = loop_born(&loop, LOOP_STATE, BYTES);
    end_after_the_first_step(ids, 4);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, 2 * BYTES);
    expect(LOOP_UPDATE, MS_KIND_TEMPORARY, 2 * BYTES);
}

/* As of a fused Adam: both parts of the state, parameter by parameter. */
Test(kinds, of_a_first_step_that_makes_state_in_turn)
{
    uint64_t ids[4];

    pass_once();
    for (int i = 0; i < 4; i += 2) {
        ids[i] = loop_born(&loop, LOOP_STATE, BYTES);
        ids[i + 1] = loop_born(&loop, LOOP_UPDATE, BYTES);
    }
    end_after_the_first_step(ids, 4);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, 2 * BYTES);
    expect(LOOP_UPDATE, MS_KIND_OPTIMIZER, 2 * BYTES);
}

/* What is freed in between, as the last results of a forward, says nothing of what was there. */
Test(kinds, of_a_run_that_ends_in_the_forward_after_its_first_step)
{
    uint64_t ids[3];

    pass_once();
    ids[1] = loop_born(&loop, LOOP_STATE, BYTES);
    loop_moment(&loop, LOOP_UPDATE, BYTES);
    ids[0] = loop_born(&loop, LOOP_EVALUATION, BYTES);
    ids[2] = loop_born(&loop, LOOP_FORWARD, BYTES);
    end_after_the_first_step(ids, 3);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, BYTES);
    expect(LOOP_UPDATE, MS_KIND_TEMPORARY, BYTES);
}

/* What waits for a backward pass that did not end is not kept. */
Test(kinds, of_a_run_that_runs_out_in_a_backward_pass)
{
    loop_born(&loop, LOOP_FORWARD, BYTES);
    loop_born(&loop, LOOP_BACKWARD, BYTES);
    loop.end.ran_out_ns = loop.time_ns + 1;
    loop.end.in_pass = true;
    loop_end(&loop);
    expect(LOOP_FORWARD, MS_KIND_ACTIVATIONS, BYTES);
    expect(LOOP_PARAMETER, MS_KIND_PARAMETERS, BYTES);
    expect(LOOP_COPY, MS_KIND_PERSISTENT, BYTES);
}

Test(kinds, of_what_fsdp_gathers)
{
    loop_moment(&loop, LOOP_GATHERED, BYTES);
    train(false);
    loop_end(&loop);
    expect(LOOP_GATHERED, MS_KIND_COMMUNICATION, BYTES);
}

Test(kinds, of_what_has_no_stack)
{
    loop_moment(&loop, LOOP_UNKNOWN, BYTES);
    loop_end(&loop);
    expect(LOOP_UNKNOWN, MS_KIND_UNKNOWN, BYTES);
}

/* What a checkpoint brought is the optimizer's where that has made no state in its steps. */
Test(kinds, of_what_a_checkpoint_brought)
{
    const uint64_t copied = loop_born(&loop, LOOP_LOADED, BYTES);

    loop_born(&loop, LOOP_LOADED, 2 * BYTES);
    loop_died(&loop, copied, BYTES);
    train(true);
    loop_end(&loop);
    expect(LOOP_LOADED, MS_KIND_PERSISTENT, 2 * BYTES);
    expect(LOOP_STATE, MS_KIND_OPTIMIZER, 2 * BYTES);
}

Test(kinds, of_a_run_that_was_resumed)
{
    const uint64_t copied = loop_born(&loop, LOOP_LOADED, BYTES);

    loop_born(&loop, LOOP_LOADED, 2 * BYTES);
    loop_died(&loop, copied, BYTES);
    resumed = true;
    train(false);
    resumed = false;
    loop_end(&loop);
    expect(LOOP_LOADED, MS_KIND_OPTIMIZER, 2 * BYTES);
}

/* One stack in backward makes gradients and what is over at once: each is counted as what it was.
 */
Test(kinds, of_a_site_that_makes_two)
{
    for (int step = 0; step < STEPS; step++) {
        loop_moment(&loop, LOOP_FORWARD, BYTES);
        for (int i = 0; i < 3; i++) {
            loop_moment(&loop, LOOP_GRADIENT, BYTES);
        }

        const uint64_t gradient = loop_born(&loop, LOOP_GRADIENT, BYTES);

        loop_moment(&loop, LOOP_BACKWARD, 1);
        loop_moment(&loop, LOOP_UPDATE, BYTES);
        loop_died(&loop, gradient, BYTES);
    }
    loop_end(&loop);

    const struct ms_site_kinds kinds = loop_kinds(&loop, LOOP_GRADIENT);

    cr_assert_eq(kinds.bytes[MS_KIND_GRADIENTS], STEPS * BYTES);
    cr_assert_eq(kinds.bytes[MS_KIND_TEMPORARY], 3 * BYTES * STEPS);
    cr_assert_eq(kinds.kind, MS_KIND_GRADIENTS, "at the peak it is the gradient: %s", kinds.reason);
    cr_assert_eq(kinds.second, MS_KIND_TEMPORARY);
}

/* What was live at the peak, by kind, adds up to the peak. */
Test(kinds, at_the_peak_add_up)
{
    uint64_t told = 0, held = 0;

    train(false);
    loop_end(&loop);
    for (int site = 1; site <= LOOP_UNKNOWN; site++) {
        const struct ms_site_kinds kinds = loop_kinds(&loop, (enum loop_site)site);
        struct ms_site_sums sums;

        held += ms_site_table_read(loop.table, 0, (uint32_t)site, &sums) ? sums.at_peak_bytes : 0;
        for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
            told += kinds.at_peak_bytes[kind];
        }
    }
    cr_assert_gt(held, 0);
    cr_assert_eq(told, held);
}

static void tell_arena(enum ms_event_kind kind, uint64_t addr, uint8_t device)
{
    const struct ms_event event = {.kind = (uint8_t)kind,
                                   .device = device,
                                   .addr = addr,
                                   .bytes = 100 * BYTES,
                                   .aux = kind == MS_EVENT_BLOCK_FREE};

    ms_site_table_apply(loop.table, &event, loop.time_ns);
}

static void warm_up_and_capture(uint64_t arena)
{
    loop.addr = arena;
    loop_moment(&loop, LOOP_FORWARD, BYTES);
    tell_arena(MS_EVENT_ARENA_FROZEN, arena, 0);
    loop_moment(&loop, LOOP_FORWARD, 2 * BYTES);
    loop_born(&loop, LOOP_GRADIENT, 4 * BYTES);
    loop_moment(&loop, LOOP_UNKNOWN, 8 * BYTES);
}

/* Whatever asked for it, and however long it lived; what the same lines do elsewhere is as ever. */
Test(kinds, of_an_arena_that_a_capture_froze)
{
    enum { ARENA = 1 << 20 };

    warm_up_and_capture(ARENA);
    loop.addr = ARENA + 100 * BYTES; /* right behind it */
    loop_moment(&loop, LOOP_FORWARD, 16 * BYTES);
    loop.addr = ARENA - 1;
    loop_moment(&loop, LOOP_FORWARD, 32 * BYTES);
    loop.addr = ARENA + 100 * BYTES - 1;
    loop_born(&loop, LOOP_FORWARD, 64 * BYTES);
    loop_end(&loop);
    expect(LOOP_GRADIENT, MS_KIND_GRAPHS, 4 * BYTES);
    expect(LOOP_UNKNOWN, MS_KIND_GRAPHS, 8 * BYTES);
    expect(LOOP_FORWARD, MS_KIND_GRAPHS, 66 * BYTES);

    const struct ms_site_kinds kinds = loop_kinds(&loop, LOOP_FORWARD);

    cr_assert_eq(kinds.bytes[MS_KIND_TEMPORARY], 49 * BYTES);
}

/* Its addresses are another arena's then. Others stay frozen, in whatever order they were. */
Test(kinds, of_an_arena_after_a_frozen_one)
{
    enum { ARENA = 1 << 20, NEXT = 2 << 20, FIRST = 1 << 19 };

    warm_up_and_capture(ARENA);
    tell_arena(MS_EVENT_ARENA_FROZEN, NEXT, 0);
    tell_arena(MS_EVENT_ARENA_FROZEN, FIRST, 0);
    tell_arena(MS_EVENT_ARENA_FROZEN, 4 << 20, 1);
    tell_arena(MS_EVENT_BLOCK_FREE, ARENA, 0);
    loop.addr = ARENA;
    loop_moment(&loop, LOOP_UPDATE, BYTES);
    loop.addr = 4 << 20; /* another device's */
    loop_moment(&loop, LOOP_UPDATE, BYTES);
    loop.addr = NEXT + BYTES;
    loop_moment(&loop, LOOP_STATE, 2 * BYTES);
    loop.addr = FIRST + BYTES;
    loop_moment(&loop, LOOP_INPUT, 4 * BYTES);
    loop_end(&loop);
    expect(LOOP_UPDATE, MS_KIND_TEMPORARY, 2 * BYTES);
    expect(LOOP_STATE, MS_KIND_GRAPHS, 2 * BYTES);
    expect(LOOP_INPUT, MS_KIND_GRAPHS, 4 * BYTES);
}
