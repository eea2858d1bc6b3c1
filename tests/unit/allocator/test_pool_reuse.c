/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, and the order in which their memory is handed out again. */
#include "rig.h"

#define S1 ((ms_stream_t)101)
#define S2 ((ms_stream_t)102)

static struct rig *rig_with_streams(void)
{
    struct rig *rig = rig_make(GRANULE, 256 * MIB, 256 * MIB);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S2), MS_OK);
    return rig;
}

Test(pool_reuse, nothing_is_taken_before_the_first_allocation)
{
    struct rig *rig = rig_make(GRANULE, 256 * MIB, 256 * MIB);
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        cr_assert_eq(ms_dry_calls(rig->dry, (enum ms_dry_op)op), 0);
    }
    rig_end(rig);
}

Test(pool_reuse, blocks_are_apart_aligned_and_found)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 1, S1);
    struct ms_block_info b = rig_alloc(rig, 513, S2);
    struct ms_block_info c = rig_alloc(rig, 5 * MIB + 1, MS_STREAM_DEVICE);
    cr_assert(a.addr + 512 <= b.addr || b.addr + 1024 <= a.addr);
    cr_assert_neq(a.id, b.id);
    struct ms_block_info found;
    cr_assert_eq(ms_pool_find(rig->pool, c.addr + 3 * MIB, &found), MS_OK);
    cr_assert_eq(found.id, c.id);
    cr_assert_eq(found.bytes, 5 * MIB + 1);
    cr_assert_eq(found.stream, MS_STREAM_DEVICE);
    cr_assert_eq(found.site, 7);
    cr_assert_eq(ms_pool_find(rig->pool, c.addr + 5 * MIB + 1, &found), MS_ERR_NOT_OURS,
                 "one past the end is outside");
    cr_assert_eq(ms_pool_find(rig->pool, 0x1234, &found), MS_ERR_NOT_OURS);
    rig_end(rig);
}

Test(pool_reuse, pins_are_kept)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 4096, S1);
    cr_assert_not(a.pinned);
    cr_assert_eq(ms_pool_pin(rig->pool, a.addr + 100), MS_OK);
    cr_assert_eq(ms_pool_find(rig->pool, a.addr, &a), MS_OK);
    cr_assert(a.pinned);
    rig_free(rig, a, S1);
    cr_assert_eq(ms_pool_pin(rig->pool, a.addr), MS_ERR_NOT_OURS);
    struct ms_block_info again = rig_alloc(rig, 4096, S1);
    cr_assert_eq(again.addr, a.addr);
    cr_assert_not(again.pinned, "a pin ends with its block");
    rig_end(rig);
}

Test(pool_reuse, marks_end_with_their_block)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 4096, S1);
    cr_assert_not(a.marked);
    cr_assert_eq(ms_pool_mark(rig->pool, a.addr + 100, true), MS_OK);
    cr_assert_eq(ms_pool_find(rig->pool, a.addr, &a), MS_OK);
    cr_assert(a.marked);
    cr_assert_eq(ms_pool_mark(rig->pool, a.addr, false), MS_OK);
    cr_assert_eq(ms_pool_find(rig->pool, a.addr, &a), MS_OK);
    cr_assert_not(a.marked);
    cr_assert_eq(ms_pool_mark(rig->pool, a.addr, true), MS_OK);
    rig_free(rig, a, S1);
    cr_assert_eq(ms_pool_mark(rig->pool, a.addr, true), MS_ERR_NOT_OURS);
    struct ms_block_info again = rig_alloc(rig, 4096, S1);
    cr_assert_eq(again.addr, a.addr);
    cr_assert_not(again.marked);
    rig_end(rig);
}

