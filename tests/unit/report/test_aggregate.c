/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of short histories that were worked out by hand. */
#include <criterion/criterion.h>

#include "report/model/ledger.h"
#include "report/trace/aggregate.h"
#include "synthetic.h"

static struct ms_aggregate sums;
static uint64_t now_ns;

static void tell(struct ms_event event)
{
    ms_aggregate_apply(&sums, &event, ++now_ns);
}

static void begin(void)
{
    sums = (struct ms_aggregate){0};
    now_ns = 0;
}

static void block(uint64_t id, uint64_t bytes)
{
    tell((struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC, .id = id, .bytes = bytes, .aux = bytes});
}

static void free_block(uint64_t id, uint64_t bytes, uint64_t arena)
{
    tell((struct ms_event){.kind = MS_EVENT_BLOCK_FREE, .id = id, .bytes = bytes, .aux = arena});
}

static void born(uint64_t id, uint64_t bytes, uint64_t arena)
{
    tell((struct ms_event){.kind = MS_EVENT_TENSOR_ALLOC, .id = id, .bytes = bytes, .aux = arena});
}

static void died(uint64_t id, uint64_t bytes)
{
    tell((struct ms_event){.kind = MS_EVENT_TENSOR_FREE, .id = id, .bytes = bytes});
}

static void chunk(uint64_t bytes, enum ms_owner owner)
{
    tell((struct ms_event){.kind = MS_EVENT_CHUNK_CREATE, .bytes = bytes, .owner = owner});
}

Test(aggregate, blocks)
{
    begin();
    chunk(2 * MIB, MS_OWNER_POOL);
    block(1, 1000);
    block(2, 500);
    free_block(1, 1000, 0);
    block(3, 200);
    cr_assert_eq(ms_counters_live(&sums.now), 700);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 1500);
    cr_assert_eq(ms_aggregate_peak_live(&sums).time_ns, 3);
    cr_assert_eq(sums.allocations, 3);
    cr_assert_eq(sums.frees, 1);
    cr_assert_eq(ms_counters_reserved(&sums.now), 2 * MIB);
    cr_assert_eq(ms_counters_charged(&sums.now), 2 * MIB);
}

Test(aggregate, the_newest_block_counts_at_once)
{
    begin();
    block(1, 1000);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 1000);
    cr_assert_eq(ms_aggregate_at_peak(&sums)->block_bytes, 1000);
    free_block(1, 1000, 0);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 1000);
    cr_assert_eq(ms_aggregate_at_peak(&sums)->block_bytes, 1000);
}

/* PyTorch's segments must never show as live bytes, or its peak would not be its own. */
Test(aggregate, an_arena_counts_by_its_tensors_only)
{
    begin();
    chunk(20 * MIB, MS_OWNER_POOL);
    block(1, 20 * MIB);
    tell((struct ms_event){.kind = MS_EVENT_BLOCK_ARENA, .id = 1, .bytes = 20 * MIB});
    born(2, 1 * MIB, 1);
    born(3, 2 * MIB, 1);
    died(2, 1 * MIB);
    chunk(20 * MIB, MS_OWNER_POOL);
    block(4, 20 * MIB);
    tell((struct ms_event){.kind = MS_EVENT_BLOCK_ARENA, .id = 4, .bytes = 20 * MIB});
    born(5, 1 * MIB, 4);
    cr_assert_eq(ms_counters_live(&sums.now), 3 * MIB);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 3 * MIB);
    cr_assert_eq(sums.peak_tensor_bytes, 3 * MIB);
    cr_assert_eq(sums.now.arena_bytes, 40 * MIB);
    died(3, 2 * MIB);
    died(5, 1 * MIB);
    free_block(1, 20 * MIB, 1);
    free_block(4, 20 * MIB, 1);
    cr_assert_eq(ms_counters_live(&sums.now), 0);
    cr_assert_eq(sums.now.arena_bytes, 0);
    cr_assert_eq(sums.now.blocks, 0);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 3 * MIB);
}

