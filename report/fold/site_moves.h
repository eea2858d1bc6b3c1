/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of addresses that moved to host memory or back at one moment, and the parts of blocks and
 * tensors in them. */
#ifndef MEMSHIM_REPORT_FOLD_SITE_MOVES_H
#define MEMSHIM_REPORT_FOLD_SITE_MOVES_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/event.h"

#define MS_MOVES_RANGE_BYTES 32u /* of one in `ranges`, which may be copied */

struct ms_moves {
    struct ms_buffer ranges; /* private */
};

struct ms_site_moved {
    uint64_t down_bytes, up_bytes;
};

/* Takes MS_EVENT_SPILL or MS_EVENT_PROMOTE. Drops it without memory. */
void ms_moves_add(struct ms_moves *moves, const struct ms_event *event);

size_t ms_moves_count(const struct ms_moves *moves);

/* To be called before the first ms_moves_of. */
void ms_moves_sort(struct ms_moves *moves);

struct ms_site_moved ms_moves_of(const struct ms_moves *moves, uint8_t device, uint64_t addr,
                                 uint64_t bytes);

void ms_moves_free(struct ms_moves *moves);

#endif
