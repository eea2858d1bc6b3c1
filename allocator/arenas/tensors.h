/* SPDX-License-Identifier: Apache-2.0 */
/* Live tensors: finds them by their beginning, and finds overlaps.
 *
 * A hash table has the tensors that begin on a unit inside a segment of the pool, and marks show
 * where in a granule tensors begin and end: the cost of both does not depend on the number of
 * tensors. All others (memory that is not the pool's, odd addresses) are in a tree. No lock of its
 * own. tensors_hot.h adds and removes tensors. */
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

/* Small, because a million may live, in a table that is half empty: addresses and ids have fewer
 * than 64 bits. */
struct ms_tensor {
    ms_addr_t addr;         /* 0: none */
    uint64_t bytes : 47;    /* up to MS_TENSOR_MOST_BYTES */
    uint64_t counted : 1;   /* noted on the granules that it touches */
    uint64_t id_above : 16; /* the id's bits above id_below */
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
    struct ms_table old;   /* the table before it grew; a few entries move at a time */
    uint64_t moved;        /* slots of the old table that have been emptied */
    struct ms_treap_node *tree;
    struct ms_slab slab; /* for the tree's nodes */
};

/* False: the host is out of memory. */
bool ms_tensors_init(struct ms_tensors *tensors);
void ms_tensors_destroy(struct ms_tensors *tensors);

/* In all functions below `segment` is the segment of the range, which has granules; null: it lies
 * in none. */

/* A tensor that begins in the range: the last hashed one if there is one. Null: none begins there.
 * Valid until the next change. */
const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_segment *segment, ms_addr_t addr,
                                          uint64_t bytes);

/* For walks: the last hashed tensor that begins in [floor, addr), and the first one in the tree
 * that begins at or above it. */
const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_segment *segment, ms_addr_t floor,
                                         ms_addr_t addr);
/* The tensor that begins before addr and reaches over it; null: there is none. */
const struct ms_tensor *ms_tensors_over(const struct ms_tensors *tensors,
                                        const struct ms_segment *segment, ms_addr_t addr);
const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr);

#endif
