/* SPDX-License-Identifier: Apache-2.0 */
/* Every rung of the ladder, and the promise that fragmentation is not a reason to fail. */
#include "rig.h"

#define S1 ((ms_stream_t)101)
#define S2 ((ms_stream_t)102)

static struct rig *rig_of(uint64_t total_bytes, uint64_t cap_bytes)
{
    struct rig *rig = rig_make(GRANULE, total_bytes, cap_bytes);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S2), MS_OK);
    return rig;
}

Test(pool_ladder, expanding_goes_beside_free_memory)
{
    struct rig *rig = rig_of(256 * MIB, 256 * MIB);
    struct ms_block_info a = rig_alloc(rig, 3 * MIB, S1); /* one MiB stays idle behind it */
    struct ms_block_info b = rig_alloc(rig, 3 * MIB, S1);
    cr_assert_eq(b.addr, a.addr + 3 * MIB);
    cr_assert_eq(rig_stats(rig).reserved_bytes, 6 * MIB, "only one more granule was needed");
    rig_end(rig);
}

Test(pool_ladder, large_requests_take_few_chunks)
{
    struct rig *rig = rig_of(16384 * MIB, 16384 * MIB);
    (void)rig_alloc(rig, 512 * MIB, S1);
    cr_assert_leq(ms_dry_calls(rig->dry, MS_DRY_CHUNK_CREATE), 16);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_SET_ACCESS), 1);
    rig_end(rig);
}

Test(pool_ladder, large_chunks_shrink_to_what_the_budget_has_left)
{
    struct rig *rig = rig_of(1024 * MIB, 70 * MIB);
    (void)rig_alloc(rig, 70 * MIB, S1);
    cr_assert_eq(atomic_load(&rig->budget.charged_bytes), 70 * MIB);
    rig_end(rig);
}

Test(pool_ladder, the_cap_holds_and_a_free_helps)
{
    struct rig *rig = rig_of(256 * MIB, 10 * MIB);
    struct ms_block_info none;
    struct ms_block_info a = rig_alloc(rig, 6 * MIB, S1);
    cr_assert_eq(rig_try(rig, 6 * MIB, S1, &none), MS_ERR_NO_MEMORY);
    cr_assert_leq(atomic_load(&rig->budget.peak_charged_bytes), 10 * MIB);
    rig_free(rig, a, S1);
    (void)rig_alloc(rig, 10 * MIB, S1);
    rig_end(rig);
}

Test(pool_ladder, others_charges_count)
{
    struct rig *rig = rig_of(256 * MIB, 10 * MIB);
    struct ms_block_info none;
    cr_assert(ms_budget_charge(&rig->budget, MS_OWNER_FORWARDED, 7 * MIB));
    cr_assert_eq(rig_try(rig, 4 * MIB, S1, &none), MS_ERR_NO_MEMORY);
    (void)rig_alloc(rig, 2 * MIB, S1);
    ms_budget_discharge(&rig->budget, MS_OWNER_FORWARDED, 7 * MIB);
    (void)rig_alloc(rig, 8 * MIB, S1);
    rig_end(rig);
}

/* Every second of many two-MiB blocks is freed: half of memory is free, no two chunks together. */
static void checker_board(struct rig *rig, unsigned blocks, ms_stream_t free_on)
{
    struct ms_block_info block[64];
    for (unsigned k = 0; k < blocks; k++) {
        block[k] = rig_alloc(rig, 2 * MIB, S1);
        rig_work(rig, block[k], S1);
    }
    for (unsigned k = 0; k < blocks; k += 2) {
        rig_free(rig, block[k], free_on);
    }
}

