/* SPDX-License-Identifier: Apache-2.0 */
/* Planted states: what the shim could have seen at an allocation that failed. */
#include <criterion/criterion.h>
#include <math.h>

#include "report/trace/verdict_rule.h"
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
           "memory in use and the request come to 32.39 GiB on a device of 24.00 GiB, and nothing "
           "lay in holes.");
}

Test(verdict, cap)
{
    struct ms_oom_state state = full(11 * GIB, 1 * GIB);

    state.cap_bytes = 12 * GIB;
    state.fraction_known = 1;
    state.fraction = 0.5;
    expect(&state, MS_VERDICT_CAP, 400 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of the cap (12.00 GiB, fraction "
           "0.5). cap: memory in use and the request come to 12.39 GiB, which the device (24.00 "
           "GiB) has, but the cap does not allow.");
}

Test(verdict, others_have_the_rest_of_a_shared_cap)
{
    struct ms_oom_state state = full(1 * GIB, 2 * GIB);

    state.cap_bytes = 2 * GIB; /* what they leave */
    state.shared = (struct ms_shared_cap){
        .bytes = 12 * GIB,
        .others_bytes = 10 * GIB,
        .others = 3,
        .largest = {.bytes = 7 * GIB, .pid = 4711, .name = "python3"},
        .largest_rank = 5,
    };
    expect(&state, MS_VERDICT_CAP, 1 * GIB + 400 * MIB,
           "OUT OF MEMORY: asked for 2.00 GiB, 1.39 GiB short of what others leave of the cap "
           "(2.00 GiB of 12.00 GiB). cap: memory in use and the request come to 3.39 GiB, which "
           "the cap (12.00 GiB) allows, but other processes of its group hold 10.00 GiB of it (3, "
           "the largest rank 5, python3, pid 4711: 7.00 GiB).");
    state.shared.largest_rank = -1;
    state.shared.bytes = 3 * GIB; /* it would not do without them either */
    cr_expect_not(ms_verdict_of_shared_cap(&state));
}

Test(verdict, spill_limit)
{
    struct ms_oom_state state = full(23 * GIB, 2 * GIB);

    state.spill_limit_bytes = 4 * GIB;
    state.spill_left_bytes = 1 * GIB;
    expect(
        &state, MS_VERDICT_SPILL_LIMIT, 1 * GIB + 400 * MIB,
        "OUT OF MEMORY: asked for 2.00 GiB, 1.39 GiB short of the device (24.00 GiB). spill_limit: "
        "live memory takes 3.00 GiB of the 4.00 GiB of host memory that it may move to "
        "(MEMSHIM_SPILL_LIMIT); with the request it needs at least 4.39 GiB.");
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
           "fragmentation: 3.00 GiB are free in holes that could not be used elsewhere; the "
           "largest free range was 200.0 MiB.");
}

/* A part of the holes was usable, and not enough. */
Test(verdict, the_part_of_the_holes_that_is_to_blame)
{
    struct ms_oom_state state = full(23 * GIB, 2 * GIB);

    state.live_bytes = 20 * GIB;
    state.reclaimable_bytes = 1 * GIB;
    expect(&state, MS_VERDICT_FRAGMENTATION, 400 * MIB,
           "OUT OF MEMORY: asked for 2.00 GiB, 400.0 MiB short of the device (24.00 GiB). "
           "fragmentation: 2.00 GiB of the 3.00 GiB that are free in holes could not be used "
           "elsewhere.");
}

/* What is in use fits with the request: neither a larger cap nor a larger device was lacking. */
Test(verdict, holes_under_a_cap_are_fragmentation)
{
    struct ms_oom_state state = full(11 * GIB, 1 * GIB);

    state.cap_bytes = 12 * GIB;
    state.live_bytes = 10 * GIB;
    expect(&state, MS_VERDICT_FRAGMENTATION, 400 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of the cap (12.00 GiB). "
           "fragmentation: 1.00 GiB are free in holes that could not be used elsewhere.");
}

