/* SPDX-License-Identifier: Apache-2.0 */
/* What is spilled lies on few large chunks, and moves in pieces that are exchanged while the next
 * ones are copied. */
#include "allocator/arenas/arena.h"
#include "rig.h"

#define CAP_BYTES   (256 * MIB)
#define BLOCK_BYTES (64 * MIB)
#define AHEAD_BYTES (CAP_BYTES / 128) /* of need, in the same standstill */

enum { BLOCKS = 4 };

static struct rig *spilling_rig(const struct ms_dry_costs *costs)
{
    return rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                           .total_bytes = 2 * CAP_BYTES,
                                           .cap_bytes = CAP_BYTES,
                                           .host_limit_bytes = CAP_BYTES,
                                           .spill_limit_bytes = CAP_BYTES,
                                           .costs = costs});
}

static void fill(struct rig *rig, struct ms_block_info *block)
{
    for (int k = 0; k < BLOCKS; k++) {
        block[k] = rig_write_new(rig, BLOCK_BYTES);
    }
    rig->events = 0;
}

/* Of what was created on the host since the events were forgotten. */
static uint64_t host_chunks(const struct rig *rig, uint64_t *bytes)
{
    uint64_t count = 0;
    *bytes = 0;
    for (size_t at = 0; at < rig->events; at++) {
        const struct ms_event *event = &rig->event[at];
        if (event->kind == MS_EVENT_CHUNK_CREATE && event->aux == MS_LOCATION_HOST) {
            count++;
            *bytes += event->bytes;
        }
    }
    return count;
}

Test(spill_large, one_block_on_few_chunks)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_block_info block[BLOCKS];
    uint64_t bytes = 0;
    fill(rig, block);
    struct ms_block_info more = rig_write_new(rig, BLOCK_BYTES);
    rig_check(rig);
    cr_assert_eq(rig_stats(rig).spill.spilled_bytes, BLOCK_BYTES + AHEAD_BYTES);
    cr_assert_leq(host_chunks(rig, &bytes), 6, "8 and 16 MiB each, a sixteenth of the cap");
    cr_assert_eq(bytes, BLOCK_BYTES + AHEAD_BYTES);
    cr_assert_eq(ms_pool_touch(rig->pool, block[0].addr, 0), BLOCK_BYTES, "the oldest one");
    for (int k = 0; k < BLOCKS; k++) {
        rig_check_contents(rig, &block[k]);
    }
    /* Back, when there is room. */
    rig_free(rig, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), BLOCK_BYTES + AHEAD_BYTES);
    cr_assert_eq(ms_pool_touch(rig->pool, block[0].addr, 0), 0);
    rig_check_contents(rig, &block[0]);
    rig_check(rig);
    /* Dead on the host: all of it leaves. */
    more = rig_write_new(rig, BLOCK_BYTES);
    for (int k = 0; k < BLOCKS; k++) {
        rig_check_contents(rig, &block[k]);
        rig_free(rig, block[k], MS_STREAM_DEVICE);
    }
    (void)rig_write_new(rig, CAP_BYTES - BLOCK_BYTES);
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 0);
    cr_assert_eq(rig_stats(rig).host_backed_bytes, 0);
    rig_check_contents(rig, &more);
    rig_end(rig);
}

/* Of what was created on the device since the events were forgotten: on chunks of more than one
 * granule. */
static uint64_t large_device_bytes(const struct rig *rig)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < rig->events; at++) {
        const struct ms_event *event = &rig->event[at];
        if (event->kind == MS_EVENT_CHUNK_CREATE && event->aux == MS_LOCATION_DEVICE) {
            bytes += event->bytes > GRANULE ? event->bytes : 0;
        }
    }
    return bytes;
}

