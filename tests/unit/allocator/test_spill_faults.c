/* SPDX-License-Identifier: Apache-2.0 */
/* Moves to the host and back while calls of the device fail: contents and books are kept, and what
 * is lost is told. */
#include "rig.h"

#define CAP_BYTES (64 * MIB)

static struct rig *spilling_rig(void)
{
    return rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                           .total_bytes = 4 * CAP_BYTES,
                                           .cap_bytes = CAP_BYTES,
                                           .host_limit_bytes = 2 * CAP_BYTES,
                                           .spill_limit_bytes = 2 * CAP_BYTES,
                                           .wait_ns = RIG_WAIT_NS});
}

/* Every call that a spill and a promotion make fails in turn: contents and books are kept. */
static void play_with_failure(enum ms_dry_op op, uint64_t nth, bool *reached)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[9];
    int blocks = 8;
    for (int k = 0; k < 8; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    ms_dry_fail(rig->dry, op, nth, 999);
    uint64_t before = ms_dry_calls(rig->dry, op);
    if (rig_try(rig, 8 * MIB, MS_STREAM_DEVICE, &block[8]) == MS_OK) {
        ms_dry_write(rig->dry, block[8].addr, block[8].bytes, block[8].id);
        blocks = 9;
        rig_free(rig, block[--blocks], MS_STREAM_DEVICE);
        (void)ms_pool_trim(rig->pool, 0);
        (void)ms_pool_promote(rig->pool, UINT64_MAX);
    }
    *reached = ms_dry_calls(rig->dry, op) - before >= nth;
    ms_dry_fail(rig->dry, op, 0, MS_OK);
    rig_check(rig);
    for (int k = 0; k < blocks; k++) {
        rig_check_contents(rig, &block[k]);
    }
    /* And then it works. */
    struct ms_block_info more = rig_write_new(rig, 16 * MIB);
    rig_check_contents(rig, &more);
    for (int k = 0; k < blocks; k++) {
        rig_check_contents(rig, &block[k]);
    }
    rig_end(rig);
}

Test(spill_faults, any_call_fails, .timeout = 600)
{
    uint64_t plays = 0;
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        bool reached = true;
        for (uint64_t nth = 1; reached; nth++) {
            play_with_failure((enum ms_dry_op)op, nth, &reached);
            plays++;
        }
    }
    cr_assert_gt(plays, 50);
}

/* Room for a charge of the caller's is made by a spill of which a call fails. */
Test(spill_faults, room_is_made_while_calls_fail, .timeout = 600)
{
    uint64_t plays = 0;
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        bool reached = true;
        for (uint64_t nth = 1; reached; nth++, plays++) {
            struct rig *rig = spilling_rig();
            struct ms_block_info block[8];
            for (int k = 0; k < 8; k++) {
                block[k] = rig_write_new(rig, 8 * MIB);
            }
            uint64_t before = ms_dry_calls(rig->dry, (enum ms_dry_op)op);
            ms_dry_fail(rig->dry, (enum ms_dry_op)op, nth, 999);
            bool made = ms_pool_make_room(rig->pool, 12 * MIB, true);
            reached = ms_dry_calls(rig->dry, (enum ms_dry_op)op) - before >= nth;
            ms_dry_fail(rig->dry, (enum ms_dry_op)op, 0, MS_OK);
            cr_assert_eq(made, ms_budget_free_bytes(&rig->budget) >= 12 * MIB);
            cr_assert(made || reached, "it was refused, and nothing had failed");
            rig_check(rig);
            for (int k = 0; k < 8; k++) {
                rig_check_contents(rig, &block[k]);
            }
            cr_assert(ms_pool_make_room(rig->pool, 12 * MIB, true), "and then it works");
            rig_end(rig);
        }
    }
    cr_assert_gt(plays, 15);
}