/* The same of a U-Net: the verdict was "cap", where the batch needed less than the cap. */
Test(verdict, a_unet_of_which_no_hole_could_be_taken)
{
    struct ms_oom_state state = full(0, 41 * MIB + 300 * KIB);

    state.cap_bytes = 1628 * MIB;
    state.charged_bytes = state.cap_bytes - (24 * MIB + 400 * KIB);
    state.pool_bytes = state.charged_bytes - state.context_bytes;
    state.live_bytes = state.pool_bytes - (68 * MIB + 700 * KIB);
    state.pinned_by = MS_PINNED_BY_NO_HOST;
    expect(&state, MS_VERDICT_FRAGMENTATION, 16 * MIB + 924 * KIB,
           "OUT OF MEMORY: asked for 41.3 MiB, 16.9 MiB short of the cap (1.59 GiB). "
           "fragmentation: 68.7 MiB are free in holes that could not be used elsewhere (no host "
           "memory could stand in for them).");
}

Test(verdict, where_hardly_anything_was_left_nothing_is_fragmented)
{
    struct ms_oom_state state = full(23 * GIB + 600 * MIB, 60 * MIB);

    state.live_bytes -= 51 * MIB;
    expect(&state, MS_VERDICT_DEMAND, 36 * MIB,
           "OUT OF MEMORY: asked for 60.0 MiB, 36.0 MiB short of the device (24.00 GiB). demand: "
           "memory in use and the request come to 23.99 GiB of 24.00 GiB, so hardly anything "
           "would be left; 51.0 MiB of what was free lay in holes.");
    state.cap_bytes = 23 * GIB + 1000 * MIB;
    state.device_total_bytes = 25 * GIB;
    expect(&state, MS_VERDICT_CAP, 60 * MIB,
           "OUT OF MEMORY: asked for 60.0 MiB, 60.0 MiB short of the cap (23.98 GiB). cap: memory "
           "in use and the request come to 23.99 GiB, which the device (25.00 GiB) has, but the "
           "cap does not allow; the 51.0 MiB in holes would not have been enough.");
}

/* PyTorch had got a page of 20 MiB, the second was refused, and it gave the first back: then more
 * is free than the tensor has. */
Test(verdict, pages_that_were_given_back_are_part_of_the_request)
{
    struct ms_oom_state state = full(4 * GIB, 30 * MIB);

    state.source = MS_OOM_TORCH;
    state.refused_bytes = 40 * MIB;
    state.driver_free_known = 1;
    state.cap_bytes = 4 * GIB + 434 * MIB;
    expect(&state, MS_VERDICT_CAP, 6 * MIB,
           "OUT OF MEMORY: asked for 30.0 MiB (PyTorch asked the driver for 40.0 MiB), 6.0 MiB "
           "short of the cap (4.42 GiB). cap: memory in use and the request come to 4526.0 MiB of "
           "4530.0 MiB, so hardly anything would be left.");
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
           "device; without them, memory in use and the request (14.39 GiB) would have fitted.");
}

Test(verdict, pytorch_own_limit)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.source = MS_OOM_TORCH;
    expect(&state, MS_VERDICT_CAP, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB of the device (24.00 GiB) free. cap: "
           "enough memory was free, but PyTorch itself refused: either "
           "set_per_process_memory_fraction allows no more (PyTorch counts its cache, too), or the "
           "program's own allocator in one of PyTorch's memory pools had no more.");
}

/* Also where the bytes lie in holes: nobody asked for them. */
Test(verdict, after_another_error_of_the_drivers_no_limit_is_blamed)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.source = MS_OOM_TORCH;
    state.driver_error = 801;
    expect(&state, MS_VERDICT_NOT_DEVICE, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB of the device (24.00 GiB) free. "
           "not_device: the device had room, but PyTorch gave up after the driver returned error "
           "801 (CUresult), which is not about memory.");
    state.cap_bytes = state.charged_bytes;
    state.reclaimable_bytes = 2 * GIB;
    cr_assert_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_NOT_DEVICE);
    state.reclaimable_bytes = 0;
    cr_assert_eq(ms_verdict_decide(&state, NULL, (char[MS_SENTENCE_BYTES]){0}, MS_SENTENCE_BYTES),
                 MS_VERDICT_CAP, "they were not there");
}

