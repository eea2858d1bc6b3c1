/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange: chunks change places within a standstill. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_EXCHANGE_H
#define MEMSHIM_ALLOCATOR_SPILL_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/device/device_ops.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* A run of neighbours, and what is to take its place. */
struct ms_piece {
    struct ms_chunk *const *run;
    size_t count;
    struct ms_chunk *fresh;          /* linked in order; as many granules, with the same contents */
    uint64_t staged_from, staged_to; /* where these are staged */
};

/* Within a standstill: the new chunks of the piece take the place of the old ones, or, where the
 * device refuses a part, of as many as they can. Whichever has no place then becomes a spare. The
 * new ones stay staged, unless something failed. Adds the bytes that lie on new chunks to
 * *moved_bytes. Sets pool->moving.broken where neither can be mapped. Any status but MS_OK is the
 * device's first. */
ms_status_t ms_exchange(struct ms_pool *pool, const struct ms_piece *piece, enum ms_location to,
                        uint64_t *moved_bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