/* A range that was rounded down to a page begins in a neighbour, or where it was. */
Test(pool_reuse, a_range_pins_all_that_it_touches)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info low = rig_alloc(rig, 1536, S1);
    struct ms_block_info high = rig_alloc(rig, 1536, S1);
    if (low.addr > high.addr) {
        struct ms_block_info other = low;
        low = high;
        high = other;
    }
    cr_assert_eq(low.addr + 1536, high.addr);
    cr_assert_eq(ms_pool_pin_range(rig->pool, low.addr + 1024, 1024), MS_OK);
    cr_assert_eq(ms_pool_find(rig->pool, low.addr, &low), MS_OK);
    cr_assert_eq(ms_pool_find(rig->pool, high.addr, &high), MS_OK);
    cr_assert(low.pinned);
    cr_assert(high.pinned);
    rig_free(rig, low, S1);
    rig_free(rig, high, S1);
    low = rig_alloc(rig, 1536, S1);
    high = rig_alloc(rig, 1536, S1);
    struct ms_block_info freed = low.addr < high.addr ? low : high;
    struct ms_block_info kept = low.addr < high.addr ? high : low;
    rig_free(rig, freed, S1);
    cr_assert_eq(ms_pool_pin_range(rig->pool, freed.addr + 1024, 1024), MS_OK);
    cr_assert_eq(ms_pool_find(rig->pool, kept.addr, &kept), MS_OK);
    cr_assert(kept.pinned);
    rig_end(rig);
}

Test(pool_reuse, bad_requests_touch_nothing)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info block;
    cr_assert_eq(rig_try(rig, 0, S1, &block), MS_ERR_INVALID);
    cr_assert_eq(rig_try(rig, UINT64_MAX, S1, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_try(rig, UINT64_MAX - 511, S1, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_try(rig, 256 * MIB + 1, S1, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(rig).failed_allocations, 4);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_ADDRESS_RESERVE), 0);
    cr_assert_eq(atomic_load(&rig->budget.peak_charged_bytes), 0);
    rig_end(rig);
}

Test(pool_reuse, bad_frees_are_told_apart)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 4096, S1);
    cr_assert_eq(ms_pool_free(rig->pool, 0x1000, S1), MS_ERR_NOT_OURS);
    cr_assert_eq(ms_pool_free(rig->pool, a.addr + 512, S1), MS_ERR_NOT_OURS, "inside a block");
    rig_free(rig, a, S1);
    cr_assert_eq(ms_pool_free(rig->pool, a.addr, S1), MS_ERR_INVALID, "freed already");
    cr_assert_eq(rig_stats(rig).frees, 1);
    rig_end(rig);
}

Test(pool_reuse, the_same_stream_gets_its_memory_back_at_once)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 100 * KIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    uint64_t fences = ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE);
    struct ms_block_info b = rig_alloc(rig, 100 * KIB, S1);
    cr_assert_eq(b.addr, a.addr);
    cr_assert_neq(b.id, a.id);
    rig_work(rig, b, S1);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE), fences, "its own order needs no fence");
    rig_end(rig);
}

Test(pool_reuse, another_stream_does_not_before_the_work_is_known_done)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 2 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    struct ms_block_info b = rig_alloc(rig, 2 * MIB, S2);
    cr_assert_neq(b.addr, a.addr, "there is room to grow: no wait is put between the streams");
    rig_work(rig, b, S2);
    ms_dry_finish(rig->dry, S1, 1);
    struct ms_block_info c = rig_alloc(rig, 2 * MIB, S2);
    cr_assert_eq(c.addr, a.addr, "the fence has passed");
    rig_work(rig, c, S2);
    rig_end(rig);
}

Test(pool_reuse, freed_for_the_device_waits_for_all_streams)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 2 * MIB, MS_STREAM_DEVICE);
    struct ms_block_info other = rig_alloc(rig, 2 * MIB, S2);
    rig_work(rig, a, S1);
    rig_work(rig, other, S2);
    rig_free(rig, a, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(rig).pending_bytes, 2 * MIB);
    struct ms_block_info b = rig_alloc(rig, 2 * MIB, S1);
    cr_assert_neq(b.addr, a.addr);
    ms_dry_finish(rig->dry, S1, 1);
    struct ms_block_info c = rig_alloc(rig, 2 * MIB, MS_STREAM_DEVICE);
    cr_assert_neq(c.addr, a.addr, "the other stream's earlier work is not done");
    ms_dry_finish(rig->dry, S2, 1);
    struct ms_block_info d = rig_alloc(rig, 2 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(d.addr, a.addr);
    rig_work(rig, d, S2);
    rig_end(rig);
}

