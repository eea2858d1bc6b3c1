/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory that moves to the host and back: contents, addresses, books, and what never moves. */
#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"
#include "rig.h"

#define CAP_BYTES (64 * MIB)

static struct rig *spilling_rig_that_waits(uint64_t wait_ns)
{
    return rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                           .total_bytes = 4 * CAP_BYTES,
                                           .cap_bytes = CAP_BYTES,
                                           .host_limit_bytes = 2 * CAP_BYTES,
                                           .spill_limit_bytes = 2 * CAP_BYTES,
                                           .wait_ns = wait_ns});
}

static struct rig *spilling_rig(void)
{
    return spilling_rig_that_waits(RIG_WAIT_NS);
}

static struct ms_spill_stats spill_stats(struct rig *rig)
{
    return rig_stats(rig).spill;
}

Test(spill, more_lives_than_the_cap)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[12];
    for (int k = 0; k < 12; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
        rig_check(rig);
        cr_assert_leq(atomic_load(&rig->budget.charged_bytes), CAP_BYTES);
    }
    for (int k = 0; k < 12; k++) {
        rig_check_contents(rig, &block[k]);
    }
    struct ms_spill_stats stats = spill_stats(rig);
    cr_assert_eq(stats.spilled_bytes, 32 * MIB);
    cr_assert_eq(stats.down_bytes, 32 * MIB);
    cr_assert_eq(stats.up_bytes, 0);
    cr_assert_geq(stats.halts, 1);
    cr_assert_eq(rig_count(rig, MS_EVENT_SPILL), stats.spills);
    for (int k = 0; k < 12; k++) {
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    rig_end(rig);
}

/* Nobody knows which of it lives. */
Test(spill, a_kept_arena_moves_whole)
{
    struct rig *rig = spilling_rig();
    ms_arenas_t *arenas = NULL;
    struct ms_event_sink sink = {.emit = rig_note, .ctx = rig};
    cr_assert_eq(ms_arenas_create(0, rig->pool, sink, &arenas), MS_OK);
    struct ms_block_info kept = rig_write_new(rig, 32 * MIB);
    ms_arenas_keep(arenas, kept.addr);
    cr_assert_eq(ms_arenas_kept_allocated(arenas, kept.addr + 4 * MIB, MIB, 5), MS_OK);
    struct ms_block_info other = rig_write_new(rig, 56 * MIB);
    rig_check(rig);
    cr_assert_geq(spill_stats(rig).spilled_bytes, 24 * MIB);
    rig_check_contents(rig, &kept);
    cr_assert_eq(ms_arenas_kept_allocated(arenas, kept.addr, MIB, 5), MS_OK);
    rig_check(rig);
    rig_check_contents(rig, &kept);
    rig_free(rig, kept, MS_STREAM_DEVICE);
    rig_free(rig, other, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

Test(spill, off_by_default)
{
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 4 * CAP_BYTES,
                                                      .cap_bytes = CAP_BYTES,
                                                      .host_limit_bytes = 2 * CAP_BYTES});
    struct ms_block_info block;
    (void)rig_alloc(rig, CAP_BYTES, MS_STREAM_DEVICE);
    cr_assert_eq(rig_try(rig, GRANULE, MS_STREAM_DEVICE, &block), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), 0);
    rig_end(rig);
}

/* What was used least recently goes; a use that was told keeps it. */
Test(spill, the_coldest_goes)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[8];
    for (int k = 0; k < 8; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    (void)ms_pool_touch(rig->pool, block[0].addr + 5 * MIB, 0);
    rig->events = 0;
    struct ms_block_info more = rig_write_new(rig, 8 * MIB);
    for (size_t at = 0; at < rig->events; at++) {
        if (rig->event[at].kind == MS_EVENT_SPILL) {
            cr_assert_eq(rig->event[at].addr, block[1].addr);
            cr_assert_eq(rig->event[at].bytes, 8 * MIB);
        }
    }
    cr_assert_eq(rig_count(rig, MS_EVENT_SPILL), 1);
    rig_check_contents(rig, &block[0]);
    rig_check_contents(rig, &block[1]);
    rig_check_contents(rig, &more);
    rig_end(rig);
}

/* Freed while on the host: its chunks drain, and the next ones may have them. */
Test(spill, a_spilled_block_is_freed)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[12];
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < 12; k++) {
            block[k] = rig_write_new(rig, 8 * MIB);
        }
        for (int k = 0; k < 12; k++) {
            rig_check_contents(rig, &block[k]);
            rig_free(rig, block[k], MS_STREAM_DEVICE);
            rig_check(rig);
        }
    }
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 0);
    cr_assert_eq(spill_stats(rig).spilled_bytes, 0);
    rig_end(rig);
}

