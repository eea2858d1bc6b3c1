/* SPDX-License-Identifier: Apache-2.0 */
/* A device that has less than the cap, because others hold the rest of it. */
#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"
#include "rig.h"

#define DEVICE_BYTES (256 * MIB)
#define OTHERS_BYTES (192 * MIB) /* so that 64 MiB are left */
#define PAGE         (20 * MIB)
#define RESERVED     (400 * MIB)

enum { BLOCKS = 12 };

static struct rig *build(uint64_t spill_limit_bytes, uint64_t unusable_bytes)
{
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = DEVICE_BYTES,
                                                      .cap_bytes = DEVICE_BYTES,
                                                      .host_limit_bytes = 128 * MIB,
                                                      .spill_limit_bytes = spill_limit_bytes});
    ms_dry_set_others(rig->dry, OTHERS_BYTES, unusable_bytes);
    return rig;
}

static bool bound(const struct rig *rig)
{
    return ms_budget_limit_bytes(&rig->budget) < DEVICE_BYTES;
}

/* 96 MiB in all. */
static void fill(struct rig *rig, struct ms_block_info block[BLOCKS])
{
    for (int k = 0; k < BLOCKS; k++) {
        block[k] = rig_alloc(rig, 8 * MIB, MS_STREAM_DEVICE);
        ms_dry_write(rig->dry, block[k].addr, block[k].bytes, block[k].id);
        rig_check(rig);
    }
}

static void check_contents(struct rig *rig, const struct ms_block_info block[BLOCKS])
{
    for (int k = 0; k < BLOCKS; k++) {
        cr_assert(ms_dry_accessible(rig->dry, block[k].addr, block[k].bytes));
        cr_assert(ms_dry_holds(rig->dry, block[k].addr, block[k].bytes, block[k].id));
    }
}

static void free_all(struct rig *rig, const struct ms_block_info block[BLOCKS])
{
    for (int k = 0; k < BLOCKS; k++) {
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    rig_end(rig);
}

Test(device_room, live_memory_is_spilled_as_at_the_cap)
{
    struct rig *rig = build(128 * MIB, 0);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    check_contents(rig, block);
    cr_assert_geq(rig_stats(rig).spill.spilled_bytes, 32 * MIB);
    cr_assert(bound(rig));
    free_all(rig, block);
}

Test(device_room, what_a_driver_keeps_back_is_not_counted_on)
{
    struct rig *rig = build(128 * MIB, 24 * MIB);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    uint64_t made = rig_stats(rig).chunks_created;
    uint64_t asked = ms_dry_calls(rig->dry, MS_DRY_CHUNK_CREATE);
    struct ms_block_info more = rig_alloc(rig, 8 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(ms_dry_calls(rig->dry, MS_DRY_CHUNK_CREATE) - asked,
                 rig_stats(rig).chunks_created - made, "the device is not asked in vain again");
    check_contents(rig, block);
    rig_free(rig, more, MS_STREAM_DEVICE);
    free_all(rig, block);
}

Test(device_room, room_that_others_give_back_is_used)
{
    struct rig *rig = build(128 * MIB, 0);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    ms_dry_set_others(rig->dry, 0, 0);
    (void)ms_pool_promote(rig->pool, UINT64_MAX);
    rig_check(rig);
    cr_assert_eq(rig_stats(rig).spill.spilled_bytes, 0);
    cr_assert(!bound(rig));
    check_contents(rig, block);
    free_all(rig, block);
}

Test(device_room, without_spilling_it_is_refused_until_others_give_back)
{
    struct rig *rig = build(0, 0);
    struct ms_block_info first = rig_alloc(rig, 60 * MIB, MS_STREAM_DEVICE);
    struct ms_block_info second = {0};
    cr_assert_eq(rig_try(rig, 8 * MIB, MS_STREAM_DEVICE, &second), MS_ERR_NO_MEMORY);
    rig_check(rig);
    struct ms_block_info small = rig_alloc(rig, 4 * MIB, MS_STREAM_DEVICE);
    ms_dry_set_others(rig->dry, OTHERS_BYTES - 8 * MIB, 0);
    cr_assert_eq(rig_try(rig, 8 * MIB, MS_STREAM_DEVICE, &second), MS_OK);
    cr_assert(bound(rig));
    ms_dry_set_others(rig->dry, 0, 0);
    struct ms_block_info third = rig_alloc(rig, 160 * MIB, MS_STREAM_DEVICE);
    cr_assert(!bound(rig));
    rig_free(rig, first, MS_STREAM_DEVICE);
    rig_free(rig, small, MS_STREAM_DEVICE);
    rig_free(rig, second, MS_STREAM_DEVICE);
    rig_free(rig, third, MS_STREAM_DEVICE);
    rig_end(rig);
}

/* A framework's pages, and what the device lacks lies in their holes. */
Test(device_room, holes_give_way_and_pages_are_refused)
{
    struct rig *rig = build(0, 0);
    const struct ms_device_ops *ops = ms_dry_ops(rig->dry);
    ms_arenas_t *arenas = NULL;
    ms_addr_t base = 0;
    ms_proxy_t *page[4] = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, (struct ms_event_sink){0}, &arenas), MS_OK);
    cr_assert_eq(ops->address_reserve(ops->ctx, RESERVED, GRANULE, &base), MS_OK);
    for (uint64_t k = 0; k < 3; k++) {
        ms_addr_t addr = base + k * PAGE;
        cr_assert_eq(ms_proxy_create(rig->pool, PAGE, NULL, true, &page[k]), MS_OK);
        cr_assert_eq(ms_proxy_map(rig->pool, page[k], addr, base, RESERVED), MS_OK);
        cr_assert_eq(ms_proxy_access(rig->pool, addr, PAGE), MS_OK);
    }
    cr_assert_eq(ms_proxy_create(rig->pool, PAGE, NULL, true, &page[3]), MS_ERR_NO_MEMORY);
    rig_check(rig);
    cr_assert_eq(ms_arenas_allocated(arenas, base, PAGE, 5, PAGE), MS_OK);
    struct ms_block_info block = rig_alloc(rig, 30 * MIB, MS_STREAM_DEVICE);
    rig_check(rig);
    cr_assert_geq(rig_stats(rig).unbacked_bytes, 26 * MIB);
    cr_assert_eq(ms_proxy_create(rig->pool, PAGE, NULL, true, &page[3]), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(rig).host_backed_bytes, 0);
    rig_free(rig, block, MS_STREAM_DEVICE);
    ms_arenas_block_gone(arenas, base, 3 * PAGE);
    cr_assert_eq(ms_proxy_unmap(rig->pool, base, 3 * PAGE), MS_OK);
    for (uint64_t k = 0; k < 3; k++) {
        ms_proxy_release(rig->pool, page[k]);
    }
    ms_proxy_reservation_gone(rig->pool, base);
    cr_assert_eq(ops->address_free(ops->ctx, base, RESERVED), MS_OK);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}