Test(verdict, a_page_that_did_not_fit_is_no_limit_of_pytorchs)
{
    struct ms_oom_state state = full(4 * GIB, 1 * MIB);

    state.source = MS_OOM_TORCH;
    state.refused_bytes = 20 * MIB;
    state.cap_bytes = 4 * GIB + 415 * MIB;
    expect(&state, MS_VERDICT_CAP, 5 * MIB,
           "OUT OF MEMORY: asked for 1.0 MiB (PyTorch asked the driver for 20.0 MiB), 5.0 MiB "
           "short of the cap (4.41 GiB). cap: memory in use and the request come to 4.39 GiB of "
           "4.41 GiB, so hardly anything would be left.");
}

Test(verdict, what_is_left_is_said_beside_what_pytorch_asks_for)
{
    struct ms_oom_state state = full(600 * MIB, 1 * MIB);

    state.source = MS_OOM_TORCH;
    state.refused_bytes = 20 * MIB;
    state.cap_bytes = 1016 * MIB;
    expect(&state, MS_VERDICT_CAP, 4 * MIB,
           "OUT OF MEMORY: asked for 1.0 MiB (PyTorch asked the driver for 20.0 MiB), 4.0 MiB "
           "short of the cap (1016.0 MiB). cap: memory in use and the request come to 1001.0 MiB "
           "of 1016.0 MiB; the 15.0 MiB that are left are less than the 20.0 MiB that PyTorch asks "
           "for at a time.");
}

Test(verdict, a_refusal_with_the_bytes_there_blames_neither_the_cap_nor_pytorch)
{
    struct ms_oom_state state = full(4 * GIB, 1 * MIB);

    state.source = MS_OOM_TORCH;
    state.refused_bytes = 20 * MIB;
    state.cap_bytes = 4 * GIB + 440 * MIB;
    state.largest_free_bytes = 3 * MIB;
    expect(&state, MS_VERDICT_NOT_DEVICE, 0,
           "OUT OF MEMORY: asked for 1.0 MiB (PyTorch asked the driver for 20.0 MiB), with 40.0 "
           "MiB of the cap (4.43 GiB) free. not_device: the device had room (40.0 MiB are free as "
           "far as is known), and the cap allows the request: something else was missing, such as "
           "host memory, address space (ulimit -v), room in a memory pool of fixed size or an MPS "
           "limit; or the memory became free just afterwards.");
}

Test(verdict, the_bytes_were_freed_but_work_still_uses_them)
{
    struct ms_oom_state state = full(24 * GIB, 1 * GIB);

    state.pending_bytes = 2 * GIB;
    state.largest_free_bytes = 2 * GIB;
    state.pinned_by = MS_PINNED_BY_WORK;
    expect(&state, MS_VERDICT_FRAGMENTATION, 1 * GIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 1.00 GiB short of the device (24.00 GiB). "
           "fragmentation: 2.00 GiB were freed, but queued work may still use them, and did not "
           "end while memshim waited for it (MEMSHIM_WAIT_MS).");
}

/* Free bytes of the driver's are in no range of anybody's: nothing is fragmented. */
Test(verdict, the_driver_had_the_bytes_and_refused)
{
    struct ms_oom_state state = full(4 * GIB, 1 * GIB);

    state.driver_free_known = 1;
    state.largest_free_bytes = 3 * MIB;
    expect(&state, MS_VERDICT_NOT_DEVICE, 0,
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB of the device (24.00 GiB) free. "
           "not_device: the device had room (the driver says that 19.61 GiB are free), and the cap "
           "allows the request: something else was missing, such as host memory, address space "
           "(ulimit -v), room in a "
           "memory pool of fixed size or an MPS limit; or the memory became free just afterwards.");

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
    expect(&state, MS_VERDICT_DRIVER_LIMIT, 768 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 768.0 MiB short of what the driver allows (6.00 "
           "GiB). driver_limit: the control group of this process may have 6.00 GiB of the device "
           "(dmem.max) and has 5.75 GiB; memory in use and the request come to 5.39 GiB.");

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
    expect(&state, MS_VERDICT_DRIVER_LIMIT, 400 * MIB,
           "OUT OF MEMORY: asked for 1.00 GiB, 400.0 MiB short of what the driver allows (5.00 "
           "GiB). driver_limit: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT allows this process 5.00 GiB of "
           "the device; memory in use and the request come to 5.39 GiB.");

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
           "OUT OF MEMORY: asked for 1.00 GiB, with 19.61 GiB of the device (24.00 GiB) free. cap: "
           "enough memory was free, but PyTorch itself refused: per_process_memory_fraction in "
           "PYTORCH_ALLOC_CONF allows it 5.00 GiB, including its cache.");
}