Test(spill, promoted_hottest_first_within_the_budget)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[12];
    for (int k = 0; k < 12; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 0, "there was no room");
    rig_free(rig, block[11], MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    (void)ms_pool_touch(rig->pool, block[2].addr, 0);
    rig->events = 0;
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 8 * MIB);
    cr_assert_eq(rig_count(rig, MS_EVENT_PROMOTE), 1);
    for (size_t at = 0; at < rig->events; at++) {
        if (rig->event[at].kind == MS_EVENT_PROMOTE) {
            cr_assert_eq(rig->event[at].addr, block[2].addr);
        }
    }
    rig_check(rig);
    for (int k = 0; k < 11; k++) {
        rig_check_contents(rig, &block[k]);
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    rig_end(rig);
}

/* Chunks of an arena move with the tensors on them; a dead tensor's host chunk is a hole's. */
Test(spill, tensors_in_an_arena)
{
    struct rig *rig = spilling_rig();
    ms_arenas_t *arenas = NULL;
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arenas), MS_OK);
    struct ms_block_info arena = rig_alloc(rig, 32 * MIB, MS_STREAM_DEVICE);
    for (uint64_t k = 0; k < 8; k++) {
        ms_addr_t addr = arena.addr + k * 4 * MIB;
        cr_assert_eq(ms_arenas_allocated(arenas, addr, 4 * MIB, 0, UINT64_MAX), MS_OK);
        ms_dry_write(rig->dry, addr, 4 * MIB, 1000 + k);
    }
    struct ms_block_info block = rig_write_new(rig, 32 * MIB);
    (void)ms_pool_touch(rig->pool, arena.addr + 1 * MIB, 0);
    struct ms_block_info more = rig_write_new(rig, 20 * MIB);
    for (uint64_t k = 0; k < 8; k++) {
        cr_assert(ms_dry_holds(rig->dry, arena.addr + k * 4 * MIB, 4 * MIB, 1000 + k));
    }
    rig_check_contents(rig, &block);
    rig_check_contents(rig, &more);
    cr_assert_geq(spill_stats(rig).spilled_bytes, 20 * MIB);
    rig_check(rig);
    char why[200] = "";
    for (uint64_t k = 0; k < 8; k++) {
        ms_addr_t addr = arena.addr + k * 4 * MIB;
        cr_assert_eq(ms_arenas_freed(arenas, addr, 4 * MIB, UINT64_MAX), MS_OK);
    }
    struct ms_block_info last = rig_write_new(rig, 8 * MIB);
    cr_assert(ms_arenas_is_valid(arenas, why, sizeof(why)), "%s", why);
    rig_check_contents(rig, &last);
    rig_free(rig, arena, MS_STREAM_DEVICE);
    rig_free(rig, block, MS_STREAM_DEVICE);
    rig_free(rig, more, MS_STREAM_DEVICE);
    rig_free(rig, last, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

Test(spill, what_is_pinned_stays_and_comes_back)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[8];
    for (int k = 0; k < 8; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
        if (k < 4) {
            cr_assert_eq(ms_pool_pin(rig->pool, block[k].addr), MS_OK);
        }
    }
    struct ms_block_info more = rig_write_new(rig, 32 * MIB); /* the other four go */
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 40 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(spill_stats(rig).spilled_bytes, 32 * MIB);
    /* One that is on the host is asked for by its identity. */
    cr_assert_eq(ms_pool_pin(rig->pool, block[6].addr), MS_OK);
    cr_assert_eq(spill_stats(rig).up_bytes, 8 * MIB);
    for (int k = 0; k < 8; k++) {
        rig_check_contents(rig, &block[k]);
    }
    rig_check_contents(rig, &more);
    rig_end(rig);
}

/* The only block that was spilled comes back, and nothing is spilled for it. */
static void pin_alone(struct rig *rig, const struct ms_block_info *cold)
{
    cr_assert_eq(ms_pool_pin(rig->pool, cold->addr), MS_OK);
    cr_assert_eq(ms_pool_on_host_bytes(rig->pool, cold->addr, 8 * MIB), 0);
    cr_assert_eq(spill_stats(rig).down_bytes, 8 * MIB);
    rig_check(rig);
    rig_check_contents(rig, cold);
}

/* All of the budget is the pool's: what nobody uses makes the room, and nothing else moves. */
Test(spill, what_is_pinned_comes_back_onto_idle_memory)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info cold = rig_write_new(rig, 8 * MIB);
    struct ms_block_info warm = rig_write_new(rig, 8 * MIB);
    struct ms_block_info large = rig_write_new(rig, CAP_BYTES - 16 * MIB);
    struct ms_block_info more = rig_write_new(rig, 8 * MIB);
    cr_assert_eq(ms_pool_on_host_bytes(rig->pool, cold.addr, 8 * MIB), 8 * MIB);
    rig_free(rig, large, MS_STREAM_DEVICE);
    pin_alone(rig, &cold);
    rig_check_contents(rig, &warm);
    rig_check_contents(rig, &more);
    rig_end(rig);
}

