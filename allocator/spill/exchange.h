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

/* Within a standstill: the chunks of `fresh` (mapped nowhere, linked in order, as many granules as
 * the run has, with the same contents) take the place of a run of neighbours, or, where the device
 * refuses a part, of as many of the run as they can. Whichever has not stays or becomes a spare.
 * Adds the bytes that lie on new chunks to *moved_bytes. Sets pool->moving.broken where neither can
 * be mapped. Any status but MS_OK is the device's first. */
ms_status_t ms_exchange_run(struct ms_pool *pool, struct ms_chunk *const *run, size_t count,
                            struct ms_chunk *fresh, enum ms_location to, uint64_t *moved_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
