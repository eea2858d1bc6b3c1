/* SPDX-License-Identifier: Apache-2.0 */
/* Views: a partly used chunk mapped once more for its free bytes. See allocator/backing/views.h. */
#include "rig.h"

#include "allocator/backing/views.h"

#define S1 ((ms_stream_t)101)
#define S2 ((ms_stream_t)102)

#define CAP_BYTES    (12 * MIB)
#define VIEWED_BYTES (6 * MIB - 512)

static struct rig *rig_with(bool views, uint64_t cap_bytes)
{
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 1024 * MIB,
                                                      .cap_bytes = cap_bytes,
                                                      .views = views});
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S2), MS_OK);
    return rig;
}

/* Six chunks. When `middle` and `far` are gone two chunks are free, and the end of one and the
 * beginning of another, of 2 MiB less 512 bytes together: VIEWED_BYTES, and a place for all of them
 * is nowhere. */
struct row {
    struct ms_block_info first, middle, last, far;
};

static struct row fill(struct rig *rig)
{
    struct row row = {.first = rig_alloc(rig, 3 * MIB, S1),
                      .middle = rig_alloc(rig, 4 * MIB - 512, S1),
                      .last = rig_alloc(rig, 3 * MIB, S1),
                      .far = rig_alloc(rig, 2 * MIB, S1)};
    cr_assert_eq(row.middle.addr, row.first.addr + 3 * MIB);
    cr_assert_eq(row.last.addr, row.middle.addr + 4 * MIB - 512);
    return row;
}

static void free_pieces(struct rig *rig, struct row row)
{
    rig_free(rig, row.far, S1);
    rig_free(rig, row.middle, S1);
}

static bool contents_kept(struct rig *rig, struct ms_block_info block)
{
    return ms_dry_holds(rig->dry, block.addr, block.bytes, block.id);
}

static struct ms_block_info written(struct rig *rig, struct ms_block_info block)
{
    ms_dry_write(rig->dry, block.addr, block.bytes, block.id);
    return block;
}

Test(views, off_unless_asked_for)
{
    struct rig *rig = rig_with(false, CAP_BYTES);
    struct row row = fill(rig);
    free_pieces(rig, row);
    struct ms_block_info block;
    cr_assert_eq(rig_try(rig, VIEWED_BYTES, S1, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(rig).views_made, 0);
    rig_end(rig);
}

Test(views, two_pieces_and_two_chunks_make_a_block)
{
    struct rig *rig = rig_with(true, CAP_BYTES);
    struct row row = fill(rig);
    (void)written(rig, row.first);
    (void)written(rig, row.last);
    free_pieces(rig, row);
    struct ms_block_info block = written(rig, rig_alloc(rig, VIEWED_BYTES, S1));
    struct ms_pool_stats stats = rig_stats(rig);
    cr_assert_eq(stats.views, 2);
    cr_assert_eq(stats.reserved_bytes, CAP_BYTES, "a chunk is charged once");
    cr_assert(contents_kept(rig, row.first) && contents_kept(rig, row.last) &&
                  contents_kept(rig, block),
              "no byte is handed out twice");
    rig_check(rig);
    rig_free(rig, block, S1);
    rig_free(rig, row.first, S1);
    rig_free(rig, row.last, S1);
    rig_end(rig);
}

/* The work of what lay there may still run: the bytes change hands when the host has seen it done.
 */
Test(views, bytes_go_over_when_their_work_is_done)
{
    struct rig *rig = rig_with(true, CAP_BYTES);
    struct row row = fill(rig);
    rig_work(rig, row.middle, S1);
    free_pieces(rig, row);
    ms_dry_set_stalled(rig->dry, true);
    struct ms_block_info block;
    cr_assert_eq(rig_try(rig, VIEWED_BYTES, S2, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(rig).views_made, 0);
    ms_dry_set_stalled(rig->dry, false);
    block = rig_alloc(rig, VIEWED_BYTES, S2);
    cr_assert_eq(rig_stats(rig).views, 2);
    /* And back: the first place may have them when the view's work is done. */
    rig_work(rig, block, S2);
    rig_free(rig, block, S2);
    rig_free(rig, row.first, S1);
    rig_free(rig, row.last, S1);
    ms_dry_set_stalled(rig->dry, true);
    cr_assert_neq(rig_try(rig, CAP_BYTES, S1, &block), MS_OK);
    ms_dry_set_stalled(rig->dry, false);
    block = rig_alloc(rig, CAP_BYTES, S1);
    cr_assert_eq(rig_stats(rig).views, 0, "all places have been given back");
    rig_work(rig, block, S1);
    rig_end(rig);
}

/* What a freed view leaves stands ready for the next block of its size, without a call. */
Test(views, a_freed_view_serves_again)
{
    struct rig *rig = rig_with(true, CAP_BYTES);
    struct row row = fill(rig);
    free_pieces(rig, row);
    struct ms_block_info block = rig_alloc(rig, VIEWED_BYTES, S1);
    uint64_t maps = rig_stats(rig).maps;
    rig_free(rig, block, S1);
    struct ms_block_info again = rig_alloc(rig, VIEWED_BYTES, S1);
    cr_assert_eq(again.addr, block.addr);
    cr_assert_eq(rig_stats(rig).maps, maps);
    rig_end(rig);
}

/* The first place goes first: the view's mapping is the chunk's only one from then on. */
Test(views, either_place_can_be_given_back)
{
    struct rig *rig = rig_with(true, CAP_BYTES);
    struct row row = fill(rig);
    free_pieces(rig, row);
    struct ms_block_info block = written(rig, rig_alloc(rig, VIEWED_BYTES, S1));
    rig_free(rig, row.first, S1);
    rig_free(rig, row.last, S1);
    (void)ms_pool_trim(rig->pool, 0);
    struct ms_pool_stats stats = rig_stats(rig);
    cr_assert_eq(stats.views, 0);
    cr_assert_leq(stats.reserved_bytes, 8 * MIB);
    cr_assert(contents_kept(rig, block));
    rig_check(rig);
    rig_free(rig, block, S1);
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_eq(rig_stats(rig).reserved_bytes, 0);
    rig_end(rig);
}

Test(views, none_of_what_is_pinned_and_none_while_something_captures)
{
    struct rig *rig = rig_with(true, CAP_BYTES);
    struct row row = fill(rig);
    cr_assert_eq(ms_pool_pin(rig->pool, row.first.addr), MS_OK);
    cr_assert_eq(ms_pool_pin(rig->pool, row.last.addr), MS_OK);
    free_pieces(rig, row);
    struct ms_block_info block;
    cr_assert_eq(rig_try(rig, VIEWED_BYTES, S1, &block), MS_ERR_NO_MEMORY);
    rig_end(rig);

    rig = rig_with(true, CAP_BYTES);
    row = fill(rig);
    free_pieces(rig, row);
    ms_dry_set_capturing(rig->dry, true);
    cr_assert_eq(rig_try(rig, VIEWED_BYTES, S1, &block), MS_ERR_NO_MEMORY);
    ms_dry_set_capturing(rig->dry, false);
    cr_assert_eq(rig_stats(rig).views_made, 0);
    rig_end(rig);
}

/* A chunk with a view stays where it is when live memory is spilled; the chunks between may go. */
Test(views, a_chunk_with_a_view_is_not_spilled)
{
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 1024 * MIB,
                                                      .cap_bytes = CAP_BYTES,
                                                      .host_limit_bytes = 64 * MIB,
                                                      .spill_limit_bytes = 64 * MIB,
                                                      .views = true});
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    struct row row = fill(rig);
    free_pieces(rig, row);
    struct ms_block_info view = written(rig, rig_alloc(rig, VIEWED_BYTES, S1));
    cr_assert_eq(rig_stats(rig).views, 2);
    (void)rig_alloc(rig, 4 * MIB, S1);
    struct ms_pool_stats stats = rig_stats(rig);
    cr_assert_gt(stats.spill.spilled_bytes, 0);
    cr_assert_eq(stats.views, 2);
    cr_assert(contents_kept(rig, view));
    rig_end(rig);
}