Test(pool_ladder, free_chunks_move_under_a_request_that_fits_nowhere)
{
    struct rig *rig = rig_of(256 * MIB, 64 * MIB);
    checker_board(rig, 32, S1);
    ms_dry_finish(rig->dry, S1, 32);
    uint64_t created = rig_stats(rig).chunks_created;
    struct ms_block_info whole = rig_alloc(rig, 32 * MIB, S2);
    rig_work(rig, whole, S2);
    struct ms_pool_stats stats = rig_stats(rig);
    cr_assert_eq(stats.chunks_created, created, "moved, not made");
    cr_assert_eq(stats.chunks_moved, 16);
    cr_assert_eq(stats.free_bytes, 0);
    cr_assert_eq(atomic_load(&rig->budget.charged_bytes), 64 * MIB);
    rig_end(rig);
}

Test(pool_ladder, taking_waits_for_nothing_when_enough_is_idle)
{
    struct rig *rig = rig_of(256 * MIB, 64 * MIB);
    checker_board(rig, 32, S1);
    ms_dry_finish(rig->dry, S1, 32);
    struct ms_block_info busy = rig_alloc(rig, 2 * MIB, S2);
    rig_work(rig, busy, S2); /* something is always under way */
    uint64_t waits = ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT);
    (void)rig_alloc(rig, 20 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), waits);
    cr_assert_gt(rig_stats(rig).chunks_moved, 0);
    rig_end(rig);
}

Test(pool_ladder, backing_is_not_taken_from_under_work)
{
    struct rig *rig = rig_of(256 * MIB, 64 * MIB);
    checker_board(rig, 32, S1);
    ms_dry_set_stalled(rig->dry, true);
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 32 * MIB, S2, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(rig).unmaps, 0);
    rig_check(rig);
    ms_dry_set_stalled(rig->dry, false);
    (void)rig_alloc(rig, 32 * MIB, S2);
    cr_assert_gt(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0);
    rig_end(rig);
}

Test(pool_ladder, who_may_not_wait_does_not)
{
    struct rig *rig = rig_of(256 * MIB, 64 * MIB);
    checker_board(rig, 32, MS_STREAM_DEVICE);
    struct ms_request request = {.bytes = 32 * MIB, .stream = MS_STREAM_DEVICE, .may_wait = false};
    struct ms_block_info block;
    cr_assert_eq(ms_pool_alloc(rig->pool, &request, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0);
    request.may_wait = true;
    cr_assert_eq(ms_pool_alloc(rig->pool, &request, &block), MS_OK);
    cr_assert_gt(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0);
    rig_end(rig);
}

Test(pool_ladder, another_streams_memory_comes_behind_a_wait_when_the_cap_is_reached)
{
    struct rig *rig = rig_of(256 * MIB, 8 * MIB);
    struct ms_block_info a = rig_alloc(rig, 8 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    struct ms_block_info b = rig_alloc(rig, 4 * MIB, S2);
    cr_assert_eq(b.addr, a.addr);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_STREAM_WAIT), 1);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0, "the host does not wait");
    rig_work(rig, b, S2);
    struct ms_block_info c = rig_alloc(rig, 4 * MIB, S1);
    cr_assert_eq(c.addr, a.addr + 4 * MIB, "the rest is still its own stream's");
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_STREAM_WAIT), 1);
    rig_work(rig, c, S1);
    rig_end(rig);
}

/* A capture that another thread begins just now, a default stream that is known to no table: such
 * waits cannot be queued, and no other rung is barred by that. */