Test(pool_reuse, one_fence_serves_many_frees)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info block[64];
    for (int k = 0; k < 64; k++) {
        block[k] = rig_alloc(rig, MIB, MS_STREAM_DEVICE);
        rig_work(rig, block[k], S1);
    }
    for (int k = 0; k < 64; k++) {
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE), 0, "frees take no fences");
    ms_dry_finish(rig->dry, S1, 64);
    struct ms_block_info all = rig_alloc(rig, 64 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(all.addr, block[0].addr, "they have become one range");
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE), 1);
    rig_end(rig);
}

Test(pool_reuse, neighbours_coalesce)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info block[8];
    for (int k = 0; k < 8; k++) {
        block[k] = rig_alloc(rig, MIB, S1);
    }
    uint64_t created = rig_stats(rig).chunks_created;
    static const int order[8] = {3, 1, 0, 2, 7, 5, 6, 4};
    for (int k = 0; k < 8; k++) {
        rig_free(rig, block[order[k]], S1);
        rig_check(rig);
    }
    struct ms_block_info whole = rig_alloc(rig, 8 * MIB, S1);
    cr_assert_eq(whole.addr, block[0].addr);
    cr_assert_eq(rig_stats(rig).chunks_created, created);
    rig_end(rig);
}

Test(pool_reuse, a_streams_own_memory_and_idle_memory_beside_it_serve_together)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 3 * MIB, S1); /* leaves 1 MiB idle behind it */
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    uint64_t created = rig_stats(rig).chunks_created;
    struct ms_block_info b = rig_alloc(rig, 4 * MIB, S1);
    cr_assert_eq(b.addr, a.addr);
    cr_assert_eq(rig_stats(rig).chunks_created, created);
    rig_work(rig, b, S1);
    rig_end(rig);
}

Test(pool_reuse, best_fit_takes_the_tightest)
{
    struct rig *rig = rig_with_streams();
    static const uint64_t size[5] = {512 * KIB, 96 * KIB, 300 * KIB, 100 * KIB, 400 * KIB};
    struct ms_block_info block[5];
    for (int k = 0; k < 5; k++) {
        block[k] = rig_alloc(rig, size[k], S1);
        (void)rig_alloc(rig, 64 * KIB, S1); /* keeps them apart */
    }
    for (int k = 0; k < 5; k++) {
        rig_free(rig, block[k], S1);
    }
    struct ms_block_info fit = rig_alloc(rig, 98 * KIB, S1);
    cr_assert_eq(fit.addr, block[3].addr);
    rig_end(rig);
}

Test(pool_reuse, a_stream_takes_its_own_memory_before_idle_memory_of_that_size)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info block[2];
    for (int k = 0; k < 2; k++) {
        block[k] = rig_alloc(rig, 96 * KIB, S1);
        (void)rig_alloc(rig, 64 * KIB, S1); /* keeps them apart */
    }
    rig_free(rig, block[0], S1);
    (void)ms_pool_whole_bytes(rig->pool); /* sees that it is idle */
    rig_free(rig, block[1], S1);
    cr_assert_eq(rig_alloc(rig, 96 * KIB, S1).addr, block[1].addr);
    cr_assert_eq(rig_alloc(rig, 96 * KIB, S2).addr, block[0].addr, "which serves everybody");
    rig_end(rig);
}

Test(pool_reuse, a_stream_that_is_gone_leaves_its_memory_to_all)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 2 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    ms_pool_stream_gone(rig->pool, S1);
    ms_dry_stream_destroy(rig->dry, S1);
    struct ms_block_info b = rig_alloc(rig, 2 * MIB, S2);
    cr_assert_neq(b.addr, a.addr, "its work still runs");
    rig_work(rig, b, S2);
    ms_dry_finish(rig->dry, MS_STREAM_DEVICE, 9);
    struct ms_block_info c = rig_alloc(rig, 2 * MIB, S2);
    cr_assert_eq(c.addr, a.addr);
    rig_work(rig, c, S2);
    rig_end(rig);
}

