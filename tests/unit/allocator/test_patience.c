/* SPDX-License-Identifier: Apache-2.0 */
/* How long a request waits for queued work, on virtual time. */
#include "rig.h"

enum { BLOCKS_MOST = 40 };
#define BLOCK_BYTES (4 * MIB)
#define FIRST       ((ms_stream_t)101)

/* As many blocks as the cap holds, each freed on its own stream; its work ends when `step_ns` have
 * passed since the one before. Then all of the cap is asked for at once. */
static ms_status_t ask_for_all(int blocks, uint64_t step_ns, uint64_t *waited_ns)
{
    struct rig *rig = rig_make(GRANULE, 1024 * MIB, (uint64_t)blocks * BLOCK_BYTES);
    struct ms_block_info block[BLOCKS_MOST];
    for (int k = 0; k < blocks; k++) {
        ms_stream_t stream = FIRST + (ms_stream_t)k;
        cr_assert_eq(ms_dry_stream_create(rig->dry, stream), MS_OK);
        block[k] = rig_alloc(rig, BLOCK_BYTES, stream);
        cr_assert_eq(ms_dry_work(rig->dry, stream, block[k].id, block[k].addr, 512,
                                 (uint64_t)(k + 1) * step_ns),
                     MS_OK);
    }
    for (int k = 0; k < blocks; k++) {
        rig_free(rig, block[k], FIRST + (ms_stream_t)k);
    }
    struct ms_block_info all;
    ms_status_t status = rig_try(rig, (uint64_t)blocks * BLOCK_BYTES, MS_STREAM_DEVICE, &all);
    *waited_ns = ms_dry_now_ns(rig->dry);
    rig_end(rig);
    return status;
}

Test(patience, work_that_completes_now_and_then_is_waited_for)
{
    uint64_t waited_ns = 0;
    cr_assert_eq(ask_for_all(8, RIG_WAIT_NS / 5 * 4, &waited_ns), MS_OK);
    cr_assert_geq(waited_ns, 6 * RIG_WAIT_NS, "all of it was waited for");
}

Test(patience, work_of_which_nothing_completes_is_given_up)
{
    uint64_t waited_ns = 0;
    cr_assert_eq(ask_for_all(1, 3 * RIG_WAIT_NS, &waited_ns), MS_ERR_NO_MEMORY);
    cr_assert_geq(waited_ns, RIG_WAIT_NS);
    cr_assert_lt(waited_ns, 2 * RIG_WAIT_NS);
}

Test(patience, work_without_an_end_is_given_up_in_the_end)
{
    uint64_t waited_ns = 0;
    cr_assert_eq(ask_for_all(BLOCKS_MOST, RIG_WAIT_NS / 5 * 4, &waited_ns), MS_ERR_NO_MEMORY);
    cr_assert_geq(waited_ns, RIG_WAIT_MOST_NS);
    cr_assert_lt(waited_ns, RIG_WAIT_MOST_NS + 2 * RIG_WAIT_NS);
}

/* A standstill would wait for the work for which the request has waited already. */
Test(patience, work_that_does_not_end_is_waited_for_once)
{
    enum { BLOCKS = 8 };
    const uint64_t wait_ns = 30 * RIG_WAIT_NS;
    struct rig *rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 1024 * MIB,
                                                      .cap_bytes = BLOCKS * BLOCK_BYTES,
                                                      .host_limit_bytes = 1024 * MIB,
                                                      .spill_limit_bytes = 1024 * MIB,
                                                      .wait_ns = wait_ns});
    struct ms_block_info block[BLOCKS];
    struct ms_block_info more;
    uint64_t at_first_ns = 0;
    cr_assert_eq(ms_dry_stream_create(rig->dry, FIRST), MS_OK);
    for (int k = 0; k < BLOCKS; k++) {
        block[k] = rig_alloc(rig, BLOCK_BYTES, MS_STREAM_DEVICE);
    }
    cr_assert_eq(ms_dry_work(rig->dry, FIRST, block[0].id, block[0].addr, 512, 100 * wait_ns),
                 MS_OK);
    rig_free(rig, block[0], FIRST);
    for (int tried = 0; tried < 2; tried++) { /* by a request, and by a charge */
        at_first_ns = ms_dry_now_ns(rig->dry);
        if (tried == 0) {
            cr_assert_eq(rig_try(rig, 2 * BLOCK_BYTES, MS_STREAM_DEVICE, &more), MS_ERR_NO_MEMORY);
        } else {
            cr_assert(!ms_pool_make_room(rig->pool, 2 * BLOCK_BYTES, true));
        }
        const uint64_t waited_ns = ms_dry_now_ns(rig->dry) - at_first_ns;
        cr_assert_geq(waited_ns, wait_ns);
        cr_assert_lt(waited_ns, wait_ns + wait_ns / 2);
    }
    enum ms_unmoved why = MS_UNMOVED_NOTHING;
    cr_assert_eq(ms_pool_movable_bytes(rig->pool, &why), 0);
    cr_assert_eq(why, MS_UNMOVED_BUSY);
    ms_dry_advance(rig->dry, 100 * wait_ns);
    cr_assert_eq(rig_try(rig, 2 * BLOCK_BYTES, MS_STREAM_DEVICE, &more), MS_OK, "it did end");
    rig_end(rig);
}
