/* SPDX-License-Identifier: Apache-2.0 */
/* Free ranges in a line of bytes: best fit (lowest offset among equals), coalescing. Used for the
 * device's addresses, its physical memory, its small blocks and its pools. The caller holds
 * sim_lock. Offsets, sizes and alignments are bytes. */
#ifndef SIMGPU_EXTENT_H
#define SIMGPU_EXTENT_H

#include "tree.h"

#include <stdbool.h>

struct sim_extents {
    struct sim_tree by_offset; /* key: offset */
    struct sim_tree by_size;   /* key: size, tie: offset */
    uint64_t free_bytes;
};

/* False: no free range is large enough. alignment is a power of two. */
bool sim_extents_take(struct sim_extents *extents, uint64_t size, uint64_t alignment,
                      uint64_t *offset);

/* Returns [offset, offset + size), which must not be free already. whole_offset and whole_size, if
 * not NULL, get the free range that now contains it. False: out of host memory, and the range is
 * lost. */
bool sim_extents_give(struct sim_extents *extents, uint64_t offset, uint64_t size,
                      uint64_t *whole_offset, uint64_t *whole_size);

/* True: all of [offset, offset + size) is free. */
bool sim_extents_contains(const struct sim_extents *extents, uint64_t offset, uint64_t size);

/* True: some free range has that size. */
bool sim_extents_fits(const struct sim_extents *extents, uint64_t size);

/* Takes exactly [offset, offset + size), which must be free. */
void sim_extents_carve(struct sim_extents *extents, uint64_t offset, uint64_t size);

/* Forgets all free ranges. */
void sim_extents_clear(struct sim_extents *extents);

#endif