/* What comes and goes together comes back on few chunks, and goes again from them. */
Test(spill_large, few_chunks_on_the_way_back)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    for (int round = 0; round < 3; round++) {
        struct ms_block_info more = rig_write_new(rig, BLOCK_BYTES);
        rig_free(rig, more, MS_STREAM_DEVICE);
        (void)ms_pool_trim(rig->pool, 0);
        rig->events = 0;
        cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), BLOCK_BYTES + AHEAD_BYTES);
        rig_check(rig);
        cr_assert_geq(large_device_bytes(rig), BLOCK_BYTES, "4 MiB each, a 64th of the cap");
        for (int k = 0; k < BLOCKS; k++) {
            rig_check_contents(rig, &block[k]);
        }
    }
    /* A part of such a chunk is no other's: a small request takes its bytes, not its chunk. */
    rig_free(rig, block[0], MS_STREAM_DEVICE);
    struct ms_block_info small = rig_write_new(rig, GRANULE);
    struct ms_block_info rest = rig_write_new(rig, BLOCK_BYTES - 2 * GRANULE);
    rig_check(rig);
    rig_check_contents(rig, &small);
    rig_check_contents(rig, &rest);
    rig_end(rig);
}

/* Three granules: a large chunk goes, of two, and of others a small one. */
Test(spill_large, no_more_than_is_lacking)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    struct ms_block_info more = rig_write_new(rig, BLOCK_BYTES);
    rig_free(rig, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_gt(ms_pool_promote(rig->pool, UINT64_MAX), 0);
    (void)rig_write_new(rig, 2 * GRANULE);
    rig_check(rig);
    cr_assert_eq(rig_stats(rig).spill.spilled_bytes, 2 * GRANULE + AHEAD_BYTES);
    for (int k = 0; k < BLOCKS; k++) {
        rig_check_contents(rig, &block[k]);
    }
    rig_end(rig);
}

/* Nobody knows which part of a block is colder: what goes are neighbours. */
Test(spill_large, a_part_of_a_block_is_one_run)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_block_info block[BLOCKS];
    ms_addr_t next = 0;
    fill(rig, block);
    (void)rig_write_new(rig, BLOCK_BYTES / 2);
    for (size_t at = 0; at < rig->events; at++) {
        const struct ms_event *event = &rig->event[at];
        if (event->kind == MS_EVENT_SPILL) {
            cr_assert(next == 0 || event->addr == next);
            next = event->addr + event->bytes;
        }
    }
    cr_assert_eq(next, block[0].addr + BLOCK_BYTES / 2 + AHEAD_BYTES);
    rig_end(rig);
}

/* Blocks that end within a granule share it with others: it is a chunk of its own. */
Test(spill_large, what_comes_and_goes_apart_lies_apart)
{
    struct rig *rig = spilling_rig(NULL);
    uint64_t bytes = 0;
    struct ms_block_info odd[2] = {rig_write_new(rig, 9 * MIB), rig_write_new(rig, 9 * MIB)};
    struct ms_block_info rest = rig_write_new(rig, CAP_BYTES - 18 * MIB);
    cr_assert_eq(ms_pool_pin(rig->pool, rest.addr), MS_OK);
    rig->events = 0;
    struct ms_block_info more = rig_write_new(rig, 16 * MIB);
    cr_assert_geq(host_chunks(rig, &bytes), 3);
    rig_free(rig, odd[0], MS_STREAM_DEVICE);
    rig_free(rig, more, MS_STREAM_DEVICE);
    (void)ms_pool_trim(rig->pool, 0);
    (void)ms_pool_promote(rig->pool, UINT64_MAX);
    rig_check_contents(rig, &odd[1]);
    cr_assert_eq(rig_stats(rig).host_backed_bytes, 0);
    rig_free(rig, odd[1], MS_STREAM_DEVICE);
    rig_free(rig, rest, MS_STREAM_DEVICE);
    rig_end(rig);
}