static void wait_is_refused(ms_status_t why)
{
    struct rig *rig = rig_of(256 * MIB, 8 * MIB);
    struct ms_block_info a = rig_alloc(rig, 8 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    ms_dry_fail(rig->dry, MS_DRY_STREAM_WAIT, 1, why);
    struct ms_block_info b = rig_alloc(rig, 4 * MIB, S2);
    cr_assert_gt(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0);
    rig_work(rig, b, S2);
    rig_end(rig);
}

Test(pool_ladder, where_no_wait_can_be_queued_the_host_waits)
{
    wait_is_refused(MS_ERR_NOT_SUPPORTED);
    wait_is_refused(MS_ERR_NOT_READY);
}

/* One of two streams never gets on; whichever it is, what the other frees is found. */
static void one_stands_still(ms_stream_t still, ms_stream_t moving, bool moving_first)
{
    struct rig *rig = rig_of(256 * MIB, 8 * MIB);
    struct ms_block_info a = rig_alloc(rig, 4 * MIB, S1);
    struct ms_block_info b = rig_alloc(rig, 4 * MIB, S2);
    ms_dry_set_stalled(rig->dry, true);
    cr_assert_eq(ms_dry_work(rig->dry, still, a.id, a.addr, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ms_dry_work(rig->dry, moving, b.id, b.addr, 512, 100000), MS_OK);
    rig_free(rig, moving_first ? b : a, moving_first ? moving : still);
    rig_free(rig, moving_first ? a : b, moving_first ? still : moving);
    struct ms_block_info c = rig_alloc(rig, 4 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(c.addr, b.addr);
    cr_assert_lt(ms_dry_now_ns(rig->dry), RIG_WAIT_NS / 10, "and long before time is up");
    rig_work(rig, c, still);
    rig_end(rig);
}

Test(pool_ladder, a_stream_that_stands_still_does_not_hide_one_that_moves)
{
    one_stands_still(S1, S2, true);
    one_stands_still(S1, S2, false);
    one_stands_still(S2, S1, true);
    one_stands_still(S2, S1, false);
}

Test(pool_ladder, a_chunk_too_large_for_the_place_is_exchanged_without_waiting)
{
    struct rig *rig = rig_of(4096 * MIB, 1090 * MIB);
    struct ms_block_info idle = rig_alloc(rig, 32 * MIB, MS_STREAM_DEVICE);
    (void)rig_alloc(rig, 1024 * MIB, MS_STREAM_DEVICE); /* more than large chunks are made for */
    struct ms_block_info wall = rig_alloc(rig, MIB, MS_STREAM_DEVICE);
    struct ms_block_info other = rig_alloc(rig, MIB, S2);
    struct ms_block_info own = rig_alloc(rig, 32 * MIB, S1);
    rig_free(rig, idle, MS_STREAM_DEVICE);
    rig_free(rig, other, S2);
    ms_pool_stream_gone(rig->pool, S2); /* looks at all that is pending */
    cr_assert_eq(rig_stats(rig).pending_bytes, 0);
    rig_work(rig, own, S1);
    rig_free(rig, own, S1);
    /* Its own 32 MiB and one granule more, which only the idle chunk of 32 MiB can pay for. */
    struct ms_block_info block = rig_alloc(rig, 34 * MIB + 512 * KIB, S1);
    cr_assert_eq(block.addr, other.addr, "from what is free before its own on");
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0);
    rig_work(rig, block, S1);
    rig_work(rig, wall, S1);
    rig_end(rig);
}

Test(pool_ladder, a_device_with_less_than_the_cap_moves_too)
{
    struct rig *rig = rig_of(64 * MIB, 1024 * MIB);
    checker_board(rig, 32, S1);
    ms_dry_finish(rig->dry, S1, 32);
    (void)rig_alloc(rig, 32 * MIB, S2);
    cr_assert_eq(rig_stats(rig).chunks_moved, 16);
    rig_end(rig);
}

Test(pool_ladder, large_free_chunks_serve_small_needs_and_the_other_way_round)
{
    struct rig *rig = rig_of(1024 * MIB, 96 * MIB);
    struct ms_block_info big = rig_alloc(rig, 96 * MIB, MS_STREAM_DEVICE);
    rig_free(rig, big, MS_STREAM_DEVICE);
    struct ms_block_info keep[3];
    for (int k = 0; k < 3; k++) {
        keep[k] = rig_alloc(rig, 20 * MIB, MS_STREAM_DEVICE);
    }
    rig_free(rig, keep[1], MS_STREAM_DEVICE);
    /* 56 MiB are free, in whole chunks fewer: whatever fits in those must succeed. */
    struct ms_block_info none;
    (void)rig_alloc(rig, 32 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_try(rig, 90 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    rig_end(rig);
}

Test(pool_ladder, all_free_memory_can_become_one_block_whatever_its_past)
{
    struct rig *rig = rig_of(1024 * MIB, 200 * MIB);
    uint64_t state = 99;
    struct ms_block_info block[40];
    bool live[40] = {false};
    for (int round = 0; round < 2000; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned k = (unsigned)(state >> 33) % 40;
        if (live[k]) {
            rig_free(rig, block[k], MS_STREAM_DEVICE);
            live[k] = false;
        } else {
            live[k] = rig_try(rig, ((state >> 17) % 12000 + 1) * KIB, MS_STREAM_DEVICE,
                              &block[k]) == MS_OK;
        }
    }
    for (int k = 0; k < 40; k++) {
        if (live[k]) {
            rig_free(rig, block[k], MS_STREAM_DEVICE);
        }
    }
    (void)rig_alloc(rig, 200 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(rig).free_bytes, 0);
    cr_assert_leq(atomic_load(&rig->budget.peak_charged_bytes), 200 * MIB);
    rig_end(rig);
}

Test(pool_ladder, a_place_beside_free_memory_is_given_up_where_it_cuts_a_chunk_that_is_needed)
{
    struct rig *rig = rig_of(1024 * MIB, 42 * MIB);
    struct ms_block_info hole = rig_alloc(rig, 4 * MIB, MS_STREAM_DEVICE);
    struct ms_block_info chunk = rig_alloc(rig, 32 * MIB, MS_STREAM_DEVICE);
    (void)rig_alloc(rig, 2 * MIB, MS_STREAM_DEVICE);
    struct ms_block_info granule = rig_alloc(rig, 2 * MIB, MS_STREAM_DEVICE);
    (void)rig_alloc(rig, 2 * MIB, MS_STREAM_DEVICE);
    rig_free(rig, hole, MS_STREAM_DEVICE);
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 4 * MIB);
    cr_assert(ms_budget_charge(&rig->budget, MS_OWNER_FORWARDED, 4 * MIB));
    rig_free(rig, chunk, MS_STREAM_DEVICE);
    rig_free(rig, granule, MS_STREAM_DEVICE);
    /* In the hole and 30 MiB of its neighbour it would lack 2 MiB; at a fresh place it fits. */
    (void)rig_alloc(rig, 34 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(ms_budget_free_bytes(&rig->budget), 0);
    cr_assert_eq(rig_stats(rig).chunks_moved, 2, "both move; nothing is trimmed and made anew");
    rig_end(rig);
}

Test(pool_ladder, trim_gives_back_what_is_idle_and_keeps_what_it_should)
{
    struct rig *rig = rig_of(256 * MIB, 256 * MIB);
    struct ms_block_info block[16];
    for (int k = 0; k < 16; k++) {
        block[k] = rig_alloc(rig, 2 * MIB, S1);
    }
    rig_work(rig, block[0], S1);
    for (size_t k = 0; k < 8; k++) {
        rig_free(rig, block[2 * k], MS_STREAM_DEVICE);
    }
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 0, "the host has not seen their work done");
    ms_dry_finish(rig->dry, S1, 1);
    cr_assert_eq(ms_pool_trim(rig->pool, 100 * MIB), 0);
    cr_assert_eq(ms_pool_trim(rig->pool, 6 * MIB), 10 * MIB);
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 6 * MIB);
    cr_assert_eq(rig_stats(rig).reserved_bytes, 16 * MIB);
    (void)rig_alloc(rig, 20 * MIB, S1);
    rig_end(rig);
}

Test(pool_ladder, a_hopeless_request_costs_no_cached_memory)
{
    struct rig *rig = rig_of(256 * MIB, 32 * MIB);
    struct ms_block_info a = rig_alloc(rig, 16 * MIB, MS_STREAM_DEVICE);
    (void)rig_alloc(rig, 16 * MIB, MS_STREAM_DEVICE);
    rig_free(rig, a, MS_STREAM_DEVICE);
    uint64_t unmaps = rig_stats(rig).unmaps;
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 20 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(rig).unmaps, unmaps);
    rig_end(rig);
}

Test(pool_ladder, more_addresses_are_reserved_when_one_segment_is_full)
{
    struct rig *rig = rig_of(16 * MIB, 16 * MIB); /* a segment has four times that */
    struct ms_block_info keep[8];
    /* Each round keeps one granule at a fresh address and frees the rest. */
    for (int k = 0; k < 8; k++) {
        uint64_t bytes = (uint64_t)(8 - k) * GRANULE;
        struct ms_block_info all = rig_alloc(rig, bytes, MS_STREAM_DEVICE);
        rig_free(rig, all, MS_STREAM_DEVICE);
        keep[k] = rig_alloc(rig, GRANULE, MS_STREAM_DEVICE);
    }
    for (int k = 0; k < 8; k += 2) {
        rig_free(rig, keep[k], MS_STREAM_DEVICE);
    }
    for (int k = 0; k < 12; k++) {
        struct ms_block_info half = rig_alloc(rig, 8 * MIB, MS_STREAM_DEVICE);
        rig_free(rig, half, MS_STREAM_DEVICE);
    }
    rig_end(rig);
}

/* ---- without virtual memory management */

static struct rig *plain_rig(uint64_t cap_bytes)
{
    struct rig *rig = rig_make(0, 256 * MIB, cap_bytes);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    return rig;
}

Test(pool_ladder, plain_chunks_are_carved_reused_and_released)
{
    struct rig *rig = plain_rig(256 * MIB);
    struct ms_block_info a = rig_alloc(rig, 1000, S1);
    struct ms_block_info b = rig_alloc(rig, 2000, S1);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_PLAIN_ALLOC), 1);
    struct ms_block_info c = rig_alloc(rig, 40 * MIB, S1);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_PLAIN_ALLOC), 2);
    rig_work(rig, b, S1);
    rig_free(rig, a, S1);
    rig_free(rig, b, S1);
    rig_free(rig, c, S1);
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 0);
    ms_dry_finish(rig->dry, S1, 1);
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 56 * MIB);
    cr_assert_eq(rig_stats(rig).reserved_bytes, 0);
    rig_end(rig);
}

