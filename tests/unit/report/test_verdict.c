/* SPDX-License-Identifier: Apache-2.0 */
/* Planted states: what the shim could have seen at an allocation that failed. */
#include <criterion/criterion.h>
#include <math.h>

#include "synthetic.h"

static void expect(const struct ms_oom_state *state, enum ms_verdict verdict, uint64_t short_bytes,
                   const char *sentence)
{
    char text[MS_SENTENCE_BYTES];
    uint64_t got_short;

    cr_expect_str_eq(ms_verdict_name(ms_verdict_decide(state, &got_short, text, sizeof(text))),
                     ms_verdict_name(verdict));
    cr_expect_eq(got_short, short_bytes, "short %lu, not %lu", got_short, short_bytes);
    cr_expect_str_eq(text, sentence);
}

/* 24 GiB, 400 MiB of context, everything else live in the pool. */
static struct ms_oom_state full(uint64_t pool_bytes, uint64_t requested_bytes)
{
    return (struct ms_oom_state){
        .requested_bytes = requested_bytes,
        .cap_bytes = 24 * GIB,
        .device_total_bytes = 24 * GIB,
        .charged_bytes = pool_bytes + 400 * MIB,
        .pool_bytes = pool_bytes,
        .context_bytes = 400 * MIB,
        .live_bytes = pool_bytes,
        .driver_free_bytes = 24 * GIB - pool_bytes - 400 * MIB,
    };
}

Test(verdict, demand)
{
    const struct ms_oom_state state = full(21 * GIB, 11 * GIB);

    expect(&state, MS_VERDICT_DEMAND, 8 * GIB + 400 * MIB,
           "OUT OF MEMORY: asked for 11.00 GiB, 8.39 GiB short of the device (24.00 GiB). demand: "
           "what is in use and the request come to 32.39 GiB on a device of 24.00 GiB, nothing is "
           "fragmented.");
}

Test(verdict, cap)
{
    struct ms_oom_state state = full(11 * GIB, 1 * GIB);

    state.cap_bytes = 12 * GIB;
    state.fraction_known = 1;
    state.fraction = 0.5;
    expect(&state, MS_VERDICT_CAP, 400 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of the cap (12.00 GiB, fraction "
           "0.5). cap: what is in use and the request come to 12.39 GiB, which the device (24.00 "
           "GiB) has; the cap does not allow it.");
}

Test(verdict, spill_limit)
{
    struct ms_oom_state state = full(23 * GIB, 2 * GIB);

    state.spill_limit_bytes = 4 * GIB;
    state.spill_left_bytes = 1 * GIB;
    expect(&state, MS_VERDICT_SPILL_LIMIT, 1 * GIB + 400 * MIB,
           "OUT OF MEMORY: asked for 2.00 GiB, 1.39 GiB short of the device (24.00 GiB). "
           "spill_limit: 3.00 GiB of the 4.00 GiB of host memory that live memory may move to are "
           "taken; with 5.00 GiB of it (MEMSHIM_SPILL_LIMIT) the request would have fitted.");
}

Test(verdict, what_no_spill_makes_fit_is_demand)
{
    char text[MS_SENTENCE_BYTES];
    struct ms_oom_state state = full(23 * GIB, 25 * GIB);

    state.spill_limit_bytes = 64 * GIB;
    state.spill_left_bytes = 1 * GIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, text, sizeof(text)), MS_VERDICT_DEMAND);
    state.requested_bytes = 2 * GIB; /* there was room, and still it could not go there */
    state.spill_left_bytes = 64 * GIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, text, sizeof(text)), MS_VERDICT_DEMAND);
}

Test(verdict, demand_even_without_the_cap)
{
    struct ms_oom_state state = full(11 * GIB, 20 * GIB);

    state.cap_bytes = 12 * GIB;

    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_DEMAND);
}

Test(verdict, fragmentation_in_holes_that_nobody_may_take)
{
    struct ms_oom_state state = full(23 * GIB, 1 * GIB);

    state.live_bytes = 20 * GIB;
    state.largest_free_bytes = 200 * MIB;
    expect(&state, MS_VERDICT_FRAGMENTATION, 400 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of the device (24.00 GiB). "
           "fragmentation: 3.00 GiB lie free in holes that could not be given elsewhere; the "
           "largest free range was 200.0 MiB.");
}

