/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which locks may be nested: lock_rank.def has the table. */
#ifndef MEMSHIM_ALLOCATOR_BASE_LOCKS_LOCK_RANK_H
#define MEMSHIM_ALLOCATOR_BASE_LOCKS_LOCK_RANK_H

#include <stdbool.h>

enum ms_lock_rank {
    MS_RANK_NONE, /* a lock without a rank */
#define MS_RANK(name, driver, fork) MS_RANK_##name,
#include "allocator/base/locks/lock_rank.def"
#undef MS_RANK
    MS_RANK_COUNT
};

struct ms_lock_rank_row {
    const char *name;
    bool over_driver; /* may be held over a call of the driver */
    bool at_fork;     /* fork() takes it */
};
extern const struct ms_lock_rank_row ms_lock_rank_rows[MS_RANK_COUNT];

#endif