/* So do tensors that were freed last, of which no fence has been taken yet. */
Test(spill, what_is_pinned_comes_back_onto_holes)
{
    struct rig *rig = spilling_rig();
    ms_arenas_t *arenas = NULL;
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arenas), MS_OK);
    struct ms_block_info cold = rig_write_new(rig, 8 * MIB);
    struct ms_block_info warm = rig_write_new(rig, 8 * MIB);
    struct ms_block_info arena = rig_alloc(rig, CAP_BYTES - 16 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(ms_arenas_allocated(arenas, arena.addr, arena.bytes, 0, UINT64_MAX), MS_OK);
    struct ms_block_info more = rig_write_new(rig, 8 * MIB);
    cr_assert_eq(ms_pool_on_host_bytes(rig->pool, cold.addr, 8 * MIB), 8 * MIB);
    cr_assert_eq(ms_arenas_freed(arenas, arena.addr, arena.bytes, UINT64_MAX), MS_OK);
    pin_alone(rig, &cold);
    rig_check_contents(rig, &warm);
    rig_check_contents(rig, &more);
    rig_free(rig, arena, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

Test(spill, the_device_does_not_stand_still)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block = rig_write_new(rig, CAP_BYTES);
    struct ms_block_info more;
    ms_dry_fail(rig->dry, MS_DRY_HALT, 1, MS_ERR_NOT_READY);
    cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), 1, "asked again at that moment");
    cr_assert_eq(spill_stats(rig).halts_refused, 1);
    rig_check(rig);
    rig_check_contents(rig, &block);
    ms_dry_set_capturing(rig->dry, true);
    cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), 1, "asked during a capture");
    ms_dry_set_capturing(rig->dry, false);
    cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_OK);
    rig_check_contents(rig, &block);
    rig_end(rig);
}