Test(pool_reuse, a_stream_that_goes_during_a_capture_is_fenced_later)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 2 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, S1);
    ms_dry_set_capturing(rig->dry, true);
    ms_pool_stream_gone(rig->pool, S1);
    ms_dry_stream_destroy(rig->dry, S1);
    ms_dry_set_capturing(rig->dry, false);
    ms_dry_finish(rig->dry, MS_STREAM_DEVICE, 9);
    struct ms_block_info b = rig_alloc(rig, 2 * MIB, S2);
    cr_assert_eq(b.addr, a.addr);
    rig_work(rig, b, S2);
    rig_end(rig);
}

Test(pool_reuse, streams_that_come_and_go_leave_nothing_behind)
{
    struct rig *rig = rig_with_streams();
    for (ms_stream_t stream = 1000; stream < 3000; stream++) {
        cr_assert_eq(ms_dry_stream_create(rig->dry, stream), MS_OK);
        struct ms_block_info a = rig_alloc(rig, 4096, stream);
        rig_work(rig, a, stream);
        rig_free(rig, a, stream);
        ms_pool_stream_gone(rig->pool, stream);
        ms_dry_stream_destroy(rig->dry, stream);
        ms_dry_finish(rig->dry, MS_STREAM_DEVICE, 9);
    }
    cr_assert_leq(rig_stats(rig).reserved_bytes, 4 * MIB);
    struct ms_dry_stats device;
    ms_dry_stats(rig->dry, &device);
    cr_assert_leq(device.fences, 16);
    rig_end(rig);
}

Test(pool_reuse, nothing_is_fenced_or_unmapped_while_capturing)
{
    struct rig *rig = rig_make(GRANULE, 16 * MIB, 16 * MIB);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    struct ms_block_info a = rig_alloc(rig, 6 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, MS_STREAM_DEVICE);
    ms_dry_finish(rig->dry, S1, 1);
    ms_dry_set_capturing(rig->dry, true);
    struct ms_block_info b = rig_alloc(rig, 6 * MIB, MS_STREAM_DEVICE);
    cr_assert_neq(b.addr, a.addr, "a birth during capture comes from new chunks");
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 6 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 0);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE), 0);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_QUERY), 0);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_UNMAP), 0);
    ms_dry_set_capturing(rig->dry, false);
    struct ms_block_info c = rig_alloc(rig, 6 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(c.addr, a.addr);
    rig_end(rig);
}

/* Nothing is asked and nothing unmapped from here to the end of it. */
static void begin_capture(struct rig *rig, uint64_t *asked)
{
    ms_pool_settle(rig->pool);
    ms_dry_set_capturing(rig->dry, true);
    *asked = ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE) +
             ms_dry_calls(rig->dry, MS_DRY_FENCE_QUERY) + ms_dry_calls(rig->dry, MS_DRY_UNMAP);
}

static void end_capture(struct rig *rig, uint64_t asked)
{
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_TAKE) +
                     ms_dry_calls(rig->dry, MS_DRY_FENCE_QUERY) +
                     ms_dry_calls(rig->dry, MS_DRY_UNMAP),
                 asked);
    ms_dry_set_capturing(rig->dry, false);
}

Test(pool_reuse, what_is_done_before_a_capture_serves_during_it)
{
    struct rig *rig = rig_make(GRANULE, 16 * MIB, 16 * MIB);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    struct ms_block_info a = rig_alloc(rig, 6 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, MS_STREAM_DEVICE);
    ms_dry_finish(rig->dry, S1, 1);
    uint64_t asked = 0;
    begin_capture(rig, &asked);
    struct ms_block_info b = rig_alloc(rig, 6 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(b.addr, a.addr);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_FENCE_WAIT), 0, "the budget has as much");
    end_capture(rig, asked);
    rig_end(rig);
}

Test(pool_reuse, what_lies_scattered_before_a_capture_serves_as_one_during_it)
{
    struct rig *rig = rig_make(GRANULE, 16 * MIB, 16 * MIB);
    struct ms_block_info block[4];
    for (size_t at = 0; at < 4; at++) {
        block[at] = rig_alloc(rig, 4 * MIB, MS_STREAM_DEVICE);
    }
    rig_free(rig, block[0], MS_STREAM_DEVICE);
    rig_free(rig, block[2], MS_STREAM_DEVICE);
    uint64_t asked = 0;
    begin_capture(rig, &asked);
    (void)rig_alloc(rig, 8 * MIB, MS_STREAM_DEVICE);
    end_capture(rig, asked);
    rig_end(rig);
}

