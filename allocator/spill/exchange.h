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

/* A run of neighbouring chunks, and the new chunks for its place. */
struct ms_piece {
    struct ms_chunk *const *run;
    size_t count;
    struct ms_chunk *fresh;          /* linked in order; as many granules, with the same contents */
    uint64_t staged_from, staged_to; /* their slots in the staging segment */
};

/* Within a standstill: puts the piece's new chunks in the place of the old ones, or as many as the
 * device allows. Chunks without a place then become spares. The new ones stay staged, unless
 * something failed. Adds the bytes that lie on new chunks to *moved_bytes. Sets pool->moving.broken
 * if neither side can be mapped. Any status but MS_OK is the device's first failure. */
ms_status_t ms_exchange(struct ms_pool *pool, const struct ms_piece *piece, enum ms_location to,
                        uint64_t *moved_bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