/* The host's room for what is spilled is no part of what the device holds. */
Test(verdict, what_lies_on_the_host_is_not_on_the_device)
{
    struct ms_oom_state state = full(20 * GIB, 2 * GIB);

    state.terms_known = 1;
    state.fixed_bytes = 3 * GIB + 400 * MIB; /* 3 GiB of the pool's are not: the program's own */
    state.pool_bytes -= 3 * GIB;
    state.application_bytes = 3 * GIB;
    state.live_bytes = 25 * GIB;
    state.spilled_bytes = 9 * GIB;

    const struct ms_verdict_terms terms = ms_verdict_terms(&state);

    cr_expect_eq(terms.live_bytes, 16 * GIB);
    cr_expect_eq(terms.hole_bytes, 1 * GIB);
    cr_expect_eq(ms_verdict_need_bytes(&terms), 21 * GIB + 400 * MIB);
    cr_expect_eq(terms.free_bytes, 24 * GIB - 20 * GIB - 400 * MIB);
}

/* Nor is what lies on the host because a hole's memory had gone elsewhere when it was born. */
Test(verdict, more_than_is_charged_is_not_on_the_device)
{
    struct ms_oom_state state = full(20 * GIB, 2 * GIB);

    state.terms_known = 1;
    state.fixed_bytes = state.context_bytes;
    state.live_bytes = 25 * GIB;

    const struct ms_verdict_terms terms = ms_verdict_terms(&state);

    cr_expect_eq(terms.live_bytes, 20 * GIB);
    cr_expect_eq(ms_verdict_rule(&terms), MS_VERDICT_NOT_DEVICE, "3.6 GiB were free");
}

/* Only of these it is said: elsewhere nothing that moved would have changed the verdict. */
Test(verdict, why_nothing_went_to_the_host)
{
    struct ms_oom_state state = full(21 * GIB, 11 * GIB);
    char why[MS_SENTENCE_BYTES];

    state.terms_known = 1;
    state.fixed_bytes = state.context_bytes;
    state.unspilled_by = MS_UNSPILLED_CAPTURE;
    cr_expect_eq(ms_verdict_parts(&state, NULL, NULL, 0, why, sizeof(why)), MS_VERDICT_DEMAND);
    cr_expect(strstr(why, "; while a stream captures, nothing moves to the host"), "%s", why);
    state.unspilled_by = MS_UNSPILLED_OFF;
    (void)ms_verdict_parts(&state, NULL, NULL, 0, why, sizeof(why));
    cr_expect_null(strstr(why, "host"), "%s", why);

    /* The host would have had room for it. */
    state.requested_bytes = 3 * GIB;
    state.spill_limit_bytes = state.spill_left_bytes = 8 * GIB;
    state.movable_bytes = 8 * GIB;
    cr_expect_eq(ms_verdict_parts(&state, NULL, NULL, 0, why, sizeof(why)), MS_VERDICT_NOT_DEVICE);
    cr_expect(strstr(why, "8.00 GiB of live memory could have moved to the host"), "%s", why);
}

/* ---- the rule, on both sides of each of its bounds ---- */

#define NONE UINT64_MAX

/* F, L, R, what was asked for to put it in, H, P, S, what S were without a limit, free; device,
 * others leave, the driver's limit, cap. F + L is 900 MiB where nothing else is said. */
struct rule_case {
    const char *what;
    uint64_t f, l, r, piece, h, p, s, movable, free, device, left, driver, cap;
    bool torch;
    enum ms_verdict verdict;
};

#define M MIB