/* A step of the exchange fails, and so does one of undoing it: contents and books are kept. */
static void play_with_two_failures(enum ms_dry_op first, enum ms_dry_op then, uint64_t nth,
                                   uint64_t then_nth)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[8];
    for (int k = 0; k < 8; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    ms_dry_fail(rig->dry, first, nth, 999);
    ms_dry_fail(rig->dry, then, then_nth, 999);
    (void)ms_pool_make_room(rig->pool, 12 * MIB, true);
    ms_dry_fail(rig->dry, first, 0, MS_OK);
    ms_dry_fail(rig->dry, then, 0, MS_OK);
    rig_check(rig);
    for (int k = 0; k < 8; k++) {
        cr_assert(ms_dry_accessible(rig->dry, block[k].addr, block[k].bytes));
        rig_check_contents(rig, &block[k]);
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    cr_assert_eq(rig_count(rig, MS_EVENT_LOST), 0);
    rig_end(rig);
}

Test(spill_faults, two_calls_fail_on_end, .timeout = 600)
{
    static const enum ms_dry_op ops[] = {MS_DRY_MAP, MS_DRY_SET_ACCESS, MS_DRY_UNMAP};
    for (size_t pair = 0; pair < 9; pair++) {
        for (uint64_t at = 0; at < 200 && pair / 3 != pair % 3; at++) {
            play_with_two_failures(ops[pair / 3], ops[pair % 3], 1 + at / 10, 1 + at % 10);
        }
    }
}

/* The device fails from the nth call on and does not stop. What can be reached has its contents;
 * what cannot has been told, byte for byte, and nothing is moved any more. Returns how much. */
static uint64_t play_with_a_device_that_is_gone(uint64_t nth)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[8];
    for (int k = 0; k < 8; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    ms_dry_fail_run(rig->dry, nth, UINT32_MAX, 999);
    (void)ms_pool_make_room(rig->pool, 12 * MIB, true);
    ms_dry_fail_run(rig->dry, 0, 0, MS_OK);
    uint64_t lost_bytes = 0;
    uint64_t recorded_bytes = 0;
    for (int k = 0; k < 8; k++) {
        for (uint64_t at = 0; at < block[k].bytes; at += GRANULE) {
            bool there = ms_dry_accessible(rig->dry, block[k].addr + at, GRANULE);
            lost_bytes += there ? 0 : GRANULE;
            cr_assert(!there || ms_dry_holds(rig->dry, block[k].addr + at, GRANULE, block[k].id));
        }
    }
    for (size_t at = 0; at < rig->events; at++) {
        recorded_bytes += rig->event[at].kind == MS_EVENT_LOST ? rig->event[at].bytes : 0;
    }
    cr_assert_eq(recorded_bytes, lost_bytes);
    cr_assert_eq(rig_stats(rig).spill.lost_bytes, lost_bytes);
    uint64_t halts = ms_dry_calls(rig->dry, MS_DRY_HALT);
    if (lost_bytes > 0) {
        (void)ms_pool_make_room(rig->pool, 24 * MIB, true);
        cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), halts, "nothing is moved any more");
    }
    for (int k = 0; k < 8; k++) {
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    rig_end(rig);
    return lost_bytes;
}

Test(spill_faults, a_device_that_fails_for_good, .timeout = 600)
{
    uint64_t lost_bytes = 0;
    for (uint64_t nth = 1; nth < 60; nth++) {
        lost_bytes += play_with_a_device_that_is_gone(nth);
    }
    cr_assert_gt(lost_bytes, 0, "it never failed within the exchange");
}

/* ---- small blocks: several lie on a granule, some of them freed */

enum { SMALL_BLOCKS = 160, SMALL_KIB = 512 };

/* Fills the device and more; every third block, and everything from `kept` on, is freed. */
static void fill_with_small(struct rig *rig, struct ms_block_info *block, int kept)
{
    for (int k = 0; k < SMALL_BLOCKS; k++) {
        block[k] = rig_write_new(rig, SMALL_KIB * KIB);
    }
    for (int k = 0; k < SMALL_BLOCKS; k++) {
        if (k % 3 == 0 || k >= kept) {
            rig_free(rig, block[k], MS_STREAM_DEVICE);
            block[k].addr = 0;
        }
    }
    (void)ms_pool_trim(rig->pool, 0);
}

/* What is there has its contents; what is freed and allocated afterwards stays in order. */
static uint64_t go_on_with_small(struct rig *rig, struct ms_block_info *block)
{
    uint64_t lost_bytes = rig_stats(rig).spill.lost_bytes;
    rig_check(rig);
    for (int k = 0; k < SMALL_BLOCKS; k++) {
        if (block[k].addr != 0 && ms_dry_accessible(rig->dry, block[k].addr, block[k].bytes)) {
            rig_check_contents(rig, &block[k]);
        }
    }
    struct ms_block_info more = {0};
    bool had = rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more) == MS_OK;
    rig_check(rig);
    for (int k = 0; k < SMALL_BLOCKS; k++) {
        if (block[k].addr != 0) {
            rig_free(rig, block[k], MS_STREAM_DEVICE);
        }
    }
    rig_check(rig);
    if (had) {
        rig_free(rig, more, MS_STREAM_DEVICE);
    }
    more = rig_write_new(rig, 16 * MIB);
    rig_check_contents(rig, &more);
    rig_free(rig, more, MS_STREAM_DEVICE);
    rig_end(rig);
    return lost_bytes;
}

/* Memory beside what was freed comes back, or goes, and the device fails from the nth call on. */
static uint64_t move_small_while_the_device_fails(uint64_t nth, bool back)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[SMALL_BLOCKS];
    fill_with_small(rig, block, back ? SMALL_BLOCKS / 2 : SMALL_BLOCKS);
    ms_dry_fail_run(rig->dry, nth, UINT32_MAX, 999);
    if (back) {
        (void)ms_pool_promote(rig->pool, UINT64_MAX);
    } else {
        (void)ms_pool_make_room(rig->pool, 24 * MIB, true);
    }
    ms_dry_fail_run(rig->dry, 0, 0, MS_OK);
    return go_on_with_small(rig, block);
}

Test(spill_faults, a_device_fails_for_good_while_small_memory_moves, .timeout = 600)
{
    for (int back = 0; back < 2; back++) {
        uint64_t lost_bytes = 0;
        for (uint64_t nth = 1; nth < 120; nth++) {
            lost_bytes += move_small_while_the_device_fails(nth, back != 0);
        }
        cr_assert_gt(lost_bytes, 0, "it never failed within the exchange");
    }
}
