/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device: it must notice every broken contract, or no test built on it means anything. */
#include <criterion/criterion.h>
#include <string.h>

#include "allocator/device/dry.h"

#define MIB     ((uint64_t)1 << 20)
#define GRANULE (2 * MIB)

static ms_dry_t *dry;
static const struct ms_device_ops *ops;
static ms_addr_t base;

static void set_up(void)
{
    struct ms_dry_config config = {
        .granule_bytes = GRANULE, .total_bytes = 16 * GRANULE, .costs = &ms_dry_default_costs};
    cr_assert_eq(ms_dry_create(&config, &dry), MS_OK);
    ops = ms_dry_ops(dry);
    cr_assert_eq(ops->address_reserve(ops->ctx, 64 * GRANULE, GRANULE, &base), MS_OK);
    cr_assert_eq(ms_dry_stream_create(dry, 1), MS_OK);
    cr_assert_eq(ms_dry_stream_create(dry, 2), MS_OK);
}

static void tear_down(void)
{
    ms_dry_destroy(dry);
}

TestSuite(dry, .init = set_up, .fini = tear_down);

static ms_handle_t chunk(uint64_t granules)
{
    ms_handle_t handle = 0;
    cr_assert_eq(ops->chunk_create(ops->ctx, granules * GRANULE, MS_LOCATION_DEVICE, NULL, &handle),
                 MS_OK);
    return handle;
}

/* A chunk of so many granules, mapped at a slot, with access. */
static ms_handle_t back(uint64_t slot, uint64_t granules)
{
    ms_handle_t handle = chunk(granules);
    ms_addr_t addr = base + slot * GRANULE;
    cr_assert_eq(ops->map(ops->ctx, addr, granules * GRANULE, handle), MS_OK);
    cr_assert_eq(ops->set_access(ops->ctx, addr, granules * GRANULE), MS_OK);
    return handle;
}

static void assert_violated(const char *fragment)
{
    const char *violation = ms_dry_violation(dry);
    cr_assert_not_null(violation, "nothing was noticed: %s", fragment);
    cr_assert_not_null(strstr(violation, fragment), "\"%s\" does not say \"%s\"", violation,
                       fragment);
}

Test(dry, memory_runs_out_and_comes_back)
{
    ms_handle_t all = chunk(16);
    ms_handle_t more = 0;
    cr_assert_eq(ops->chunk_create(ops->ctx, GRANULE, MS_LOCATION_DEVICE, NULL, &more),
                 MS_ERR_NO_MEMORY);
    cr_assert_eq(ops->chunk_create(ops->ctx, GRANULE, MS_LOCATION_HOST, NULL, &more), MS_OK);
    cr_assert_eq(ops->chunk_release(ops->ctx, all), MS_OK);
    cr_assert_eq(ops->chunk_create(ops->ctx, GRANULE, MS_LOCATION_DEVICE, NULL, &more), MS_OK);
    cr_assert_null(ms_dry_violation(dry));
}

Test(dry, a_released_chunk_lives_while_it_is_mapped)
{
    struct ms_dry_stats stats;
    ms_handle_t handle = back(0, 4);
    cr_assert_eq(ops->chunk_release(ops->ctx, handle), MS_OK);
    ms_dry_stats(dry, &stats);
    cr_assert_eq(stats.used_bytes, 4 * GRANULE);
    cr_assert(ms_dry_accessible(dry, base, 4 * GRANULE));
    cr_assert_eq(ops->unmap(ops->ctx, base, 4 * GRANULE), MS_OK);
    ms_dry_stats(dry, &stats);
    cr_assert_eq(stats.used_bytes, 0);
    cr_assert_not(ms_dry_accessible(dry, base, 512));
    cr_assert_null(ms_dry_violation(dry));
}

Test(dry, mapping_over_a_mapping)
{
    back(2, 2);
    cr_assert_neq(ops->map(ops->ctx, base + 3 * GRANULE, GRANULE, chunk(1)), MS_OK);
    assert_violated("mapped already");
}

