/* Where in a segment live blocks begin: a bitmap with summaries above it, so that the block around
 * an interior address is found in a few steps whatever the number of blocks.
 *
 * Positions are units of MS_BLOCK_ALIGNMENT_BYTES from the segment's base. Memory is mapped sparse:
 * only pages about addresses in use are ever touched. The pool's state lock covers it. */
#ifndef MEMSHIM_ALLOCATOR_STARTS_H
#define MEMSHIM_ALLOCATOR_STARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_STARTS_LEVELS = 6 }; /* 64^6 units of 512 bytes: 32 TiB, beyond any reservation */

struct ms_starts {
    uint64_t
        *level[MS_STARTS_LEVELS]; /* level[k + 1] has a bit for each nonzero word of level[k] */
    uint64_t positions;
    void *pages;
    size_t pages_bytes;
};

/* False when the host is out of memory or there are more positions than the levels reach. */
bool ms_starts_init(struct ms_starts *starts, uint64_t positions);
void ms_starts_destroy(struct ms_starts *starts);

void ms_starts_set(struct ms_starts *starts, uint64_t position);
void ms_starts_clear(struct ms_starts *starts, uint64_t position);
bool ms_starts_test(const struct ms_starts *starts, uint64_t position);

/* The highest position set that is <= position; false where there is none. */
bool ms_starts_at_or_below(const struct ms_starts *starts, uint64_t position, uint64_t *out);

#endif