/* Beyond the limit nothing is begun. */
Test(spill, the_limit)
{
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 4 * CAP_BYTES,
                                                      .cap_bytes = CAP_BYTES,
                                                      .host_limit_bytes = CAP_BYTES,
                                                      .spill_limit_bytes = 16 * MIB});
    struct ms_block_info first = rig_write_new(rig, CAP_BYTES);
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 18 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), 0);
    struct ms_block_info second = rig_write_new(rig, 16 * MIB);
    cr_assert_eq(rig_try(rig, 2 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    rig_check_contents(rig, &first);
    rig_check_contents(rig, &second);
    rig_end(rig);
}

/* Two devices, and what they may have on the host together: what one gives back the other gets. */
Test(spill, pools_share_the_limit)
{
    struct ms_budget shared;
    ms_budget_init(&shared, 24 * MIB);
    struct rig_wishes wishes = {.granule_bytes = GRANULE,
                                .total_bytes = 4 * CAP_BYTES,
                                .cap_bytes = CAP_BYTES,
                                .host_limit_bytes = 2 * CAP_BYTES,
                                .spill_limit_bytes = 24 * MIB,
                                .spill_budget = &shared};
    struct rig *one = rig_make_as(wishes);
    struct rig *other = rig_make_as(wishes);
    struct ms_block_info none;
    struct ms_block_info first[2] = {rig_write_new(one, CAP_BYTES / 2),
                                     rig_write_new(one, CAP_BYTES / 2)};
    struct ms_block_info second = rig_write_new(other, CAP_BYTES);
    struct ms_block_info more = rig_write_new(one, 16 * MIB);
    cr_assert_eq(atomic_load(&shared.charged_bytes), 16 * MIB);
    cr_assert_eq(rig_try(other, 16 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    struct ms_block_info last = rig_write_new(other, 8 * MIB);
    cr_assert_eq(atomic_load(&shared.charged_bytes), 24 * MIB);
    cr_assert_eq(rig_try(one, 2 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    /* Back, by a promotion that fails first, and by frees. */
    rig_free(one, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(one->pool, 0);
    ms_dry_fail(one->dry, MS_DRY_MAP, 1, 999);
    (void)ms_pool_promote(one->pool, UINT64_MAX);
    (void)ms_pool_promote(one->pool, UINT64_MAX);
    cr_assert_eq(atomic_load(&shared.charged_bytes), 8 * MIB);
    more = rig_write_new(other, 16 * MIB);
    rig_free(other, second, MS_STREAM_DEVICE);
    rig_check_contents(one, &first[0]);
    rig_check_contents(one, &first[1]);
    rig_check_contents(other, &last);
    rig_check_contents(other, &more);
    rig_end(one);
    rig_end(other);
    cr_assert_eq(atomic_load(&shared.charged_bytes), 0);
}

/* What the driver took by itself passed the cap: that has to be made good before anything fits. */
Test(spill, room_is_made_beyond_an_overshoot)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[8];
    for (int k = 0; k < 8; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    ms_budget_impose(&rig->budget, MS_OWNER_CONTEXT, ms_budget_free_bytes(&rig->budget) + 6 * MIB);
    cr_assert(ms_pool_make_room(rig->pool, 2 * MIB, true));
    cr_assert(ms_budget_charge(&rig->budget, MS_OWNER_FORWARDED, 2 * MIB));
    rig_check(rig);
    for (int k = 0; k < 8; k++) {
        rig_check_contents(rig, &block[k]);
    }
    rig_end(rig);
}

/* Small blocks that share a chunk move together, with what is free between them, which nobody gets
 * meanwhile; it drains when the last of them is freed. */
Test(spill, blocks_that_share_a_chunk)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info small[8];
    for (int k = 0; k < 8; k++) {
        small[k] = rig_write_new(rig, 400 * KIB);
    }
    rig_free(rig, small[1], MS_STREAM_DEVICE);
    struct ms_block_info large = rig_write_new(rig, CAP_BYTES - 4 * MIB);
    (void)ms_pool_touch(rig->pool, large.addr, 0);
    struct ms_block_info more = rig_write_new(rig, 4 * MIB);
    cr_assert_eq(spill_stats(rig).spilled_bytes, 4 * MIB);
    cr_assert_eq(ms_pool_touch(rig->pool, small[0].addr, 0), 400 * KIB, "it is on the host");
    cr_assert_eq(ms_pool_touch(rig->pool, large.addr, 0), 0);
    rig_free(rig, more, MS_STREAM_DEVICE);
    for (int k = 0; k < 8; k++) {
        if (k != 1) {
            rig_check_contents(rig, &small[k]);
        }
        if (k != 1 && k != 7) {
            rig_free(rig, small[k], MS_STREAM_DEVICE);
            rig_check(rig);
        }
    }
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 2 * MIB, "one chunk has something live");
    rig_check_contents(rig, &small[7]);
    rig_check(rig);
    cr_assert_eq(rig_stats(rig).host_backed_bytes, 0);
    struct ms_block_info again = rig_alloc(rig, 400 * KIB, MS_STREAM_DEVICE);
    rig_free(rig, again, MS_STREAM_DEVICE);
    rig_free(rig, small[7], MS_STREAM_DEVICE);
    rig_free(rig, large, MS_STREAM_DEVICE);
    rig_end(rig);
}

/* Free memory beside a cold block, with work of its last owner under way: while the device does not
 * stand still it stays where it waits. A standstill is tried after a wait that was shorter. */
Test(spill, free_memory_keeps_its_order)
{
    struct rig *rig = spilling_rig_that_waits(MS_HALT_LEAST_NS / 2);
    cr_assert_eq(ms_dry_stream_create(rig->dry, 1), MS_OK);
    struct ms_block_info cold = rig_write_new(rig, 1 * MIB);
    struct ms_block_info freed = rig_alloc(rig, 1 * MIB, 1);
    rig_work(rig, freed, 1);
    ms_dry_set_stalled(rig->dry, true);
    rig_free(rig, freed, 1);
    struct ms_block_info large = rig_write_new(rig, CAP_BYTES - 2 * MIB);
    (void)ms_pool_pin(rig->pool, large.addr);
    struct ms_block_info none;
    cr_assert_eq(rig_try(rig, 2 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(spill_stats(rig).halts_refused, 1);
    cr_assert_eq(rig_stats(rig).pending_bytes, 1 * MIB);
    cr_assert_eq(rig_try(rig, 1 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    rig_check(rig);
    rig_check_contents(rig, &cold);
    ms_dry_set_stalled(rig->dry, false);
    ms_dry_advance(rig->dry, RIG_WAIT_NS);
    struct ms_block_info more = rig_write_new(rig, 2 * MIB);
    rig_check_contents(rig, &cold);
    rig_check_contents(rig, &more);
    rig_end(rig);
}

/* Over and over: held on the host, until there is room for all that is spilled. */
Test(spill, what_comes_and_goes_is_held)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info hot = rig_write_new(rig, CAP_BYTES - 8 * MIB);
    struct ms_block_info cold = rig_write_new(rig, 8 * MIB);
    cr_assert_eq(ms_pool_pin(rig->pool, hot.addr), MS_OK);
    uint64_t promoted = 0;
    for (int round = 0; round < 10; round++) {
        struct ms_block_info block = rig_write_new(rig, 8 * MIB);
        rig_check_contents(rig, &cold);
        rig_free(rig, block, MS_STREAM_DEVICE);
        (void)ms_pool_trim(rig->pool, 0);
        /* Room for a half of it. */
        cr_assert(ms_budget_charge(&rig->budget, MS_OWNER_FORWARDED, 4 * MIB));
        uint64_t bytes = ms_pool_promote(rig->pool, UINT64_MAX);
        ms_budget_discharge(&rig->budget, MS_OWNER_FORWARDED, 4 * MIB);
        promoted += bytes;
        cr_assert(bytes == 4 * MIB || (round >= 3 && bytes == 0), "round %d: %lu", round,
                  (unsigned long)bytes);
    }
    cr_assert_leq(promoted, 24 * MIB);
    cr_assert_gt(spill_stats(rig).thrashed_bytes, 0);
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 8 * MIB);
    rig_check_contents(rig, &cold);
    rig_end(rig);
}

Test(spill, promoted_by_range)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info block[12];
    for (int k = 0; k < 12; k++) {
        block[k] = rig_write_new(rig, 8 * MIB);
    }
    cr_assert_eq(ms_pool_promote_range(rig->pool, block[1].addr, 8 * MIB), MS_ERR_NO_MEMORY);
    rig_free(rig, block[11], MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    rig->events = 0;
    cr_assert_eq(ms_pool_promote_range(rig->pool, block[1].addr, 8 * MIB), MS_OK);
    cr_assert_eq(ms_pool_promote_range(rig->pool, block[1].addr, 8 * MIB), MS_OK);
    cr_assert_eq(rig_count(rig, MS_EVENT_PROMOTE), 1);
    cr_assert_eq(ms_pool_touch(rig->pool, block[1].addr, 0), 0);
    cr_assert_eq(ms_pool_touch(rig->pool, block[0].addr, 0), 8 * MIB);
    cr_assert_eq(ms_pool_promote_range(rig->pool, 1, 8), MS_ERR_NOT_OURS);
    for (int k = 0; k < 11; k++) {
        rig_check_contents(rig, &block[k]);
    }
    rig_end(rig);
}

/* Tensors that another thread frees while the chunks for their way back are being staged come
 * along, and are free there. */
static struct {
    ms_arenas_t *arenas;
    ms_addr_t addr;
    ms_status_t (*set_access)(void *ctx, ms_addr_t addr, uint64_t bytes);
    ms_status_t (*map)(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk);
} meanwhile;

static ms_status_t set_access_and_free(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    ms_arenas_t *arenas = meanwhile.arenas;
    meanwhile.arenas = NULL;
    if (arenas != NULL) {
        cr_assert_eq(ms_arenas_freed(arenas, meanwhile.addr, 8 * MIB, UINT64_MAX), MS_OK);
    }
    return meanwhile.set_access(ctx, addr, bytes);
}

Test(spill, dead_before_the_way_back)
{
    struct rig *rig = spilling_rig();
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &meanwhile.arenas), MS_OK);
    ms_arenas_t *arenas = meanwhile.arenas;
    struct ms_block_info arena = rig_alloc(rig, 16 * MIB, MS_STREAM_DEVICE);
    for (uint64_t k = 0; k < 2; k++) {
        cr_assert_eq(ms_arenas_allocated(arenas, arena.addr + k * 8 * MIB, 8 * MIB, 0, UINT64_MAX),
                     MS_OK);
    }
    struct ms_block_info block = rig_write_new(rig, 48 * MIB);
    (void)ms_pool_touch(rig->pool, block.addr, 0);
    struct ms_block_info more = rig_write_new(rig, 16 * MIB);
    cr_assert_eq(spill_stats(rig).spilled_bytes, 16 * MIB);
    rig_free(rig, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    struct ms_device_ops *ops = (struct ms_device_ops *)ms_dry_ops(rig->dry); /* the rig's own */
    meanwhile.set_access = ops->set_access;
    meanwhile.addr = arena.addr;
    ops->set_access = set_access_and_free;
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 16 * MIB);
    cr_assert_null(meanwhile.arenas);
    rig_check(rig);
    struct ms_block_info next = rig_write_new(rig, 8 * MIB);
    cr_assert_eq(spill_stats(rig).spilled_bytes, 0);
    rig_free(rig, next, MS_STREAM_DEVICE);
    rig_check_contents(rig, &block);
    rig_free(rig, arena, MS_STREAM_DEVICE);
    rig_free(rig, block, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

/* A framework's first report on a block comes while part of it is between two places. */
static ms_status_t map_and_report(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk)
{
    ms_arenas_t *arenas = meanwhile.arenas;
    if (arenas != NULL && addr - meanwhile.addr < 32 * MIB) {
        meanwhile.arenas = NULL;
        cr_assert_eq(ms_arenas_allocated(arenas, meanwhile.addr + 31 * MIB, MIB / 2, 0, UINT64_MAX),
                     MS_OK);
    }
    return meanwhile.map(ctx, addr, bytes, chunk);
}

Test(spill, becomes_an_arena_on_the_way)
{
    struct rig *rig = spilling_rig();
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &meanwhile.arenas), MS_OK);
    ms_arenas_t *arenas = meanwhile.arenas;
    struct ms_block_info arena = rig_write_new(rig, 32 * MIB);
    struct ms_block_info block = rig_write_new(rig, 32 * MIB);
    struct ms_device_ops *ops = (struct ms_device_ops *)ms_dry_ops(rig->dry);
    meanwhile.map = ops->map;
    meanwhile.addr = arena.addr;
    ops->map = map_and_report;
    struct ms_block_info more = rig_write_new(rig, 8 * MIB);
    cr_assert_null(meanwhile.arenas);
    cr_assert_eq(spill_stats(rig).spilled_bytes, 8 * MIB);
    cr_assert_eq(rig_stats(rig).unbacked_bytes, 0);
    rig_check(rig);
    rig_check_contents(rig, &arena);
    rig_free(rig, arena, MS_STREAM_DEVICE);
    rig_free(rig, block, MS_STREAM_DEVICE);
    rig_free(rig, more, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

/* Pages of a framework: what is live on them makes room for more of them, and for allocations. */
Test(spill, pages_of_a_framework)
{
    struct rig *rig = spilling_rig();
    ms_arenas_t *arenas = NULL;
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arenas), MS_OK);
    const struct ms_device_ops *ops = ms_dry_ops(rig->dry);
    const uint64_t reserved_bytes = 16 * CAP_BYTES;
    const uint64_t page_bytes = 20 * MIB;
    enum { PAGES = 5 };
    ms_addr_t base = 0;
    cr_assert_eq(ops->address_reserve(ops->ctx, reserved_bytes, 0, &base), MS_OK);
    for (uint64_t k = 0; k < PAGES; k++) {
        ms_proxy_t *page = NULL;
        ms_addr_t addr = base + k * page_bytes;
        cr_assert_eq(ms_proxy_create(rig->pool, page_bytes, NULL, true, &page), MS_OK, "page %lu",
                     (unsigned long)k);
        cr_assert_eq(ms_proxy_map(rig->pool, page, addr, base, reserved_bytes), MS_OK);
        cr_assert_eq(ms_proxy_access(rig->pool, addr, page_bytes), MS_OK);
        ms_proxy_release(rig->pool, page);
        cr_assert_eq(ms_arenas_allocated(arenas, addr, page_bytes, 0, UINT64_MAX), MS_OK);
        ms_dry_write(rig->dry, addr, page_bytes, 100 + k);
        rig_check(rig);
    }
    for (uint64_t k = 0; k < PAGES; k++) {
        ms_addr_t addr = base + k * page_bytes;
        cr_assert(ms_dry_accessible(rig->dry, addr, page_bytes));
        cr_assert(ms_dry_holds(rig->dry, addr, page_bytes, 100 + k), "page %lu", (unsigned long)k);
    }
    /* The newest are on the device: what is born is hot. */
    cr_assert_eq(ms_pool_touch(rig->pool, base + 4 * page_bytes, page_bytes), 0);
    cr_assert_gt(spill_stats(rig).spilled_bytes, 0);
    for (uint64_t k = 0; k < PAGES; k++) {
        ms_addr_t addr = base + k * page_bytes;
        cr_assert_eq(ms_arenas_freed(arenas, addr, page_bytes, UINT64_MAX), MS_OK);
    }
    cr_assert_eq(ms_proxy_unmap(rig->pool, base, PAGES * page_bytes), MS_OK);
    ms_proxy_reservation_gone(rig->pool, base);
    cr_assert_eq(ops->address_free(ops->ctx, base, reserved_bytes), MS_OK);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

/* The tensors born first go first, wherever they lie; and what is born again where a dead tensor
 * left a host chunk lies on the device. */
Test(spill, what_is_born_is_hot)
{
    struct rig *rig = spilling_rig();
    ms_arenas_t *arenas = NULL;
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arenas), MS_OK);
    struct ms_block_info arena = rig_alloc(rig, CAP_BYTES, MS_STREAM_DEVICE);
    for (uint64_t k = 16; k-- > 0;) {
        ms_addr_t addr = arena.addr + k * 4 * MIB;
        cr_assert_eq(ms_arenas_allocated(arenas, addr, 4 * MIB, 0, UINT64_MAX), MS_OK);
        ms_dry_write(rig->dry, addr, 4 * MIB, 1000 + k);
    }
    struct ms_block_info block = rig_write_new(rig, 8 * MIB);
    uint64_t on_host = 0;
    for (uint64_t k = 14; k < 16; k++) {
        on_host += ms_pool_touch(rig->pool, arena.addr + k * 4 * MIB, 0);
    }
    cr_assert_eq(on_host, 8 * MIB, "%lu bytes of the first-born are on the host",
                 (unsigned long)on_host);
    ms_addr_t reborn = arena.addr + 60 * MIB;
    cr_assert_eq(ms_arenas_freed(arenas, reborn, 4 * MIB, UINT64_MAX), MS_OK);
    struct ms_block_info more =
        rig_write_new(rig, 2 * MIB); /* in which the host sees what is done */
    cr_assert_eq(ms_arenas_allocated(arenas, reborn, 4 * MIB, 0, UINT64_MAX), MS_OK);
    ms_dry_write(rig->dry, reborn, 4 * MIB, 1015);
    cr_assert_eq(ms_pool_touch(rig->pool, reborn, 0), 0);
    for (uint64_t k = 0; k < 16; k++) {
        cr_assert(ms_dry_holds(rig->dry, arena.addr + k * 4 * MIB, 4 * MIB, 1000 + k));
    }
    rig_check_contents(rig, &block);
    rig_check_contents(rig, &more);
    rig_free(rig, arena, MS_STREAM_DEVICE);
    rig_free(rig, block, MS_STREAM_DEVICE);
    rig_free(rig, more, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

/* For want of a standstill it cannot be brought back, and is not pinned: later it is, and moves. */
Test(spill, what_cannot_be_brought_back_is_not_pinned)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info cold = rig_write_new(rig, 1 * MIB);
    struct ms_block_info beside = rig_write_new(rig, 1 * MIB);
    struct ms_block_info large = rig_write_new(rig, CAP_BYTES - 2 * MIB);
    struct ms_block_info more = rig_write_new(rig, 2 * MIB);
    cr_assert_eq(ms_pool_touch(rig->pool, cold.addr, 0), 1 * MIB, "it is on the host");
    cr_assert_eq(ms_pool_touch(rig->pool, beside.addr, 0), 1 * MIB);
    ms_dry_fail(rig->dry, MS_DRY_HALT, 1, MS_ERR_NOT_READY);
    cr_assert_eq(ms_pool_pin(rig->pool, cold.addr), MS_ERR_NO_MEMORY);
    struct ms_block_info found;
    cr_assert_eq(ms_pool_find(rig->pool, cold.addr, &found), MS_OK);
    cr_assert_not(found.pinned);
    rig_free(rig, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_eq(ms_pool_pin(rig->pool, cold.addr), MS_OK);
    cr_assert_eq(ms_pool_on_host_bytes(rig->pool, cold.addr, 1 * MIB), 0);
    cr_assert_eq(ms_pool_find(rig->pool, cold.addr, &found), MS_OK);
    cr_assert(found.pinned);
    rig_check_contents(rig, &cold);
    rig_check_contents(rig, &beside);
    rig_check_contents(rig, &large);
    rig_end(rig);
}

/* Cover of obligations and what is spilled share the host: where it cannot take both, nothing
 * moves.
 */
Test(spill, not_in_vain)
{
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 4 * CAP_BYTES,
                                                      .cap_bytes = CAP_BYTES,
                                                      .host_limit_bytes = 20 * MIB,
                                                      .spill_limit_bytes = 20 * MIB});
    ms_arenas_t *arenas = NULL;
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arenas), MS_OK);
    struct ms_block_info arena = rig_alloc(rig, 32 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(ms_arenas_allocated(arenas, arena.addr, 2 * MIB, 0, UINT64_MAX), MS_OK);
    ms_dry_write(rig->dry, arena.addr, 2 * MIB, 1000);
    struct ms_block_info block = rig_write_new(rig, 32 * MIB);
    struct ms_block_info more;
    cr_assert_eq(rig_try(rig, 22 * MIB, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), 0);
    cr_assert_eq(spill_stats(rig).down_bytes, 0);
    rig_check(rig);
    more = rig_write_new(rig, 20 * MIB);
    cr_assert(ms_dry_holds(rig->dry, arena.addr, 2 * MIB, 1000));
    rig_check_contents(rig, &block);
    rig_free(rig, arena, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

/* What is free but for its work is waited for: the standstill would wait for that too. */
Test(spill, frees_in_flight_first)
{
    struct rig *rig = spilling_rig();
    cr_assert_eq(ms_dry_stream_create(rig->dry, 1), MS_OK);
    struct ms_block_info freed = rig_alloc(rig, 32 * MIB, 1);
    struct ms_block_info kept = rig_write_new(rig, 32 * MIB);
    cr_assert_eq(ms_dry_work(rig->dry, 1, freed.id, freed.addr, freed.bytes, 100000), MS_OK);
    rig_free(rig, freed, 1);
    struct ms_block_info block = rig_write_new(rig, 48 * MIB);
    cr_assert_eq(spill_stats(rig).down_bytes, 16 * MIB);
    rig_check_contents(rig, &kept);
    rig_check_contents(rig, &block);
    rig_end(rig);
}

/* Asked in vain for a second time, the device is let alone for as long as that took. */
Test(spill, refused_standstills_grow_rare)
{
    struct rig *rig = spilling_rig();
    cr_assert_eq(ms_dry_stream_create(rig->dry, 1), MS_OK);
    struct ms_block_info block = rig_write_new(rig, CAP_BYTES);
    rig_work(rig, block, 1);
    ms_dry_set_stalled(rig->dry, true);
    struct ms_block_info more;
    for (int k = 0; k < 50; k++) {
        cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
    }
    cr_assert_eq(spill_stats(rig).halts_refused, 2);
    ms_dry_advance(rig->dry, RIG_WAIT_NS);
    for (int k = 0; k < 50; k++) {
        cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
    }
    cr_assert_eq(spill_stats(rig).halts_refused, 3);
    ms_dry_set_stalled(rig->dry, false);
    cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
    ms_dry_advance(rig->dry, 2 * RIG_WAIT_NS);
    cr_assert_eq(rig_try(rig, 4 * MIB, MS_STREAM_DEVICE, &more), MS_OK);
    rig_check_contents(rig, &block);
    rig_end(rig);
}

/* What is freed on the host's chunks waits there for the last block of its chunk, and is looked at
 * whenever memory is short: that takes time by the number of blocks, not by its square. */
Test(spill, a_chunk_of_thousands_of_freed_blocks, .timeout = 120)
{
    enum {
        SMALL_BYTES = 512,
        SMALL = CAP_BYTES / SMALL_BYTES,
        IN_A_GRANULE = GRANULE / SMALL_BYTES
    };
    struct rig *rig = spilling_rig();
    struct ms_block_info *small = calloc(SMALL, sizeof(*small));
    cr_assert_not_null(small);
    for (int k = 0; k < SMALL; k++) {
        cr_assert_eq(rig_try(rig, SMALL_BYTES, MS_STREAM_DEVICE, &small[k]), MS_OK);
    }
    struct ms_block_info large = rig_write_new(rig, CAP_BYTES / 2);
    cr_assert_geq(rig_stats(rig).host_backed_bytes, CAP_BYTES / 2);
    for (int k = 0; k < SMALL; k++) {
        if (k % IN_A_GRANULE != IN_A_GRANULE / 2) {
            rig_free(rig, small[k], MS_STREAM_DEVICE);
        }
    }
    for (int round = 0; round < 300; round++) {
        (void)ms_pool_make_room(rig->pool, 0, false);
    }
    cr_assert_geq(rig_stats(rig).host_backed_bytes, CAP_BYTES / 2);
    for (int k = IN_A_GRANULE / 2; k < SMALL; k += IN_A_GRANULE) {
        rig_free(rig, small[k], MS_STREAM_DEVICE);
    }
    (void)ms_pool_make_room(rig->pool, 0, false);
    cr_assert_eq(rig_stats(rig).host_backed_bytes, 0);
    rig_check_contents(rig, &large);
    rig_end(rig);
    free(small);
}

/* While a stream captures, nothing comes back. */
Test(spill, no_range_is_promoted_during_a_capture)
{
    struct rig *rig = spilling_rig();
    struct ms_block_info cold = rig_write_new(rig, 8 * MIB);
    struct ms_block_info large = rig_write_new(rig, CAP_BYTES - 8 * MIB);
    struct ms_block_info more = rig_write_new(rig, 8 * MIB);
    rig_free(rig, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    uint64_t halts = ms_dry_calls(rig->dry, MS_DRY_HALT);
    ms_dry_set_capturing(rig->dry, true);
    cr_assert_eq(ms_pool_promote_range(rig->pool, cold.addr, 8 * MIB), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_HALT), halts);
    ms_dry_set_capturing(rig->dry, false);
    cr_assert_eq(ms_pool_promote_range(rig->pool, cold.addr, 8 * MIB), MS_OK);
    rig_check_contents(rig, &cold);
    rig_check_contents(rig, &large);
    rig_end(rig);
}
