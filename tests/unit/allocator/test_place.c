/* SPDX-License-Identifier: Apache-2.0 */
/* Where blocks go: the rules of place.c, on the dry device. */
#include "rig.h"

#define S1 ((ms_stream_t)101)

static struct rig *rig_of(uint64_t total_bytes, uint64_t cap_bytes)
{
    struct rig *rig = rig_make(GRANULE, total_bytes, cap_bytes);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    return rig;
}

Test(place, small_blocks_lie_apart_from_large_ones)
{
    struct rig *rig = rig_of(1024 * MIB, 1024 * MIB);
    struct ms_block_info large = rig_alloc(rig, 3 * MIB, S1); /* leaves 1 MiB behind it */
    struct ms_block_info small = rig_alloc(rig, 256 * KIB, S1);
    struct ms_block_info tiny = rig_alloc(rig, 512, S1);
    cr_assert_neq(small.addr / GRANULE, (large.addr + 2 * MIB) / GRANULE);
    cr_assert_neq(tiny.addr / GRANULE, (large.addr + 2 * MIB) / GRANULE);
    cr_assert_neq(tiny.addr / GRANULE, small.addr / GRANULE);
    rig_end(rig);
}

/* Beside others of odd sizes, and where odd ones have left room. */
Test(place, large_blocks_begin_on_pages_of_the_host)
{
    enum { PAGE = 4096, BLOCKS = 40 };
    struct ms_block_info block[BLOCKS];
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 1024 * MIB,
                                                      .cap_bytes = 1024 * MIB,
                                                      .page_bytes = PAGE});
    struct ms_holder holder = {.limit_bytes = 3 * MIB + 512};
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = rig_alloc(rig, i % 3 == 0 ? 700 : MIB + (uint64_t)i * 1001, S1);
    }
    for (int i = 0; i < BLOCKS; i += 2) {
        rig_free(rig, block[i], S1);
        block[i] = rig_alloc(rig, MIB + (uint64_t)i * 777, S1);
        cr_assert_eq(block[i].addr % PAGE, 0);
    }
    /* Nobody is told of more than he asked for. */
    struct ms_request request = {.bytes = 3 * MIB + 512, .stream = S1, .holder = &holder};
    cr_assert_eq(ms_pool_alloc(rig->pool, &request, &block[0]), MS_OK);
    cr_assert_eq(block[0].bytes, 3 * MIB + 512);
    cr_assert_eq(holder.used_bytes, 3 * MIB + 512);
    rig_free(rig, block[0], S1);
    cr_assert_eq(holder.used_bytes, 0);
    rig_end(rig);
}

/* A full cap: what another region has left is used before an allocation fails. */
Test(place, regions_help_each_other_out)
{
    struct rig *rig = rig_of(1024 * MIB, 4 * MIB);
    struct ms_block_info large = rig_alloc(rig, 3 * MIB, S1);
    struct ms_block_info small = rig_alloc(rig, 256 * KIB, S1);
    cr_assert_eq(small.addr, large.addr + 3 * MIB);
    rig_end(rig);
}

/* At the beginning of the gap three chunks would be touched, at its end two and one in use. */
Test(place, the_end_of_a_gap_serves_where_it_saves_a_chunk)
{
    struct rig *rig = rig_of(1024 * MIB, 1024 * MIB);
    struct ms_block_info gap = rig_alloc(rig, 9 * MIB, S1);
    struct ms_block_info behind = rig_alloc(rig, 3 * MIB, S1);
    cr_assert_eq(behind.addr, gap.addr + 9 * MIB);
    rig_free(rig, gap, S1);
    struct ms_block_info block = rig_alloc(rig, 5 * MIB, S1);
    cr_assert_eq(block.addr, gap.addr + 4 * MIB, "two whole chunks, and the shared one");
    rig_end(rig);
}

/* As cudaMalloc and cudaFree, where memory is tight: whether the work is done is asked before a
 * range is cut. */
Test(place, what_is_freed_and_done_serves_before_a_larger_range)
{
    for (int queued = 0; queued < 2; queued++) {
        struct rig *rig = rig_of(1024 * MIB, 2 * MIB);
        (void)rig_alloc(rig, 256 * KIB, MS_STREAM_DEVICE);
        struct ms_block_info freed = rig_alloc(rig, 256 * KIB, MS_STREAM_DEVICE);
        (void)rig_alloc(rig, 256 * KIB, MS_STREAM_DEVICE); /* before 1.25 MiB that are idle */
        if (queued) {
            rig_work(rig, freed, S1);
        }
        rig_free(rig, freed, MS_STREAM_DEVICE);
        struct ms_block_info block = rig_alloc(rig, 256 * KIB, MS_STREAM_DEVICE);
        cr_assert_eq(block.addr == freed.addr, !queued);
        rig_end(rig);
    }
}

/* Nor is a gap opened that would touch a chunk more. */
Test(place, what_is_freed_and_done_serves_before_another_chunk)
{
    struct rig *rig = rig_of(1024 * MIB, 1024 * MIB);
    struct ms_block_info idle = rig_alloc(rig, 9 * MIB, MS_STREAM_DEVICE);
    (void)rig_alloc(rig, 3 * MIB, MS_STREAM_DEVICE);
    struct ms_block_info freed = rig_alloc(rig, 5 * MIB + 512, MS_STREAM_DEVICE);
    (void)rig_alloc(rig, 3 * MIB, MS_STREAM_DEVICE);
    rig_free(rig, idle, S1);
    (void)rig_alloc(rig, 1024, MS_STREAM_DEVICE);
    rig_free(rig, freed, MS_STREAM_DEVICE);
    struct ms_block_info block = rig_alloc(rig, 5 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(block.addr, freed.addr);
    rig_end(rig);
}

Test(place, whole_granules_lie_on_whole_granules)
{
    struct rig *rig = rig_of(1024 * MIB, 1024 * MIB);
    (void)rig_alloc(rig, 3 * MIB, S1);
    struct ms_block_info whole = rig_alloc(rig, 4 * MIB, S1);
    cr_assert_eq(whole.addr % GRANULE, 0);
    rig_end(rig);
}
