/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs: when the work on memory freed in holes is done. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_EPOCHS_H
#define MEMSHIM_ALLOCATOR_BACKING_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/backing/wait.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/device/device_ops.h"
#include "allocator/space/block.h"

/* The last possible epoch. An epoch ends with a fence of the device, which takes the driver more
 * than a microsecond: doing nothing else, it is reached after more than eight years. */
#define MS_EPOCH_LAST (((uint64_t)1 << 48) - 1)

enum { MS_EPOCHS_UNDER_WAY = 8 };

/* A fence of the whole device: when it is done, all work of its epoch and before is. */
struct ms_epoch_fence {
    ms_fence_t fence;
    uint64_t epoch;
};

struct ms_epochs {
    uint64_t clock MS_GUARDED_BY(ms_state_role); /* tensors allocated and freed so far */
    /* Changed under both locks. The epoch of frees now, up to MS_EPOCH_LAST; and the last epoch
     * whose work, with that of all before, is done. */
    uint64_t current, done;

    struct ms_epoch_fence
        under_way[MS_EPOCHS_UNDER_WAY] MS_GUARDED_BY(ms_growth_role); /* oldest first */
    unsigned fences MS_GUARDED_BY(ms_growth_role);
    uint64_t fenced_clock MS_GUARDED_BY(ms_growth_role); /* the clock at the last fence */
};

/* Takes a fence of the device for all frees so far, unless an earlier one covers them. */
void ms_epochs_fence(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* Queries the fences, oldest first. Asks nothing while anything captures. */
void ms_epochs_poll(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* Waits for the oldest fence, with the growth lock released meanwhile, and takes the time from
 * *wait. False: there is no fence to wait for. */
bool ms_epochs_wait(struct ms_pool *pool, struct ms_wait *wait) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
void ms_epochs_release_all(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
