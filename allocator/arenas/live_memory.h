/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of spilling that arenas call. Spilling is built on arenas, so the pool's creation
 * fills in this table. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_LIVE_MEMORY_H
#define MEMSHIM_ALLOCATOR_ARENAS_LIVE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/status.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* The bytes that have to leave the device. */
struct ms_spill_need {
    uint64_t bytes;
    uint64_t kept_bytes; /* of the room on the host: bytes that stay for others */
    uint64_t born_bytes; /* bytes that are not live yet, and will take these and idle memory */
    uint64_t more_bytes; /* bytes that are probably needed next; moved too, if the host has room */
};

/* Growth lock held, state lock not; for each, see the function of that name. */
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
