/* SPDX-License-Identifier: Apache-2.0 */
/* Live tensors: found by where they begin, and asked whether they overlap.
 *
 * One that begins on a unit inside a segment of the pool is found by hashing, and marks tell where
 * in a granule tensors begin and end: both cost the same whatever the number of tensors. All others
 * (memory that is not the pool's, odd addresses) are in a tree. No lock of its own. tensors_hot.h
 * has how they are added and taken. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_TENSORS_H
#define MEMSHIM_ALLOCATOR_ARENAS_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/containers/slab.h"
#include "allocator/base/containers/table.h"
#include "allocator/base/containers/treap.h"
#include "allocator/base/status.h"
#include "allocator/device/device_ops.h"

struct ms_segment;

/* A million of them may live, in a table that is half empty: addresses and ids have fewer bits than
 * 64. */
struct ms_tensor {
    ms_addr_t addr;         /* 0: none */
    uint64_t bytes : 47;    /* up to MS_TENSOR_MOST_BYTES */
    uint64_t counted : 1;   /* in the granules that it touches */
    uint64_t id_above : 16; /* of its id: what is above id_below */
    uint32_t id_below;
    uint32_t site;
};
_Static_assert(sizeof(struct ms_tensor) == 24, "three words each");

#define MS_TENSOR_MOST_BYTES ((UINT64_C(1) << 47) - 1)

static inline uint64_t ms_tensor_id(const struct ms_tensor *tensor)
{
    return (uint64_t)tensor->id_above << 32 | tensor->id_below;
}

struct ms_tensors {
    struct ms_table table; /* struct ms_tensor, by address */
    struct ms_table old;   /* what the table grew out of, moving over a few at a time */
    uint64_t moved;        /* slots of the old one that have been emptied */
    struct ms_treap_node *tree;
    struct ms_slab slab; /* of the tree's nodes */
};

/* False when the host is out of memory. */
bool ms_tensors_init(struct ms_tensors *tensors);
void ms_tensors_destroy(struct ms_tensors *tensors);

/* In all that follows `segment` is the one that the range lies in, which has granules; null where
 * it lies in none. */

/* A tensor that begins in the range: the last hashed one, if there is a hashed one. Null where none
 * begins there. Valid until the next change. */
const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_segment *segment, ms_addr_t addr,
                                          uint64_t bytes);

/* For walks: the last hashed one that begins in [floor, addr), and the first one in the tree that
 * begins at or above it. */
const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_segment *segment, ms_addr_t floor,
                                         ms_addr_t addr);
/* The one that begins before addr and reaches over it; null where none does. */
const struct ms_tensor *ms_tensors_over(const struct ms_tensors *tensors,
                                        const struct ms_segment *segment, ms_addr_t addr);
const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr);

#endif
