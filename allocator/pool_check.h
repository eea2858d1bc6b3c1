/* SPDX-License-Identifier: Apache-2.0 */
/* The walker: recomputes the pool's sums and lists from the ranges alone, and compares. */
#ifndef MEMSHIM_ALLOCATOR_POOL_CHECK_H
#define MEMSHIM_ALLOCATOR_POOL_CHECK_H

#include <stdbool.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"

/* As ms_pool_is_valid, without the checks that hold only while no other thread is in a call:
 * another thread may be about to back a tensor. Growth lock held, state lock not. */
bool ms_pool_books_hold(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
