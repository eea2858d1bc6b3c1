/* Live tensors: found by where they begin, and asked whether they overlap.
 *
 * One that begins on a unit inside a segment of the pool is found by hashing, and marks in a bitmap
 * of the segment tell where tensors begin and end: both cost the same whatever the number of
 * tensors. All others (memory that is not the pool's, odd addresses) are in a tree. No lock of its
 * own. */
#ifndef MEMSHIM_ALLOCATOR_TENSORS_H
#define MEMSHIM_ALLOCATOR_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device_ops.h"
#include "allocator/slab.h"
#include "allocator/starts.h"
#include "allocator/treap.h"

/* What framework allocators align to: 512 (PyTorch, CuPy) or 256 bytes (RMM, XLA). */
#define MS_TENSOR_UNIT_BYTES 256u

struct ms_tensor {
    ms_addr_t addr; /* 0: none */
    uint64_t bytes;
    uint64_t id;
    uint64_t counted; /* 1: in the granules that it touches */
};

/* Open addressing, at most half full. */
struct ms_tensor_table {
    struct ms_tensor *slot;
    uint64_t slots; /* a power of two */
    uint64_t used;
};

struct ms_tensors {
    struct ms_tensor_table table;
    struct ms_tensor_table old; /* what the table grew out of, moving over a few at a time */
    uint64_t moved;             /* slots of the old one that have been emptied */
    struct ms_treap_node *tree;
    struct ms_slab slab; /* of the tree's nodes */
};

/* The marks of a segment: a bit for the unit that a tensor begins in, and one for its last. */
static inline uint64_t ms_tensor_marks(uint64_t bytes)
{
    return bytes / MS_TENSOR_UNIT_BYTES * 2;
}

/* False when the host is out of memory. */
bool ms_tensors_init(struct ms_tensors *tensors);
void ms_tensors_destroy(struct ms_tensors *tensors);

/* Whether a live tensor touches the range. marks: of the segment at `base` that it lies in; null
 * where it lies in none. */
bool ms_tensors_overlap(const struct ms_tensors *tensors, const struct ms_starts *marks,
                        ms_addr_t base, ms_addr_t addr, uint64_t bytes);

/* A new one that overlaps none. False when the host is out of memory. */
bool ms_tensors_add(struct ms_tensors *tensors, struct ms_starts *marks, ms_addr_t base,
                    const struct ms_tensor *tensor);

/* Takes the one that begins at addr out and copies it to *out. False: none does. */
bool ms_tensors_take(struct ms_tensors *tensors, struct ms_starts *marks, ms_addr_t base,
                     ms_addr_t addr, struct ms_tensor *out);

/* One that begins in the range, null where none does. Valid until the next change. */
const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_starts *marks, ms_addr_t base,
                                          ms_addr_t addr, uint64_t bytes);

/* For walks: the last hashed one that begins in its segment below addr, and the first one in the
 * tree that begins at or above it. */
const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_starts *marks, ms_addr_t base,
                                         ms_addr_t addr);
const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr);

#endif
