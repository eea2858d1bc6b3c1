/* SPDX-License-Identifier: Apache-2.0 */
/* What arenas ask of spilling, which is built on them: the pool's creation fills this table in. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_LIVE_MEMORY_H
#define MEMSHIM_ALLOCATOR_ARENAS_LIVE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/status.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* What has to leave the device. */
struct ms_spill_need {
    uint64_t bytes;
    uint64_t kept_bytes; /* of the room on the host, which stay for others */
    uint64_t born_bytes; /* that are not live yet, and will be in these and what is idle */
    uint64_t more_bytes; /* that will probably be needed next; moved too, if the host has room */
};

/* Growth lock held, state lock not; each is
 * what the function of that name says. */
struct ms_live_memory {
    bool (*possible)(struct ms_pool *pool);
    ms_status_t (*make_room)(struct ms_pool *pool, const struct ms_spill_need *need,
                             uint64_t *taken_bytes);
    ms_status_t (*bring_back)(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                              uint64_t to);
    ms_status_t (*make_whole)(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                              uint64_t to, const void *properties);
};

#endif
