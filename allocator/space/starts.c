/* SPDX-License-Identifier: Apache-2.0 */
/* A bit for each possible start of a live block, with summaries: see starts.h. */
#include "allocator/space/starts.h"

#include "allocator/base/containers/pages.h"

enum { WORD_SHIFT = MS_STARTS_SHIFT, WORD_MASK = MS_STARTS_MASK };

bool ms_starts_init(struct ms_starts *starts, uint64_t positions)
{
    uint64_t words[MS_STARTS_LEVELS];
    uint64_t all_words = 0;
    uint64_t bits = positions;
    for (int k = 0; k < MS_STARTS_LEVELS; k++) {
        /* One more than needed, so that reading the position after the last is safe. */
        words[k] = (bits >> WORD_SHIFT) + 1;
        all_words += words[k];
        bits = words[k];
    }
    if (bits != 1) {
        return false;
    }
    *starts = (struct ms_starts){.positions = positions, .pages_bytes = all_words * 8};
    starts->pages = ms_pages_map(starts->pages_bytes);
    if (starts->pages == NULL) {
        return false;
    }
    uint64_t *word = starts->pages;
    for (int k = 0; k < MS_STARTS_LEVELS; k++) {
        starts->level[k] = word;
        word += words[k];
    }
    return true;
}

void ms_starts_destroy(struct ms_starts *starts)
{
    if (starts->pages != NULL) {
        ms_pages_unmap(starts->pages, starts->pages_bytes);
        starts->pages = NULL;
    }
}

static uint64_t highest_bit(uint64_t word)
{
    return WORD_MASK - (uint64_t)__builtin_clzll(word);
}

/* Goes up to the first word with a bit at or below the position, and gives that bit's place in its
 * level. From the second level on it excludes the position's own bit, which stands for the words
 * just read. False: there is none. */
static bool climb(const struct ms_starts *starts, uint64_t position, int *level, uint64_t *found)
{
    uint64_t reach = position + 1;
    for (int k = 0; k < MS_STARTS_LEVELS; k++) {
        uint64_t below = reach & WORD_MASK;
        uint64_t word = starts->level[k][reach >> WORD_SHIFT];
        word = below == 0 ? 0 : word & (UINT64_MAX >> (64 - below));
        if (word != 0) {
            *level = k;
            *found = (reach & ~(uint64_t)WORD_MASK) + highest_bit(word);
            return true;
        }
        reach >>= WORD_SHIFT;
    }
    return false;
}

/* Goes down to the highest position that the summary stands for. False: it led to an empty word,
 * whose bit is now cleared. */
static bool descend(const struct ms_starts *starts, int level, uint64_t *found)
{
    while (level-- > 0) {
        uint64_t word = starts->level[level][*found];
        if (word == 0) {
            starts->level[level + 1][*found >> WORD_SHIFT] &=
                ~((uint64_t)1 << (*found & WORD_MASK));
            return false;
        }
        *found = (*found << WORD_SHIFT) + highest_bit(word);
    }
    return true;
}

bool ms_starts_search(const struct ms_starts *starts, uint64_t position, uint64_t *out)
{
    int level = 0;
    while (climb(starts, position, &level, out)) {
        if (descend(starts, level, out)) {
            return true;
        }
    }
    return false;
}