/* A block among tensors that never becomes an arena does count, from its own moment on. */
Test(aggregate, a_block_beside_arenas_makes_a_peak)
{
    begin();
    block(1, 20 * MIB);
    tell((struct ms_event){.kind = MS_EVENT_BLOCK_ARENA, .id = 1, .bytes = 20 * MIB});
    born(2, 5 * MIB, 1);
    block(3, 7 * MIB);
    born(4, 1 * MIB, 1);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 13 * MIB);
    cr_assert_eq(ms_aggregate_at_peak(&sums)->tensor_bytes, 6 * MIB);
    cr_assert_eq(ms_aggregate_at_peak(&sums)->block_bytes, 7 * MIB);
    died(4, 1 * MIB);
    free_block(3, 7 * MIB, 0);
    cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, 13 * MIB);
    cr_assert_eq(ms_aggregate_at_peak(&sums)->block_bytes, 7 * MIB);
}

Test(aggregate, what_stood_where_at_the_peak)
{
    struct ms_ledger_row rows[MS_LEDGER_ROWS];

    begin();
    tell((struct ms_event){.kind = MS_EVENT_CAP, .bytes = 100 * MIB, .aux = 200 * MIB});
    tell((struct ms_event){.kind = MS_EVENT_CHARGE,
                           .owner = MS_OWNER_CONTEXT,
                           .bytes = 10 * MIB,
                           .aux = MS_CHARGE_CONTEXT});
    chunk(40 * MIB, MS_OWNER_POOL);
    block(1, 30 * MIB);
    free_block(1, 30 * MIB, 0);
    tell((struct ms_event){.kind = MS_EVENT_CHARGE,
                           .owner = MS_OWNER_FORWARDED,
                           .bytes = 5 * MIB,
                           .aux = MS_CHARGE_NCCL});
    tell((struct ms_event){.kind = MS_EVENT_CHUNK_RELEASE, .bytes = 40 * MIB});

    const size_t count = ms_ledger(ms_aggregate_at_peak(&sums), rows);

    cr_assert_eq(count, 4);
    cr_assert_str_eq(rows[0].name, "blocks");
    cr_assert_eq(rows[0].bytes, 30 * MIB);
    cr_assert_str_eq(rows[1].name, "holes");
    cr_assert_eq(rows[1].bytes, 10 * MIB);
    cr_assert_str_eq(rows[2].name, "context");
    cr_assert(rows[2].estimated);
    cr_assert_str_eq(rows[3].name, "free");
    cr_assert_eq(rows[3].bytes, 50 * MIB);
    cr_assert_eq(sums.peak_charged.charged_bytes, 55 * MIB);
    cr_assert_eq(ms_counters_charged(&sums.now), 15 * MIB);
}

Test(aggregate, fragmentation_while_reserved_is_at_its_peak)
{
    begin();
    cr_assert_eq(ms_aggregate_fragmentation_ppm(&sums), -1);
    chunk(100 * MIB, MS_OWNER_POOL);
    block(1, 60 * MIB);
    cr_assert_eq(ms_aggregate_fragmentation_ppm(&sums), 400000);
    block(2, 15 * MIB);
    cr_assert_eq(ms_aggregate_fragmentation_ppm(&sums), 250000);
    free_block(2, 15 * MIB, 0);
    tell((struct ms_event){.kind = MS_EVENT_CHUNK_RELEASE, .bytes = 10 * MIB});
    block(3, 29 * MIB);
    cr_assert_eq(ms_aggregate_fragmentation_ppm(&sums), 250000, "reserved is not at its peak");
}

/* Most is live when the newest block has come; what is freed behind it takes nothing of that. */
Test(aggregate, fragmentation_counts_the_newest_block_after_another_was_freed)
{
    begin();
    chunk(100 * MIB, MS_OWNER_POOL);
    block(1, 60 * MIB);
    block(2, 30 * MIB);
    free_block(1, 60 * MIB, 0);
    cr_expect_eq(ms_aggregate_fragmentation_ppm(&sums), 100000);
    block(3, 10 * MIB);
    cr_expect_eq(ms_aggregate_fragmentation_ppm(&sums), 100000);
}