Test(pool_ladder, plain_memory_is_trimmed_for_a_request_that_needs_the_room)
{
    struct rig *rig = plain_rig(64 * MIB);
    struct ms_block_info a = rig_alloc(rig, 30 * MIB, S1);
    struct ms_block_info b = rig_alloc(rig, 30 * MIB, S1);
    rig_free(rig, a, S1);
    rig_free(rig, b, S1);
    (void)rig_alloc(rig, 60 * MIB, S1);
    cr_assert_leq(atomic_load(&rig->budget.peak_charged_bytes), 64 * MIB);
    rig_end(rig);
}

Test(pool_ladder, plain_segments_shrink_to_what_the_budget_has)
{
    struct rig *rig = plain_rig(5 * MIB);
    (void)rig_alloc(rig, 1000, S1);
    (void)rig_alloc(rig, 2 * MIB, S1);
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 2 * MIB, S1, &none), MS_ERR_NO_MEMORY);
    rig_end(rig);
}

/* The work is done, nobody may wait, and only together with the budget is what was freed enough. */
Test(pool_ladder, what_is_done_is_seen_without_waiting)
{
    struct rig *rig = rig_make(GRANULE, 64 * MIB, 20 * MIB);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    struct ms_block_info keep = rig_alloc(rig, 2 * MIB, S1);
    struct ms_block_info freed = rig_alloc(rig, 10 * MIB, S1);
    rig_work(rig, freed, S1);
    ms_dry_finish(rig->dry, S1, UINT64_MAX);
    rig_free(rig, freed, S1);
    struct ms_request request = {.bytes = 16 * MIB, .stream = MS_STREAM_DEVICE};
    struct ms_block_info block;
    cr_assert_eq(ms_pool_alloc(rig->pool, &request, &block), MS_OK);
    cr_assert(ms_dry_accessible(rig->dry, block.addr, block.bytes));
    rig_free(rig, block, MS_STREAM_DEVICE);
    rig_free(rig, keep, S1);
    rig_end(rig);
}