static const struct rule_case rule_cases[] = {
    {"one byte more than the device", 100 * M, 800 * M, 124 * M + 1, 124 * M + 1, 0, 0, 0, 0,
     100 * M, 1024 * M, 1024 * M, NONE, 1000 * M, false, MS_VERDICT_DEMAND},
    {"all of the device, and the cap is less", 100 * M, 800 * M, 124 * M, 124 * M, 0, 0, 0, 0,
     100 * M, 1024 * M, 1024 * M, NONE, 1000 * M, false, MS_VERDICT_CAP},
    {"holes do not make a demand less", 100 * M, 800 * M, 125 * M, 125 * M, 99 * M, 0, 0, 0, 1 * M,
     1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_DEMAND},

    {"one byte more than others leave", 100 * M, 800 * M, 50 * M + 1, 50 * M + 1, 0, 0, 0, 0,
     50 * M, 1024 * M, 950 * M, NONE, 1024 * M, false, MS_VERDICT_OTHER_PROCESS},
    {"others leave as much as the cap", 100 * M, 800 * M, 50 * M + 1, 50 * M + 1, 0, 0, 0, 0,
     50 * M, 1024 * M, 950 * M, NONE, 950 * M, false, MS_VERDICT_CAP},
    {"others leave a byte less than the cap", 100 * M, 800 * M, 50 * M + 1, 50 * M + 1, 0, 0, 0, 0,
     50 * M, 1024 * M, 950 * M, NONE, 950 * M + 1, false, MS_VERDICT_OTHER_PROCESS},
    {"others leave more than the cap", 100 * M, 800 * M, 70 * M, 70 * M, 0, 0, 0, 0, 50 * M,
     1024 * M, 960 * M, NONE, 950 * M, false, MS_VERDICT_CAP},
    {"more than others leave, and than the device", 100 * M, 800 * M, 200 * M, 200 * M, 0, 0, 0, 0,
     50 * M, 1024 * M, 950 * M, NONE, 1024 * M, false, MS_VERDICT_DEMAND},

    {"one byte more than the driver allows", 100 * M, 800 * M, 40 * M + 1, 40 * M + 1, 0, 0, 0, 0,
     40 * M, 1024 * M, 1024 * M, 940 * M, 1000 * M, false, MS_VERDICT_DRIVER_LIMIT},
    {"the driver allows as much as the cap", 100 * M, 800 * M, 40 * M + 1, 40 * M + 1, 0, 0, 0, 0,
     40 * M, 1024 * M, 1024 * M, 940 * M, 940 * M, false, MS_VERDICT_CAP},

    {"one byte more than the cap", 100 * M, 800 * M, 50 * M + 1, 50 * M + 1, 0, 0, 0, 0, 50 * M,
     1024 * M, 1024 * M, NONE, 950 * M, false, MS_VERDICT_CAP},
    {"64 MiB below the device it is not demand", 100 * M, 800 * M, 60 * M, 60 * M, 124 * M, 0, 0, 0,
     0, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_FRAGMENTATION},
    {"PyTorch refused by itself", 100 * M, 300 * M, 50 * M, 50 * M, 0, 0, 0, 0, 624 * M, 1024 * M,
     1024 * M, NONE, 1024 * M, true, MS_VERDICT_CAP},
    {"PyTorch refused what no device would have had", 100 * M, 800 * M, 200 * M, 200 * M, 124 * M,
     0, 0, 0, 0, 1024 * M, 1024 * M, NONE, 1024 * M, true, MS_VERDICT_DEMAND},

    {"a byte more than 0.99 of the device", 100 * M, 800 * M, 90 * M + 1, 90 * M + 1, 100 * M, 0, 0,
     0, 0, 1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_DEMAND},
    {"0.99 of the device", 100 * M, 800 * M, 90 * M, 90 * M, 100 * M, 0, 0, 0, 0, 1000 * M,
     1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"a byte more than 0.99 of the cap", 100 * M, 800 * M, 90 * M + 1, 90 * M + 1, 100 * M, 0, 0, 0,
     0, 1024 * M, 1024 * M, NONE, 1000 * M, false, MS_VERDICT_CAP},
    {"0.99 of the cap", 100 * M, 800 * M, 90 * M, 90 * M, 100 * M, 0, 0, 0, 0, 1024 * M, 1024 * M,
     NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"0.99 of both: the nearer is the cap", 100 * M, 800 * M, 95 * M, 95 * M, 90 * M, 0, 0, 0, 0,
     1000 * M, 1000 * M, NONE, 999 * M, false, MS_VERDICT_CAP},
    {"a byte more than 0.99 of what others leave", 100 * M, 800 * M, 90 * M + 1, 90 * M + 1,
     100 * M, 0, 0, 0, 0, 1024 * M, 1000 * M, NONE, 1024 * M, false, MS_VERDICT_OTHER_PROCESS},
    {"nothing left but what waits for work", 100 * M, 800 * M, 95 * M, 95 * M, 0, 95 * M, 0, 0, 0,
     1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"nothing left, and a byte less waits", 100 * M, 800 * M, 95 * M, 95 * M, 0, 95 * M - 1, 0, 0,
     0, 1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_DEMAND},
    {"hardly anything left, but that was free", 100 * M, 800 * M, 95 * M, 95 * M, 0, 0, 0, 0,
     100 * M, 1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_NOT_DEVICE},

    {"the holes have what was lacking", 100 * M, 500 * M, 200 * M, 200 * M, 150 * M, 0, 0, 0,
     50 * M, 1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"what waits for work has it", 100 * M, 500 * M, 200 * M, 200 * M, 0, 150 * M, 0, 0, 50 * M,
     1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"both together have it", 100 * M, 500 * M, 200 * M, 200 * M, 75 * M, 75 * M, 0, 0, 50 * M,
     1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"they have a byte less", 100 * M, 500 * M, 200 * M, 200 * M, 75 * M, 75 * M - 1, 0, 0, 50 * M,
     1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_NOT_DEVICE},
    {"a byte was lacking", 100 * M, 500 * M, 200 * M, 200 * M, 200 * M, 0, 0, 0, 200 * M - 1,
     1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"nothing was lacking", 100 * M, 500 * M, 200 * M, 200 * M, 200 * M, 0, 0, 0, 200 * M, 1000 * M,
     1000 * M, NONE, 1000 * M, false, MS_VERDICT_NOT_DEVICE},

    {"a page of PyTorch's that no hole could have held", 100 * M, 870 * M, 1 * M, 20 * M, 14 * M, 0,
     0, 0, 0, 984 * M, 984 * M, NONE, 984 * M, false, MS_VERDICT_DEMAND},
    {"a page that holes could have held", 100 * M, 800 * M, 1 * M, 20 * M, 84 * M, 0, 0, 0, 0,
     984 * M, 984 * M, NONE, 984 * M, false, MS_VERDICT_FRAGMENTATION},

    {"the host had room, and was not the limit", 100 * M, 900 * M, 100 * M, 100 * M, 0, 0, 87 * M,
     87 * M, 24 * M, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_NOT_DEVICE},
    {"for no more than lacked: nothing was left", 100 * M, 900 * M, 100 * M, 100 * M, 0, 0, 76 * M,
     76 * M, 24 * M, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_DEMAND},
    {"for a byte less, and so much might move", 100 * M, 900 * M, 100 * M, 100 * M, 0, 0,
     76 * M - 1, 76 * M, 24 * M, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_SPILL_LIMIT},
    {"for a byte less, and no more might move", 100 * M, 900 * M, 100 * M, 100 * M, 0, 0,
     76 * M - 1, 76 * M - 1, 24 * M, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_DEMAND},
    {"nothing left, and more might move", 100 * M, 800 * M, 90 * M + 1, 90 * M + 1, 100 * M, 0, 0,
     800 * M, 0, 1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_SPILL_LIMIT},
    {"0.99, and more might move", 100 * M, 800 * M, 90 * M, 90 * M, 100 * M, 0, 0, 800 * M, 0,
     1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_FRAGMENTATION},
    {"nothing left but enough free, and more might move", 100 * M, 800 * M, 95 * M, 95 * M, 0, 0, 0,
     800 * M, 100 * M, 1000 * M, 1000 * M, NONE, 1000 * M, false, MS_VERDICT_NOT_DEVICE},
    {"all that is live may not be enough", 100 * M, 800 * M, 925 * M, 925 * M, 0, 0, 0, 800 * M,
     124 * M, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_DEMAND},
    {"all that is live would just have been", 100 * M, 800 * M, 924 * M, 924 * M, 0, 0, 0, 800 * M,
     124 * M, 1024 * M, 1024 * M, NONE, 1024 * M, false, MS_VERDICT_SPILL_LIMIT},
};