/* An arena's bytes were never live: only its tensors' are. */
Test(aggregate, fragmentation_leaves_out_a_newest_block_that_becomes_an_arena)
{
    begin();
    chunk(100 * MIB, MS_OWNER_POOL);
    block(1, 60 * MIB);
    block(2, 30 * MIB);
    free_block(1, 60 * MIB, 0);
    tell((struct ms_event){.kind = MS_EVENT_BLOCK_ARENA, .id = 2, .bytes = 30 * MIB});
    cr_expect_eq(ms_aggregate_fragmentation_ppm(&sums), 400000);
}

/* PyTorch's expandable segments: the program makes the chunks by itself. */
Test(aggregate, tensors_outside_the_pool_make_the_programs_chunks_reserved)
{
    begin();
    chunk(20 * MIB, MS_OWNER_APPLICATION);
    cr_assert_eq(ms_counters_reserved(&sums.now), 0);
    born(1, 15 * MIB, 0);
    cr_assert_eq(ms_counters_reserved(&sums.now), 20 * MIB);
    cr_assert_eq(sums.peak_reserved.reserved_bytes, 20 * MIB);
    cr_assert_eq(ms_aggregate_fragmentation_ppm(&sums), 250000);
}

Test(aggregate, chunks_on_the_host_are_not_charged)
{
    begin();
    tell((struct ms_event){
        .kind = MS_EVENT_CHUNK_CREATE, .bytes = 8 * MIB, .aux = MS_LOCATION_HOST});
    cr_assert_eq(ms_counters_charged(&sums.now), 0);
    cr_assert_eq(sums.peak_host_chunk_bytes, 8 * MIB);
    tell((struct ms_event){
        .kind = MS_EVENT_CHUNK_RELEASE, .bytes = 8 * MIB, .aux = MS_LOCATION_HOST});
    cr_assert_eq(sums.now.host_chunk_bytes, 0);
    cr_assert_eq(sums.driver_calls[MS_CALL_CREATE], 1);
    cr_assert_eq(sums.driver_calls[MS_CALL_RELEASE], 1);
}

Test(aggregate, sums_stop_at_zero)
{
    begin();
    free_block(9, 1000, 0);
    died(8, 1000);
    tell((struct ms_event){.kind = MS_EVENT_CHUNK_RELEASE, .bytes = 1000});
    tell((struct ms_event){.kind = MS_EVENT_HOST_FREE, .bytes = 1000});
    cr_assert_eq(ms_counters_live(&sums.now), 0);
    cr_assert_eq(ms_counters_charged(&sums.now), 0);
    cr_assert_eq(sums.now.host_pinned_bytes, 0);
}

/* Against a plain recount after every event of a long random history. */
Test(aggregate, random_history_against_a_recount)
{
    enum { SLOTS = 64 };
    uint64_t sizes[SLOTS] = {0}, random = 99, peak = 0, live = 0;

    begin();
    for (int i = 0; i < 200000; i++) {
        const uint64_t slot = synthetic_random(&random) % SLOTS;

        if (sizes[slot]) {
            live -= sizes[slot];
            free_block(slot + 1, sizes[slot], 0);
            sizes[slot] = 0;
        } else {
            sizes[slot] = 1 + synthetic_random(&random) % 100000;
            live += sizes[slot];
            block(slot + 1, sizes[slot]);
        }
        peak = live > peak ? live : peak;
        cr_assert_eq(ms_counters_live(&sums.now), live);
        cr_assert_eq(ms_aggregate_peak_live(&sums).live_bytes, peak);
        cr_assert_eq(ms_counters_live(ms_aggregate_at_peak(&sums)), peak);
    }
}