Test(pool_reuse, a_capture_waits_where_freeing_would_have)
{
    struct rig *rig = rig_make(GRANULE, 16 * MIB, 16 * MIB);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    struct ms_block_info a = rig_alloc(rig, 12 * MIB, S1);
    rig_work(rig, a, S1);
    rig_free(rig, a, MS_STREAM_DEVICE);
    uint64_t asked = 0;
    begin_capture(rig, &asked);
    a = rig_alloc(rig, 12 * MIB, S1);
    end_capture(rig, asked);
    rig_work(rig, a, S1);
    rig_free(rig, a, MS_STREAM_DEVICE);
    ms_dry_set_stalled(rig->dry, true);
    begin_capture(rig, &asked);
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 12 * MIB, S1, &none), MS_ERR_NO_MEMORY, "the wait has an end");
    end_capture(rig, asked);
    rig_end(rig);
}

Test(pool_reuse, events_tell_the_whole_story_in_order)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 100, S1);
    rig_free(rig, a, S2);
    cr_assert_eq(ms_pool_trim(rig->pool, 0), 2 * MIB);
    static const uint8_t expected[] = {
        MS_EVENT_RANGE_RESERVE, MS_EVENT_CHUNK_CREATE, MS_EVENT_MAP,   MS_EVENT_SET_ACCESS,
        MS_EVENT_BLOCK_ALLOC,   MS_EVENT_BLOCK_FREE,   MS_EVENT_UNMAP, MS_EVENT_CHUNK_RELEASE};
    cr_assert_eq(rig->events, sizeof(expected));
    for (size_t at = 0; at < sizeof(expected); at++) {
        cr_assert_eq(rig->event[at].kind, expected[at], "event %zu", at);
        cr_assert_eq(rig->event[at].device, 3);
        cr_assert_eq(rig->event[at].owner, MS_OWNER_POOL);
    }
    cr_assert_eq(rig->event[4].id, a.id);
    cr_assert_eq(rig->event[4].bytes, 100);
    cr_assert_eq(rig->event[4].aux, 512);
    cr_assert_eq(rig->event[4].stream, S1);
    cr_assert_eq(rig->event[5].id, a.id);
    cr_assert_eq(rig->event[5].bytes, 100);
    cr_assert_eq(rig->event[5].stream, S2);
    cr_assert_eq(rig->event[1].id, rig->event[7].id);
    cr_assert_eq(rig->event[2].addr, a.addr);
    rig_end(rig);
}

Test(pool_reuse, access_is_given_again_to_all_that_is_mapped)
{
    struct rig *rig = rig_with_streams();
    (void)rig_alloc(rig, 5 * MIB, S1);
    uint64_t before = ms_dry_calls(rig->dry, MS_DRY_SET_ACCESS);
    cr_assert_eq(ms_pool_refresh_access(rig->pool), MS_OK);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_SET_ACCESS), before + 1);
    rig_end(rig);
}

Test(pool_reuse, statistics_add_up)
{
    struct rig *rig = rig_with_streams();
    struct ms_block_info a = rig_alloc(rig, 1000, S1);
    struct ms_block_info b = rig_alloc(rig, 3 * MIB, S1);
    rig_free(rig, a, S1);
    struct ms_pool_stats stats = rig_stats(rig);
    cr_assert_eq(stats.live_blocks, 1);
    cr_assert_eq(stats.live_bytes, 3 * MIB);
    cr_assert_eq(stats.allocations, 2);
    cr_assert_eq(stats.frees, 1);
    cr_assert_eq(stats.reserved_bytes, stats.free_bytes + 3 * MIB);
    cr_assert_eq(stats.pending_bytes, 1024);
    cr_assert_leq(stats.largest_free_bytes, stats.free_bytes);
    rig_free(rig, b, S1);
    rig_end(rig);
}