/* Each call that a view takes fails once: nothing is left of it, and the next try serves. */
Test(views, a_failure_leaves_nothing_behind)
{
    static const enum ms_dry_op ops[] = {MS_DRY_MAP, MS_DRY_SET_ACCESS, MS_DRY_UNMAP};
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            struct rig *rig = rig_with(true, CAP_BYTES);
            struct row row = fill(rig);
            free_pieces(rig, row);
            struct ms_block_info block;
            uint64_t free_bytes = rig_stats(rig).free_bytes;
            ms_dry_fail(rig->dry, ops[k], nth, MS_ERR_INVALID);
            uint64_t calls = ms_dry_calls(rig->dry, ops[k]);
            ms_status_t status = rig_try(rig, VIEWED_BYTES, S1, &block);
            bool failed = ms_dry_calls(rig->dry, ops[k]) - calls >= nth;
            cr_assert(status == MS_OK || failed);
            ms_dry_fail(rig->dry, ops[k], 0, MS_OK);
            rig_check(rig);
            if (status != MS_OK) {
                cr_assert_eq(rig_stats(rig).views, 0);
                cr_assert_leq(rig_stats(rig).free_bytes, free_bytes);
                block = rig_alloc(rig, VIEWED_BYTES, S1);
            }
            rig_free(rig, block, S1);
            rig_end(rig);
        }
    }
}

/* The mapping cannot be undone: it is lost with what the first place had lent, and nothing else. */
Test(views, what_cannot_be_unmapped_again_is_set_aside)
{
    struct rig *rig = rig_with(true, CAP_BYTES);
    struct row row = fill(rig);
    (void)written(rig, row.first);
    free_pieces(rig, row);
    ms_dry_fail(rig->dry, MS_DRY_SET_ACCESS, 1, MS_ERR_INVALID);
    ms_dry_fail(rig->dry, MS_DRY_UNMAP, 3, MS_ERR_INVALID); /* behind those of the free chunks */
    struct ms_block_info block;
    cr_assert_neq(rig_try(rig, VIEWED_BYTES, S1, &block), MS_OK);
    cr_assert_eq(rig_stats(rig).views, 1, "the pair stays as it is");
    cr_assert(contents_kept(rig, row.first));
    rig_check(rig);
    rig_free(rig, row.first, S1);
    rig_free(rig, row.last, S1);
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_eq(rig_stats(rig).reserved_bytes, GRANULE, "charged as long as it is mapped");
    rig_end(rig);
}
