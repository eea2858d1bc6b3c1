/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a segment live blocks begin: a bitmap with summaries above it, so that the block around
 * an interior address is found in a few steps whatever the number of blocks.
 *
 * A summary bit says that its word may have bits. Clearing a start leaves the summaries as they
 * are, so a short-lived block costs a word or two. A search that finds an empty word clears its
 * summary bit; that cost is paid once for each bit set.
 *
 * Positions are units of MS_BLOCK_ALIGNMENT_BYTES from the segment's base. Its memory is sparse:
 * only pages for addresses in use are ever touched. The pool's state lock covers it. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_STARTS_H
#define MEMSHIM_ALLOCATOR_SPACE_STARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_STARTS_LEVELS = 6 }; /* 64^6 units of 512 bytes: 32 TiB, beyond any reservation */

struct ms_starts {
    uint64_t *level[MS_STARTS_LEVELS]; /* level[k + 1] has a bit for each word of level[k] that is
                                          not zero, and for some that no longer are */
    uint64_t positions;
    void *pages;
    size_t pages_bytes;
};

/* False when the host is out of memory or there are more positions than the levels reach. */
bool ms_starts_init(struct ms_starts *starts, uint64_t positions);
void ms_starts_destroy(struct ms_starts *starts);

enum { MS_STARTS_SHIFT = 6, MS_STARTS_MASK = 63 };

static inline void ms_starts_set(struct ms_starts *starts, uint64_t position)
{
    for (int k = 0; k < MS_STARTS_LEVELS; k++) {
        uint64_t *word = &starts->level[k][position >> MS_STARTS_SHIFT];
        uint64_t before = *word;
        *word = before | (uint64_t)1 << (position & MS_STARTS_MASK);
        if (before != 0) {
            return;
        }
        position >>= MS_STARTS_SHIFT;
    }
}

static inline void ms_starts_clear(struct ms_starts *starts, uint64_t position)
{
    starts->level[0][position >> MS_STARTS_SHIFT] &= ~((uint64_t)1 << (position & MS_STARTS_MASK));
}

static inline bool ms_starts_test(const struct ms_starts *starts, uint64_t position)
{
    uint64_t word = starts->level[0][position >> MS_STARTS_SHIFT];
    return (word >> (position & MS_STARTS_MASK) & 1) != 0;
}

bool ms_starts_search(const struct ms_starts *starts, uint64_t position, uint64_t *out);

/* The highest position set that is <= position; false where there is none. */
static inline bool ms_starts_at_or_below(const struct ms_starts *starts, uint64_t position,
                                         uint64_t *out)
{
    /* Mostly it is in the same word. */
    uint64_t word = starts->level[0][position >> MS_STARTS_SHIFT];
    word &= UINT64_MAX >> (MS_STARTS_MASK - (position & MS_STARTS_MASK));
    if (word != 0) {
        *out = (position | MS_STARTS_MASK) - (uint64_t)__builtin_clzll(word);
        return true;
    }
    return ms_starts_search(starts, position, out);
}

#endif
