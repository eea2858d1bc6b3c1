/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of one size, in pages of our own. The pool runs inside a process that uses malloc itself,
 * and taking or giving a node must cost only a few instructions.
 *
 * Not thread-safe: the owner's lock covers it. Pages go back to the system only when the slab is
 * destroyed. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CONTAINERS_SLAB_H
#define MEMSHIM_ALLOCATOR_BASE_CONTAINERS_SLAB_H

#include <stdbool.h>
#include <stddef.h>

enum { MS_SLAB_RESERVE_MOST = 64 };

struct ms_slab {
    size_t node_bytes;
    size_t page_bytes; /* of the next page; doubles up to a limit */
    void *free;        /* given back, last first */
    char *fresh;       /* never used part of the newest page */
    size_t fresh_nodes;
    bool sparse;
    struct ms_slab_page *pages;
};

/* Nodes begin on multiples of 8 bytes: no type that asks for more. */
void ms_slab_init(struct ms_slab *slab, size_t node_bytes);
/* For large nodes of which mostly a small part is written: never uses large pages. */
void ms_slab_init_sparse(struct ms_slab *slab, size_t node_bytes);
void ms_slab_destroy(struct ms_slab *slab);

/* A node with undefined contents; null when the host is out of memory. */
void *ms_slab_take(struct ms_slab *slab);
/* A node of zeros. On a fresh page, its memory has not been touched yet. */
void *ms_slab_take_zeroed(struct ms_slab *slab);
/* Makes sure that the next `count` (at most MS_SLAB_RESERVE_MOST) takes cannot fail. False: the
 * host has no memory. */
bool ms_slab_reserve(struct ms_slab *slab, size_t count);
void ms_slab_give(struct ms_slab *slab, void *node);

#endif