Test(dry, mapping_part_of_a_chunk)
{
    cr_assert_neq(ops->map(ops->ctx, base, GRANULE, chunk(2)), MS_OK);
    assert_violated("not the whole chunk");
}

Test(dry, unmapping_what_is_not_mapped)
{
    cr_assert_neq(ops->unmap(ops->ctx, base, GRANULE), MS_OK);
    assert_violated("unmap");
}

Test(dry, unmapping_half_a_chunk)
{
    back(0, 2);
    cr_assert_neq(ops->unmap(ops->ctx, base + GRANULE, GRANULE), MS_OK);
    assert_violated("unmap");
}

Test(dry, unmapping_two_neighbours_at_once_is_fine)
{
    back(0, 2);
    back(2, 1);
    cr_assert_eq(ops->unmap(ops->ctx, base, 3 * GRANULE), MS_OK);
    cr_assert_null(ms_dry_violation(dry));
}

Test(dry, access_to_a_range_with_a_hole)
{
    back(0, 1);
    back(2, 1);
    cr_assert_neq(ops->set_access(ops->ctx, base, 3 * GRANULE), MS_OK);
    assert_violated("not all of it mapped");
}

Test(dry, releasing_twice)
{
    ms_handle_t handle = chunk(1);
    cr_assert_eq(ops->chunk_release(ops->ctx, handle), MS_OK);
    cr_assert_neq(ops->chunk_release(ops->ctx, handle), MS_OK);
    assert_violated("release");
}

Test(dry, freeing_addresses_that_are_mapped)
{
    back(0, 1);
    cr_assert_neq(ops->address_free(ops->ctx, base, 64 * GRANULE), MS_OK);
    assert_violated("still mapped");
}

Test(dry, work_on_memory_without_access)
{
    cr_assert_eq(ops->map(ops->ctx, base, GRANULE, chunk(1)), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, 0), MS_OK);
    assert_violated("not all accessible");
}

Test(dry, premature_reuse_on_another_stream)
{
    back(0, 1);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 1024, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 1, 12, base, 1024, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 2, 13, base + 1024, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_null(ms_dry_violation(dry), "one stream, or other bytes: no conflict");
    cr_assert_eq(ms_dry_work(dry, 2, 13, base + 512, 1024, MS_DRY_UNTIL_TOLD), MS_OK);
    assert_violated("premature reuse");
}

Test(dry, reuse_of_finished_work_that_nobody_asked_about_is_premature_too)
{
    back(0, 1);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, 0), MS_OK);
    ms_dry_finish(dry, MS_STREAM_DEVICE, 9);
    cr_assert_eq(ms_dry_work(dry, 2, 13, base, 512, 0), MS_OK);
    assert_violated("premature reuse");
}

Test(dry, reuse_after_a_fence_is_right)
{
    ms_fence_t fence = 0;
    back(0, 1);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ops->fence_take(ops->ctx, 1, &fence), MS_OK);
    cr_assert_eq(ops->fence_query(ops->ctx, fence), MS_ERR_NOT_READY);
    ms_dry_finish(dry, 1, 1);
    cr_assert_eq(ops->fence_query(ops->ctx, fence), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 2, 12, base, 512, 0), MS_OK);
    cr_assert_null(ms_dry_violation(dry));
    ops->fence_release(ops->ctx, fence);
    cr_assert_null(ms_dry_violation(dry));
    ops->fence_release(ops->ctx, fence);
    assert_violated("release of fence");
}

Test(dry, reuse_behind_a_wait_is_right_and_waits)
{
    struct ms_dry_stats stats;
    ms_fence_t fence = 0;
    back(0, 1);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ops->fence_take(ops->ctx, 1, &fence), MS_OK);
    cr_assert_eq(ops->stream_wait(ops->ctx, 2, fence), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 2, 12, base, 512, 0), MS_OK);
    cr_assert_null(ms_dry_violation(dry));
    ms_dry_advance(dry, 1000000000);
    ms_dry_stats(dry, &stats);
    cr_assert_eq(stats.unfinished_work, 2, "the second waits for the first");
    ms_dry_finish(dry, 2, 1);
    ms_dry_stats(dry, &stats);
    cr_assert_eq(stats.unfinished_work, 0);
}