/* Both would have helped: what takes more away is the reason. */
Test(verdict, cap_or_fragmentation)
{
    struct ms_oom_state state = full(11 * GIB, 1 * GIB);

    state.cap_bytes = 12 * GIB;
    state.live_bytes = 10 * GIB;
    expect(
        &state, MS_VERDICT_CAP, 400 * MIB,
        "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of the cap (12.00 GiB). cap: what is "
        "in use and the request come to 12.39 GiB, 1.00 GiB of it in holes; the device (24.00 "
        "GiB) has that, the cap does not allow it.");

    state.cap_bytes = 23 * GIB;
    state.charged_bytes += 11 * GIB;
    state.pool_bytes += 11 * GIB;
    state.live_bytes += 9 * GIB;
    expect(&state, MS_VERDICT_FRAGMENTATION, 400 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of the cap (23.00 GiB). "
           "fragmentation: 3.00 GiB lie free in holes that could not be given elsewhere.");
}

Test(verdict, holes_that_would_not_have_been_enough_are_demand)
{
    struct ms_oom_state state = full(23 * GIB, 5 * GIB);

    state.live_bytes = 22 * GIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_DEMAND);
}

/* Free bytes that the pool could give elsewhere are no excuse: they count as free. */
Test(verdict, reclaimable_bytes_are_not_in_the_way)
{
    struct ms_oom_state state = full(20 * GIB, 10 * GIB);
    uint64_t short_bytes;

    state.live_bytes = 15 * GIB;
    state.reclaimable_bytes = 4 * GIB;
    state.pending_bytes = 1 * GIB;
    cr_expect_eq(
        ms_verdict_decide(&state, &short_bytes, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
        MS_VERDICT_DEMAND);
    cr_expect_eq(short_bytes, 1 * GIB + 400 * MIB);
}

Test(verdict, other_process)
{
    struct ms_oom_state state = full(10 * GIB, 4 * GIB);

    state.other_process_bytes = 12 * GIB;
    state.driver_free_bytes = 2 * GIB - 400 * MIB;
    expect(&state, MS_VERDICT_OTHER_PROCESS, 2 * GIB + 400 * MIB,
           "OUT OF MEMORY: asked for 4.00 GiB, 2.39 GiB short of what other processes leave of the "
           "device (12.00 GiB of 24.00 GiB). other_process: other processes hold 12.00 GiB of the "
           "device; without them the 14.39 GiB in use and asked for would have fitted.");
}

Test(verdict, pytorch_own_limit)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.source = MS_OOM_TORCH;
    expect(&state, MS_VERDICT_CAP, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB free below the device (24.00 GiB). "
           "cap: the bytes were there, PyTorch itself refused: its set_per_process_memory_fraction "
           "counts what it keeps cached.");
}

Test(verdict, a_page_that_did_not_fit_is_no_limit_of_pytorchs)
{
    struct ms_oom_state state = full(4 * GIB, 1 * MIB);

    state.source = MS_OOM_TORCH;
    state.refused_bytes = 20 * MIB;
    state.cap_bytes = 4 * GIB + 415 * MIB;
    expect(&state, MS_VERDICT_CAP, 5 * MIB,
           "OUT OF MEMORY: asked for 1.0 MiB, and PyTorch for 20.0 MiB to put it in, 5.0 MiB short "
           "of the cap (4.41 GiB). cap: what is in use and the request come to 4.41 GiB, which the "
           "device (24.00 GiB) has; the cap does not allow it.");
}

Test(verdict, a_refusal_with_the_bytes_there_blames_neither_the_cap_nor_pytorch)
{
    struct ms_oom_state state = full(4 * GIB, 1 * MIB);

    state.source = MS_OOM_TORCH;
    state.refused_bytes = 20 * MIB;
    state.cap_bytes = 4 * GIB + 440 * MIB;
    state.largest_free_bytes = 3 * MIB;
    expect(&state, MS_VERDICT_FRAGMENTATION, 0,
           "OUT OF MEMORY: asked for 1.0 MiB, and PyTorch for 20.0 MiB to put it in, with 40.0 MiB "
           "free below the cap (4.43 GiB). fragmentation: the bytes were free, but in no range "
           "that could serve the request; the largest free range was 3.0 MiB.");
}

Test(verdict, the_bytes_were_free_but_in_no_range)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.largest_free_bytes = 3 * MIB;
    expect(&state, MS_VERDICT_FRAGMENTATION, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB free below the device (24.00 GiB). "
           "fragmentation: the bytes were free, but in no range that could serve the request; the "
           "largest free range was 3.0 MiB.");
}