Test(pool_reuse, a_device_that_is_gone_is_not_called)
{
    struct rig *rig = rig_with_streams();
    (void)rig_alloc(rig, 5 * MIB, S1);
    struct ms_block_info freed = rig_alloc(rig, 5 * MIB, S1);
    rig_free(rig, freed, S1);
    uint64_t calls = 0;
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        calls += ms_dry_calls(rig->dry, (enum ms_dry_op)op);
    }
    ms_pool_destroy(rig->pool, true);
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        calls -= ms_dry_calls(rig->dry, (enum ms_dry_op)op);
    }
    cr_assert_eq(calls, 0);
    cr_assert_eq(atomic_load(&rig->budget.charged_bytes), 0);
    cr_assert_eq(rig_count(rig, MS_EVENT_BLOCK_FREE), 2);
    cr_assert_eq(rig_count(rig, MS_EVENT_CHUNK_RELEASE), rig_count(rig, MS_EVENT_CHUNK_CREATE));
    ms_dry_destroy(rig->dry);
    free(rig);
}

static ms_status_t alloc_for(struct rig *rig, struct ms_holder *holder, uint64_t bytes,
                             struct ms_block_info *out)
{
    const struct ms_request request = {.bytes = bytes, .stream = S1, .holder = holder};
    return ms_pool_alloc(rig->pool, &request, out);
}

Test(pool_reuse, a_holder_has_its_sums_and_its_limit)
{
    struct rig *rig = rig_with_streams();
    struct ms_holder holder = {.limit_bytes = 5 * MIB, .kind = 1};
    struct ms_block_info a, b, c;
    cr_assert_eq(alloc_for(rig, &holder, 4 * MIB - 100, &a), MS_OK);
    cr_assert_eq(a.holder, &holder);
    cr_assert_eq(holder.used_bytes, 4 * MIB);
    cr_assert_eq(alloc_for(rig, &holder, MIB + 1, &b), MS_ERR_LIMIT);
    cr_assert_eq(holder.used_bytes, 4 * MIB);
    cr_assert_eq(alloc_for(rig, &holder, MIB, &b), MS_OK);
    cr_assert_eq(alloc_for(rig, &holder, 1, &c), MS_ERR_LIMIT);
    rig_free(rig, b, S1);
    cr_assert_eq(holder.used_bytes, 4 * MIB);
    cr_assert_eq(holder.used_high_bytes, 5 * MIB);
    holder.limit_bytes = 0;
    cr_assert_eq(alloc_for(rig, &holder, 255 * MIB, &c), MS_ERR_NO_MEMORY);
    cr_assert_eq(holder.used_bytes, 4 * MIB, "what the device refused does not count");
    rig_free(rig, a, S1);
    cr_assert_eq(holder.used_bytes, 0);
    rig_end(rig);
}

static bool is_this(void *ctx, const struct ms_holder *holder)
{
    return holder == ctx;
}

Test(pool_reuse, all_blocks_of_one_holder_go_at_once)
{
    struct rig *rig = rig_with_streams();
    struct ms_holder dying = {0}, staying = {0};
    struct ms_block_info gone[20], kept[20], nobodys = rig_alloc(rig, 700, S2), found;
    for (int i = 0; i < 20; i++) {
        /* Neighbours of both, and small ones beside large. */
        cr_assert_eq(alloc_for(rig, &dying, i % 2 ? 700 : 3 * MIB, &gone[i]), MS_OK);
        cr_assert_eq(alloc_for(rig, i % 3 ? &staying : &dying, i % 2 ? 700 : 2 * MIB, &kept[i]),
                     MS_OK);
    }
    ms_pool_free_held(rig->pool, is_this, &dying);
    rig_check(rig);
    cr_assert_eq(dying.used_bytes, 0);
    cr_assert_eq(rig_stats(rig).live_blocks, 13 + 1);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(ms_pool_find(rig->pool, gone[i].addr, &found), MS_ERR_NOT_OURS);
        cr_assert_eq(ms_pool_free(rig->pool, gone[i].addr, S1), MS_ERR_INVALID);
        cr_assert_eq(ms_pool_find(rig->pool, kept[i].addr, &found),
                     i % 3 ? MS_OK : MS_ERR_NOT_OURS);
    }
    for (int i = 0; i < 20; i++) {
        if (i % 3) {
            rig_free(rig, kept[i], S1);
        }
    }
    cr_assert_eq(staying.used_bytes, 0);
    rig_free(rig, nobodys, S2);
    rig_end(rig);
}