#undef M

Test(verdict, the_rule)
{
    for (size_t i = 0; i < sizeof(rule_cases) / sizeof(*rule_cases); i++) {
        const struct rule_case *is = &rule_cases[i];
        const struct ms_verdict_terms terms = {
            .fixed_bytes = is->f,
            .live_bytes = is->l,
            .pending_bytes = is->p,
            .request_bytes = is->r,
            .hole_bytes = is->h,
            .spillable_bytes = is->s,
            .movable_bytes = is->movable,
            .piece_bytes = is->piece,
            .free_bytes = is->free,
            .device_bytes = is->device,
            .others_leave_bytes = is->left,
            .driver_bytes = is->driver,
            .cap_bytes = is->cap,
            .torch_refused = is->torch,
        };

        cr_expect_str_eq(ms_verdict_name(ms_verdict_rule(&terms)), ms_verdict_name(is->verdict),
                         "%s: %s, not %s", is->what, ms_verdict_name(ms_verdict_rule(&terms)),
                         ms_verdict_name(is->verdict));
    }
}

/* However full the device is, it is not what was asked. */
Test(verdict, of_host_memory_the_device_is_never_the_reason)
{
    struct ms_oom_state state = synthetic_oom(40 * GIB, MS_OOM_HOST);
    char what[MS_SENTENCE_BYTES], why[MS_SENTENCE_BYTES];
    uint64_t short_bytes = 1;

    cr_expect_eq(ms_verdict_parts(&state, &short_bytes, what, sizeof(what), why, sizeof(why)),
                 MS_VERDICT_NOT_DEVICE);
    cr_expect_eq(short_bytes, 0);
    cr_expect_str_eq(what,
                     "asked for 40.00 GiB of page-locked host memory, and the driver refused");
    cr_expect_str_eq(why,
                     "not_device: the host refused, and the device was not asked: the host has "
                     "no more memory that can be page-locked");
    state.source = MS_OOM_DRIVER;
    cr_expect_eq(ms_verdict_parts(&state, &short_bytes, NULL, 0, NULL, 0), MS_VERDICT_DEMAND);
}