/* What is on its way takes no time of the exchange's. */
Test(spill_large, copies_go_on_during_the_exchange)
{
    static const struct ms_dry_costs costs = {
        .call_ns = {[MS_DRY_MAP] = 10000, [MS_DRY_SET_ACCESS] = 300000, [MS_DRY_UNMAP] = 300000},
        .down_ns_per_mib = 50000,
        .up_ns_per_mib = 50000};
    struct rig *rig = spilling_rig(&costs);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    uint64_t calls[3] = {ms_dry_calls(rig->dry, MS_DRY_COPY), 0, 0};
    struct ms_block_info more = rig_write_new(rig, BLOCK_BYTES);
    uint64_t pieces = ms_dry_calls(rig->dry, MS_DRY_COPY) - calls[0];
    uint64_t copies_ns = BLOCK_BYTES / MIB * costs.down_ns_per_mib;
    uint64_t exchange_ns = pieces * 610000 + UINT64_C(5) * 10000;
    uint64_t held_ns = rig_stats(rig).spill.stall_ns;
    cr_assert_geq(held_ns, copies_ns);
    cr_assert_lt(held_ns, copies_ns + exchange_ns * 2 / 3, "%lu ns, %lu and %lu one by one",
                 (unsigned long)held_ns, (unsigned long)copies_ns, (unsigned long)exchange_ns);
    rig_check_contents(rig, &block[0]);
    rig_free(rig, more, MS_STREAM_DEVICE);
    rig_end(rig);
}

/* A copy fails, or the wait for it: what was exchanged before has moved, the rest stays. */
Test(spill_large, a_copy_fails_on_the_way)
{
    static const enum ms_dry_op ops[] = {MS_DRY_COPY, MS_DRY_COPY_WAIT};
    for (uint64_t at = 0; at < 12; at++) {
        struct rig *rig = spilling_rig(NULL);
        struct ms_block_info block[BLOCKS];
        fill(rig, block);
        ms_dry_fail(rig->dry, ops[at % 2], 1 + at / 2, 999);
        (void)ms_pool_make_room(rig->pool, BLOCK_BYTES, true);
        ms_dry_fail(rig->dry, ops[at % 2], 0, MS_OK);
        rig_check(rig);
        for (int k = 0; k < BLOCKS; k++) {
            rig_check_contents(rig, &block[k]);
        }
        uint64_t moved_bytes = rig_stats(rig).spill.spilled_bytes;
        cr_assert(at < 2 ? moved_bytes == 0 : at % 2 == 0 || moved_bytes > 0, "failure %lu",
                  (unsigned long)at);
        cr_assert(ms_pool_make_room(rig->pool, BLOCK_BYTES, true), "and then it works");
        rig_end(rig);
    }
}

/* Any call fails, once or twice on end, on the way down and on the way up. */
static bool play(enum ms_dry_op op, uint64_t nth, uint64_t count)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_block_info block[BLOCKS];
    fill(rig, block);
    uint64_t before = ms_dry_calls(rig->dry, op);
    if (count == 1) {
        ms_dry_fail(rig->dry, op, nth, 999);
    } else {
        ms_dry_fail_run(rig->dry, nth, count, 999);
    }
    struct ms_block_info more;
    if (rig_try(rig, BLOCK_BYTES / 2, MS_STREAM_DEVICE, &more) == MS_OK) {
        rig_free(rig, more, MS_STREAM_DEVICE);
        (void)ms_pool_trim(rig->pool, 0);
        (void)ms_pool_promote(rig->pool, UINT64_MAX);
    }
    bool reached = count > 1 ? nth < 200 : ms_dry_calls(rig->dry, op) - before >= nth;
    ms_dry_fail(rig->dry, op, 0, MS_OK);
    ms_dry_fail_run(rig->dry, 0, 0, MS_OK);
    rig_check(rig);
    cr_assert_eq(rig_count(rig, MS_EVENT_LOST), 0);
    for (int k = 0; k < BLOCKS; k++) {
        rig_check_contents(rig, &block[k]);
    }
    more = rig_write_new(rig, BLOCK_BYTES / 2);
    for (int k = 0; k < BLOCKS; k++) {
        rig_check_contents(rig, &block[k]);
    }
    rig_end(rig);
    return reached;
}

Test(spill_large, any_call_fails, .timeout = 600)
{
    uint64_t plays = 0;
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        for (uint64_t nth = 1; play((enum ms_dry_op)op, nth, 1); nth++) {
            plays++;
        }
    }
    cr_assert_gt(plays, 60);
}

Test(spill_large, calls_fail_on_end, .timeout = 600)
{
    for (uint64_t nth = 1; play(MS_DRY_MAP, nth, 2 + nth % 40); nth++) {
    }
}

