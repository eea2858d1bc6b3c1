/* SPDX-License-Identifier: Apache-2.0 */
/* Free ranges of one order by size: see range.h. */
#include "allocator/space/block.h"
#include "allocator/space/range.h"

static struct ms_range *range_of(const struct ms_treap_node *node)
{
    return node == NULL ? NULL : MS_CONTAINER_OF(node, struct ms_range, free.node);
}

static inline struct ms_treap_key key_of(const struct ms_treap_node *node)
{
    const struct ms_range *range = range_of(node);
    return (struct ms_treap_key){.major = range->bytes, .minor = range->addr};
}

void ms_range_tree_insert(struct ms_treap_node **root, struct ms_range *range)
{
    ms_treap_insert(root, &range->free.node, key_of);
}

void ms_range_tree_remove(struct ms_treap_node **root, struct ms_range *range)
{
    ms_treap_remove(root, &range->free.node, key_of);
}

struct ms_range *ms_range_tree_at_least(struct ms_treap_node *root, uint64_t bytes, ms_addr_t addr)
{
    struct ms_treap_key bound = {.major = bytes, .minor = addr};
    return range_of(ms_treap_at_least(root, bound, key_of));
}

struct ms_range *ms_range_tree_last(struct ms_treap_node *root)
{
    return range_of(ms_treap_last(root));
}

struct ms_range *ms_range_tree_after(struct ms_treap_node *root, const struct ms_range *range)
{
    return ms_range_tree_at_least(root, range->bytes, range->addr + 1);
}

struct ms_range *ms_range_tree_before(struct ms_treap_node *root, const struct ms_range *range)
{
    struct ms_treap_key bound = {.major = range->bytes, .minor = range->addr};
    return range_of(ms_treap_below(root, bound, key_of));
}

static unsigned bin_of(uint64_t bytes)
{
    return (unsigned)((bytes + MS_BLOCK_ALIGNMENT_BYTES - 1) / MS_BLOCK_ALIGNMENT_BYTES) - 1;
}

void ms_bins_insert(struct ms_bins *bins, struct ms_range *range)
{
    if (range->bytes > MS_BIN_LIMIT_BYTES) {
        ms_range_tree_insert(&bins->large, range);
        return;
    }
    unsigned bin = bin_of(range->bytes);
    struct ms_range *head = bins->head[bin];
    range->free.bin_prev = NULL;
    range->free.bin_next = head;
    if (head != NULL) {
        head->free.bin_prev = range;
    }
    bins->head[bin] = range;
    bins->map[bin / 64] |= (uint64_t)1 << (bin % 64);
    bins->summary |= (uint32_t)1 << (bin / 64);
}

void ms_bins_remove(struct ms_bins *bins, struct ms_range *range)
{
    if (range->bytes > MS_BIN_LIMIT_BYTES) {
        ms_range_tree_remove(&bins->large, range);
        return;
    }
    unsigned bin = bin_of(range->bytes);
    if (range->free.bin_next != NULL) {
        range->free.bin_next->free.bin_prev = range->free.bin_prev;
    }
    if (range->free.bin_prev != NULL) {
        range->free.bin_prev->free.bin_next = range->free.bin_next;
        return;
    }
    bins->head[bin] = range->free.bin_next;
    if (bins->head[bin] == NULL) {
        bins->map[bin / 64] &= ~((uint64_t)1 << (bin % 64));
        if (bins->map[bin / 64] == 0) {
            bins->summary &= ~((uint32_t)1 << (bin / 64));
        }
    }
}

struct ms_range *ms_bins_best(const struct ms_bins *bins, uint64_t bytes)
{
    if (bytes <= MS_BIN_LIMIT_BYTES) {
        unsigned bin = bin_of(bytes);
        uint64_t word = bins->map[bin / 64] & (UINT64_MAX << (bin % 64));
        if (word != 0) {
            return bins->head[bin / 64 * 64 + (unsigned)__builtin_ctzll(word)];
        }
        /* Shifted twice: a shift by the full width is undefined. */
        uint32_t words = bins->summary & (UINT32_MAX << (bin / 64) << 1);
        if (words != 0) {
            unsigned w = (unsigned)__builtin_ctz(words);
            return bins->head[w * 64 + (unsigned)__builtin_ctzll(bins->map[w])];
        }
    }
    return ms_range_tree_at_least(bins->large, bytes, 0);
}

struct ms_range *ms_bins_largest(const struct ms_bins *bins)
{
    struct ms_range *large = ms_range_tree_last(bins->large);
    if (large != NULL || bins->summary == 0) {
        return large;
    }
    unsigned w = 31 - (unsigned)__builtin_clz(bins->summary);
    return bins->head[w * 64 + 63 - (unsigned)__builtin_clzll(bins->map[w])];
}