Test(dry, a_fence_of_the_device_covers_every_stream)
{
    ms_fence_t fence = 0;
    back(0, 1);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 2, 12, base + 512, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    cr_assert_eq(ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &fence), MS_OK);
    cr_assert_eq(ms_dry_work(dry, 2, 12, base + 512, 512, MS_DRY_UNTIL_TOLD), MS_OK);
    ms_dry_finish(dry, 1, 1);
    cr_assert_eq(ops->fence_query(ops->ctx, fence), MS_ERR_NOT_READY);
    ms_dry_finish(dry, 2, 1);
    cr_assert_eq(ops->fence_query(ops->ctx, fence), MS_OK, "later work does not count");
}

Test(dry, unmapping_under_work_that_is_not_known_done)
{
    ms_fence_t fence = 0;
    back(0, 1);
    back(1, 1);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, 0), MS_OK);
    cr_assert_eq(ops->fence_take(ops->ctx, 1, &fence), MS_OK);
    cr_assert_eq(ops->fence_wait(ops->ctx, fence, 0), MS_OK);
    cr_assert_eq(ops->unmap(ops->ctx, base, GRANULE), MS_OK);
    cr_assert_null(ms_dry_violation(dry));
    cr_assert_eq(ms_dry_work(dry, 1, 11, base + GRANULE, 512, 0), MS_OK);
    cr_assert_eq(ops->unmap(ops->ctx, base + GRANULE, GRANULE), MS_OK);
    assert_violated("unmap");
}

Test(dry, waiting_passes_virtual_time)
{
    ms_fence_t fence = 0;
    back(0, 1);
    uint64_t begin_ns = ms_dry_now_ns(dry);
    cr_assert_eq(ms_dry_work(dry, 1, 11, base, 512, 5000000), MS_OK);
    cr_assert_eq(ops->fence_take(ops->ctx, 1, &fence), MS_OK);
    cr_assert_eq(ops->fence_wait(ops->ctx, fence, 1000), MS_ERR_NOT_READY);
    cr_assert_eq(ops->fence_wait(ops->ctx, fence, 10000000), MS_OK);
    cr_assert_geq(ms_dry_now_ns(dry), begin_ns + 5000000);
    cr_assert_lt(ms_dry_now_ns(dry), begin_ns + 9000000);
}

Test(dry, no_fence_while_capturing)
{
    ms_fence_t fence = 0;
    ms_dry_set_capturing(dry, true);
    cr_assert(ms_device_captures(ops));
    cr_assert_eq(ops->fence_take(ops->ctx, 1, &fence), MS_ERR_NOT_SUPPORTED);
    ms_dry_set_capturing(dry, false);
    cr_assert_eq(ops->fence_take(ops->ctx, 1, &fence), MS_OK);
}

Test(dry, the_nth_call_fails_and_changes_nothing)
{
    ms_handle_t handle = 0;
    struct ms_dry_stats stats;
    ms_dry_fail(dry, MS_DRY_CHUNK_CREATE, 2, 999);
    cr_assert_eq(ops->chunk_create(ops->ctx, GRANULE, MS_LOCATION_DEVICE, NULL, &handle), MS_OK);
    cr_assert_eq(ops->chunk_create(ops->ctx, GRANULE, MS_LOCATION_DEVICE, NULL, &handle), 999);
    cr_assert_eq(ops->chunk_create(ops->ctx, GRANULE, MS_LOCATION_DEVICE, NULL, &handle), MS_OK);
    ms_dry_stats(dry, &stats);
    cr_assert_eq(stats.chunks, 2);
    cr_assert_eq(ms_dry_calls(dry, MS_DRY_CHUNK_CREATE), 3);
    cr_assert_geq(ms_dry_cost_ns(dry), 3 * ms_dry_default_costs.call_ns[MS_DRY_CHUNK_CREATE]);
}
