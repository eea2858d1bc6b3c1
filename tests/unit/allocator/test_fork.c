/* SPDX-License-Identifier: Apache-2.0 */
/* Fork: the child must find the pool's locks free, whatever other threads were about. */
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

Test(fork, a_forked_child_finds_no_lock_held)
{
    struct rig *own = rig_make(GRANULE, 64 * MIB, 64 * MIB);
    (void)rig_alloc(own, MIB, 5);
    ms_pool_locks(own->pool, MS_RANK_GROWTH, ms_lock_take);
    ms_pool_locks(own->pool, MS_RANK_STATE, ms_lock_take);
    pid_t child = fork();
    if (child == 0) {
        ms_pool_locks(own->pool, MS_RANK_GROWTH, ms_lock_reset);
        ms_pool_locks(own->pool, MS_RANK_STATE, ms_lock_reset);
        struct ms_pool_stats stats;
        ms_pool_stats(own->pool, &stats);
        struct ms_block_info block;
        struct ms_request request = {.bytes = 100, .stream = 5};
        _exit(stats.live_blocks == 1 && ms_pool_alloc(own->pool, &request, &block) == MS_OK ? 0
                                                                                            : 1);
    }
    ms_pool_locks(own->pool, MS_RANK_STATE, ms_lock_let);
    ms_pool_locks(own->pool, MS_RANK_GROWTH, ms_lock_let);
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    (void)rig_alloc(own, MIB, 5);
    rig_end(own);
}
