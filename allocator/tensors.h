/* Live tensors: found by where they begin, and asked whether they overlap.
 *
 * One that begins on a unit inside a segment of the pool is found by hashing, and a bitmap of the
 * segment tells which begins before an address: both cost the same whatever the number of tensors.
 * All others (memory that is not the pool's, odd addresses) are in a tree. No lock of its own. */
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
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;
    bool counted; /* in the granules that it touches */
    union {
        struct ms_tensor *next;    /* in a bucket */
        struct ms_treap_node node; /* in the tree */
    };
};

enum { MS_TENSORS_DIRECTORY = 40, MS_TENSORS_FIRST_BUCKETS = 4096 };

struct ms_tensors {
    struct ms_tensor **directory[MS_TENSORS_DIRECTORY]; /* as in struct ms_index */
    uint64_t buckets, power, hashed;
    struct ms_treap_node *tree;
    struct ms_slab slab;
};

/* False when the host is out of memory. */
bool ms_tensors_init(struct ms_tensors *tensors);
void ms_tensors_destroy(struct ms_tensors *tensors);

/* Whether a live tensor touches the range. starts: of the segment at `base` that it begins in; null
 * where it begins in none. */
bool ms_tensors_overlap(const struct ms_tensors *tensors, const struct ms_starts *starts,
                        ms_addr_t base, ms_addr_t addr, uint64_t bytes);

/* A new one that overlaps none; null when the host is out of memory. */
struct ms_tensor *ms_tensors_add(struct ms_tensors *tensors, struct ms_starts *starts,
                                 ms_addr_t base, ms_addr_t addr, uint64_t bytes, uint64_t id);

/* Takes the one that begins at addr out and copies it to *out. False: none does. */
bool ms_tensors_take(struct ms_tensors *tensors, struct ms_starts *starts, ms_addr_t base,
                     ms_addr_t addr, struct ms_tensor *out);

/* One that begins in the range, null where none does. */
const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_starts *starts, ms_addr_t base,
                                          ms_addr_t addr, uint64_t bytes);

/* For walks: the last hashed one that begins in its segment below addr, and the first one in the
 * tree that begins at or above it. */
const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_starts *starts, ms_addr_t base,
                                         ms_addr_t addr);
const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr);

#endif