Test(verdict, the_bytes_were_freed_but_work_still_uses_them)
{
    struct ms_oom_state state = full(24 * GIB, 1 * GIB);

    state.pending_bytes = 2 * GIB;
    state.largest_free_bytes = 2 * GIB;
    state.pinned_by = MS_PINNED_BY_WORK;
    expect(&state, MS_VERDICT_FRAGMENTATION, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 1.61 GiB free below the device (24.00 GiB). "
           "fragmentation: 2.00 GiB were freed, but queued work may still use them, and did not "
           "end while that was waited for (MEMSHIM_WAIT_MS).");
}

/* Free bytes of the driver's are in no range of anybody's: nothing is fragmented. */
Test(verdict, the_driver_had_the_bytes_and_refused)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.driver_free_known = 1;
    state.largest_free_bytes = 3 * MIB;
    expect(&state, MS_VERDICT_NOT_DEVICE, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB free below the device (24.00 GiB). "
           "not_device: the driver says that 19.61 GiB are free, and the cap allows the request: "
           "something else was missing, such as host memory, address space (ulimit -v) or room in "
           "a memory pool of fixed size, or MPS has a limit, or the bytes came free just then.");

    /* Only with what lies free in the pool would it have fitted below the cap. */
    state.cap_bytes = 5 * GIB;
    state.live_bytes = 3 * GIB;
    state.reclaimable_bytes = 1 * GIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_FRAGMENTATION);
}

Test(verdict, the_control_group_has_a_limit)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.driver_free_known = 1;
    state.limited_by = MS_LIMITED_BY_CGROUP;
    state.limit_bytes = 6 * GIB;
    state.limit_used_bytes = 6 * GIB - 256 * MIB; /* another process of the group has the rest */
    expect(
        &state, MS_VERDICT_DRIVER_LIMIT, 768 * MIB,
        "OUT OF MEMORY: asked for 1.00 GiB, 768.0 MiB short of what the driver allows (6.00 GiB). "
        "driver_limit: the control group of this process may have 6.00 GiB of the device "
        "(dmem.max) and has 5.75 GiB; what is in use and the request come to 5.39 GiB.");

    /* The driver may say that no more is free than the limit leaves: nobody else is to blame. */
    state.driver_free_bytes = 256 * MIB;
    state.other_process_bytes = 24 * GIB - 4 * GIB - 400 * MIB - 256 * MIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_DRIVER_LIMIT);

    /* But what others really hold is. */
    state.other_process_bytes = 19 * GIB + 600 * MIB;
    state.limit_used_bytes = 0;
    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_OTHER_PROCESS);
}

Test(verdict, mps_has_a_limit)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.driver_free_known = 1;
    state.limited_by = MS_LIMITED_BY_MPS;
    state.limit_bytes = 5 * GIB;
    expect(
        &state, MS_VERDICT_DRIVER_LIMIT, 400 * MIB,
        "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of what the driver allows (5.00 GiB). "
        "driver_limit: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT allows this process 5.00 GiB of the "
        "device; what is in use and the request come to 5.39 GiB.");

    /* The cap is the tighter one. */
    state.cap_bytes = 4 * GIB + 800 * MIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_CAP);

    /* More is held than it would allow: nobody enforces it. */
    state.cap_bytes = 24 * GIB;
    state.limit_bytes = 3 * GIB;
    cr_expect_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_NOT_DEVICE);
}

Test(verdict, pytorch_has_a_limit_by_its_settings)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.source = MS_OOM_TORCH;
    state.limited_by = MS_LIMITED_BY_TORCH_CONF;
    state.limit_bytes = 5 * GIB;
    expect(&state, MS_VERDICT_CAP, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB free below the device (24.00 GiB). "
           "cap: the bytes were there, PyTorch itself refused: per_process_memory_fraction in "
           "PYTORCH_ALLOC_CONF allows it 5.00 GiB, what it keeps cached included.");
}

Test(verdict, a_damaged_state_is_harmless)
{
    struct ms_oom_state state;
    uint64_t random = 3;

    for (int i = 0; i < 100000; i++) {
        char text[MS_SENTENCE_BYTES];
        uint64_t words[sizeof(state) / 8];

        for (size_t w = 0; w < sizeof(words) / 8; w++) {
            words[w] = synthetic_random(&random);
        }
        memcpy(&state, words, sizeof(words));
        state.fraction = i % 3 == 0 ? NAN : state.fraction;
        cr_assert_lt(ms_verdict_decide(&state, NULL, text, sizeof(text)), MS_VERDICT_COUNT);
        cr_assert_lt(strlen(text), sizeof(text));
    }
}
