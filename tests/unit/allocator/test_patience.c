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
