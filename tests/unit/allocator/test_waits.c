/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of free memory that waits for queued work. */
#include "rig.h"

#define S1    ((ms_stream_t)101)
#define S2    ((ms_stream_t)102)
#define TOTAL (1024 * MIB)
#define STEP  (TOTAL / 512)

static struct rig *rig_of(void)
{
    struct rig *rig = rig_make(GRANULE, TOTAL, TOTAL);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S1), MS_OK);
    cr_assert_eq(ms_dry_stream_create(rig->dry, S2), MS_OK);
    return rig;
}

static size_t waits_recorded(const struct rig *rig, uint64_t *last_bytes)
{
    size_t count = 0;
    for (size_t at = 0; at < rig->events; at++) {
        if (rig->event[at].kind == MS_EVENT_WAITS) {
            cr_assert_eq(rig->event[at].device, 3);
            *last_bytes = rig->event[at].bytes;
            count++;
        }
    }
    return count;
}

Test(waits, a_free_on_a_busy_stream_waits_until_its_work_is_done)
{
    struct rig *rig = rig_of();
    struct ms_block_info block = rig_alloc(rig, 64 * MIB, S1);
    rig_work(rig, block, S1);
    uint64_t recorded_bytes = 0;
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 0);

    rig_free(rig, block, S1);
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 1);
    cr_assert_eq(recorded_bytes, 64 * MIB);

    (void)ms_pool_trim(rig->pool, 0); /* the stream is busy: nothing can be given back */
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 1);

    ms_dry_finish(rig->dry, S1, UINT64_MAX);
    (void)ms_pool_trim(rig->pool, 0);
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 2);
    cr_assert_eq(recorded_bytes, 0);
    rig_end(rig);
}

Test(waits, what_its_stream_takes_again_waits_no_more)
{
    struct rig *rig = rig_of();
    struct ms_block_info block = rig_alloc(rig, 64 * MIB, S1);
    uint64_t recorded_bytes = 0;
    rig_free(rig, block, S1);
    (void)rig_alloc(rig, 48 * MIB, S1);
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 2);
    cr_assert_eq(recorded_bytes, 16 * MIB);
    rig_end(rig);
}

Test(waits, small_changes_are_not_told)
{
    struct rig *rig = rig_of();
    struct ms_block_info large = rig_alloc(rig, 64 * MIB, S1);
    struct ms_block_info small = rig_alloc(rig, STEP / 2, S1);
    uint64_t recorded_bytes = 0;
    rig_free(rig, small, S1);
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 0);
    rig_free(rig, large, S1);
    cr_assert_eq(waits_recorded(rig, &recorded_bytes), 1);
    rig_end(rig);
}

Test(waits, a_long_run_is_told_of_now_and_then)
{
    enum { ROUNDS = 20000 };
    struct rig *rig = rig_of();
    uint64_t recorded_bytes = 0;
    for (int round = 0; round < ROUNDS; round++) {
        rig_free(rig, rig_alloc(rig, 64 * MIB, S1), S1);
        rig->events = rig->events < RIG_EVENTS / 2 ? rig->events : 0;
        if (round == 100) {
            cr_assert_gt(waits_recorded(rig, &recorded_bytes), 150);
        }
    }
    rig->events = 0;
    for (int round = 0; round < 320; round++) {
        rig_free(rig, rig_alloc(rig, 64 * MIB, S1), S1);
    }
    size_t told = waits_recorded(rig, &recorded_bytes);
    cr_assert(told >= 10 && told <= 30, "%zu in 640 allocations and frees", told);
    rig_end(rig);
}