Test(aggregate, host_chunks_are_neither_reserved_nor_charged)
{
    begin();
    chunk(4 * MIB, MS_OWNER_POOL);
    tell((struct ms_event){
        .kind = MS_EVENT_CHUNK_CREATE, .bytes = 6 * MIB, .aux = MS_LOCATION_HOST});
    cr_assert_eq(ms_counters_reserved(&sums.now), 4 * MIB);
    cr_assert_eq(ms_counters_charged(&sums.now), 4 * MIB);
    cr_assert_eq(sums.now.host_chunk_bytes, 6 * MIB);
    tell((struct ms_event){
        .kind = MS_EVENT_CHUNK_RELEASE, .bytes = 2 * MIB, .aux = MS_LOCATION_HOST});
    cr_assert_eq(ms_counters_reserved(&sums.now), 4 * MIB);
    cr_assert_eq(sums.now.host_chunk_bytes, 4 * MIB);
    cr_assert_eq(sums.peak_host_chunk_bytes, 6 * MIB);
}

Test(aggregate, proxies_and_frozen_arenas)
{
    begin();
    tell((struct ms_event){.kind = MS_EVENT_PROXY_MAP, .id = 1, .bytes = 20 * MIB});
    tell((struct ms_event){.kind = MS_EVENT_PROXY_MAP, .id = 2, .bytes = 20 * MIB});
    tell((struct ms_event){.kind = MS_EVENT_PROXY_UNMAP, .id = 1, .bytes = 20 * MIB});
    tell((struct ms_event){.kind = MS_EVENT_ARENA_FROZEN, .bytes = 20 * MIB});
    cr_assert_eq(sums.now.proxy_bytes, 20 * MIB);
    cr_assert_eq(sums.kind_events[MS_EVENT_ARENA_FROZEN], 1);
    cr_assert_eq(ms_counters_charged(&sums.now), 0, "what backs a proxy is told by its chunks");
}

/* Every kind, on two devices, few ids: blocks become arenas, tensors lie outside, sums meet 0. */
static struct ms_timed_event any_event(uint64_t *random, uint64_t time_ns)
{
    const uint64_t draw = synthetic_random(random);
    struct ms_timed_event timed = {
        .time_ns = time_ns,
        .event = {.kind =
                      (uint8_t)(draw % 8 ? 1 + draw % 5 : 1 + draw / 8 % (MS_EVENT_KIND_COUNT - 1)),
                  .device = draw >> 16 & 15 ? 0 : 1,
                  .owner = (uint8_t)(draw >> 24 & 3),
                  .id = 1 + (draw >> 32 & 15),
                  .bytes = draw >> 40 & 0xfff,
                  .aux = draw >> 60 & 1},
    };

    return timed;
}

/* The row's way through blocks and tensors is another one than an event's by itself. */
Test(aggregate, a_row_is_its_events_one_by_one)
{
    enum { EVENTS = 100000, ROW = 128 };
    static struct ms_timed_event row[ROW];
    static struct ms_aggregate by_rows[2], one_by_one[2];
    uint64_t random = 4, live[ROW], rows = 0;

    for (uint64_t i = 0; i < EVENTS; i += ROW) {
        for (uint64_t k = 0; k < ROW; k++) {
            row[k] = any_event(&random, (i + k) * 32);
        }
        for (size_t done = 0; done < ROW;) {
            const uint8_t device = row[done].event.device;
            size_t alike = ms_aggregate_apply_row(&by_rows[device], row + done, ROW - done, live);

            rows += alike > 1;
            for (size_t k = 0; k < alike; k++) {
                const struct ms_timed_event *timed = &row[done + k];

                cr_assert_eq(timed->event.device, device);
                ms_aggregate_apply(&one_by_one[device], &timed->event, timed->time_ns);
                cr_assert_eq(live[k],
                             ms_aggregate_moment(&one_by_one[device], timed->time_ns).live_bytes);
            }
            if (alike == 0) {
                ms_aggregate_apply(&by_rows[device], &row[done].event, row[done].time_ns);
                ms_aggregate_apply(&one_by_one[device], &row[done].event, row[done].time_ns);
                alike = 1;
            }
            done += alike;
        }
        cr_assert_arr_eq(&by_rows, &one_by_one, sizeof(by_rows));
    }
    cr_assert_gt(rows, 1000, "there were rows");
}