static uint64_t large_host_bytes(const struct rig *rig)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < rig->events; at++) {
        const struct ms_event *event = &rig->event[at];
        if (event->kind == MS_EVENT_CHUNK_CREATE && event->aux == MS_LOCATION_HOST) {
            bytes += event->bytes > GRANULE ? event->bytes : 0;
        }
    }
    return bytes;
}

/* In an arena: on one chunk lies what one tensor has for itself. When that is freed there, and
 * others come in its place, these are backed by the device. */
Test(spill_large, tensors_in_an_arena)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_event_sink none = {0};
    ms_arenas_t *arenas = NULL;
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arenas), MS_OK);
    struct ms_block_info arena = rig_alloc(rig, 96 * MIB, MS_STREAM_DEVICE);
    for (uint64_t k = 0; k < 2; k++) {
        cr_assert_eq(
            ms_arenas_allocated(arenas, arena.addr + k * 33 * MIB, 33 * MIB, 0, UINT64_MAX), MS_OK);
        ms_dry_write(rig->dry, arena.addr + k * 33 * MIB, 33 * MIB, 7 + k);
    }
    struct ms_block_info block = rig_write_new(rig, CAP_BYTES - 96 * MIB);
    cr_assert_eq(ms_pool_pin(rig->pool, block.addr), MS_OK);
    rig->events = 0;
    struct ms_block_info more = rig_write_new(rig, 60 * MIB);
    rig_check(rig);
    cr_assert_gt(large_host_bytes(rig), 24 * MIB);
    cr_assert(ms_dry_holds(rig->dry, arena.addr, 33 * MIB, 7));
    cr_assert_eq(ms_arenas_freed(arenas, arena.addr, 33 * MIB, UINT64_MAX), MS_OK);
    rig_free(rig, more, MS_STREAM_DEVICE);
    for (uint64_t k = 0; k < 8; k++) {
        cr_assert_eq(ms_arenas_allocated(arenas, arena.addr + k * 4 * MIB, 4 * MIB, 0, UINT64_MAX),
                     MS_OK);
        rig_check(rig);
        cr_assert_eq(ms_pool_touch(rig->pool, arena.addr + k * 4 * MIB, 4 * MIB), 0,
                     "tensor %lu was born on the host", (unsigned long)k);
    }
    cr_assert(ms_dry_holds(rig->dry, arena.addr + 33 * MIB, 33 * MIB, 8));
    rig_free(rig, arena, MS_STREAM_DEVICE);
    rig_free(rig, block, MS_STREAM_DEVICE);
    ms_arenas_destroy(arenas);
    rig_end(rig);
}

/* Step by step the same: host chunks are made once, also where all has room in between. */
Test(spill_large, chunks_are_kept_from_step_to_step)
{
    struct rig *rig = spilling_rig(NULL);
    struct ms_block_info block[BLOCKS];
    uint64_t bytes = 0;
    uint64_t made = 0;
    fill(rig, block);
    for (int step = 0; step < 6; step++) {
        struct ms_block_info more = rig_write_new(rig, BLOCK_BYTES);
        rig_free(rig, more, MS_STREAM_DEVICE);
        rig_free(rig, block[BLOCKS - 1], MS_STREAM_DEVICE);
        (void)ms_pool_trim(rig->pool, 0);
        (void)ms_pool_promote(rig->pool, UINT64_MAX);
        block[BLOCKS - 1] = rig_write_new(rig, BLOCK_BYTES);
        ms_dry_advance(rig->dry, 1000000000);
        made = step == 0 ? host_chunks(rig, &bytes) : made;
    }
    cr_assert_eq(host_chunks(rig, &bytes), made);
    /* Not for ever. */
    rig_free(rig, block[0], MS_STREAM_DEVICE);
    ms_dry_advance(rig->dry, UINT64_C(100) * 1000000000);
    (void)ms_pool_trim(rig->pool, 0);
    (void)ms_pool_promote(rig->pool, UINT64_MAX);
    cr_assert_leq(rig_stats(rig).host_reserve_bytes, 32 * MIB);
    rig_end(rig);
}