static void expect_sum(const struct ms_oom_state *state, const char *sum)
{
    char text[MS_SENTENCE_BYTES];

    ms_verdict_sum_text(state, text, sizeof(text));
    cr_expect_str_eq(text, sum);
}

/* What was asked for, less what was there, is what was short; in figures that add up. */
Test(verdict, the_sum_of_what_was_short)
{
    struct ms_oom_state state = full(24 * GIB - 500 * MIB, 512 * MIB);

    expect_sum(&state, "512.0 MiB asked for - 100.0 MiB free = 412.0 MiB");
    state.source = MS_OOM_TORCH;
    state.refused_bytes = 520 * MIB;
    state.reclaimable_bytes = 20 * MIB;
    expect_sum(&state, "520.0 MiB that PyTorch asked the driver for, to place 512.0 MiB in it - "
                       "100.0 MiB free - 20.0 MiB in holes = 400.0 MiB");
    state.refused_bytes = 0;
    state.other_process_bytes = 300 * MIB;
    expect_sum(&state, "512.0 MiB asked for + 200.0 MiB in use beyond the bound - 20.0 MiB in "
                       "holes = 692.0 MiB");

    /* Not all that lies in holes could be had. */
    state = full(24 * GIB - 500 * MIB, 512 * MIB);
    state.reclaimable_bytes = 20 * MIB;
    state.live_bytes -= 50 * MIB;
    expect_sum(&state, "512.0 MiB asked for - 100.0 MiB free - 20.0 MiB that could be had of the "
                       "50.0 MiB in holes = 392.0 MiB");

    /* It would have fitted with the holes, of which none served. */
    state = full(24 * GIB - 500 * MIB, 512 * MIB);
    state.reclaimable_bytes = GIB;
    expect_sum(&state, "512.0 MiB asked for - 100.0 MiB free = 412.0 MiB");
    state = full(4 * GIB, 512 * MIB);
    expect_sum(&state, "");
    state = synthetic_oom(40 * GIB, MS_OOM_HOST);
    expect_sum(&state, "");
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
