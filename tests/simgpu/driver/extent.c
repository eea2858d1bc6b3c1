/* SPDX-License-Identifier: Apache-2.0 */
/* Free ranges of a line of bytes. See extent.h. */
#include "extent.h"

#include <assert.h>
#include <stdlib.h>

struct extent {
    struct sim_node by_offset, by_size;
    uint64_t offset, size;
};

static void link_extent(struct sim_extents *extents, struct extent *extent)
{
    extent->by_offset.key = extent->offset;
    extent->by_offset.tie = 0;
    extent->by_size.key = extent->size;
    extent->by_size.tie = extent->offset;
    sim_tree_insert(&extents->by_offset, &extent->by_offset);
    sim_tree_insert(&extents->by_size, &extent->by_size);
    extents->free_bytes += extent->size;
}

static void unlink_extent(struct sim_extents *extents, struct extent *extent)
{
    sim_tree_remove(&extents->by_offset, &extent->by_offset);
    sim_tree_remove(&extents->by_size, &extent->by_size);
    extents->free_bytes -= extent->size;
}

static struct extent *at_or_before(const struct sim_extents *extents, uint64_t offset)
{
    struct sim_node *node = sim_tree_floor(&extents->by_offset, offset, 0);
    return node ? SIM_OWNER(node, struct extent, by_offset) : NULL;
}

bool sim_extents_contains(const struct sim_extents *extents, uint64_t offset, uint64_t size)
{
    const struct extent *found = at_or_before(extents, offset);
    return found && found->offset + found->size >= offset + size;
}

bool sim_extents_fits(const struct sim_extents *extents, uint64_t size)
{
    return sim_tree_ceiling(&extents->by_size, size, 0) != NULL;
}

void sim_extents_carve(struct sim_extents *extents, uint64_t offset, uint64_t size)
{
    struct extent *found = at_or_before(extents, offset);
    assert(found && found->offset + found->size >= offset + size);
    uint64_t end = found->offset + found->size;
    unlink_extent(extents, found);
    if (found->offset < offset) {
        found->size = offset - found->offset;
        link_extent(extents, found);
        found = NULL;
    }
    if (offset + size < end) {
        struct extent *rest = found ? found : malloc(sizeof *rest);
        found = NULL;
        if (!rest) {
            return;
        }
        *rest = (struct extent){.offset = offset + size, .size = end - offset - size};
        link_extent(extents, rest);
    }
    free(found);
}

bool sim_extents_take(struct sim_extents *extents, uint64_t size, uint64_t alignment,
                      uint64_t *offset)
{
    for (struct sim_node *node = sim_tree_ceiling(&extents->by_size, size, 0); node;
         node = sim_tree_next(&extents->by_size, node)) {
        struct extent *found = SIM_OWNER(node, struct extent, by_size);
        uint64_t start = (found->offset + alignment - 1) & ~(alignment - 1);
        if (start + size <= found->offset + found->size) {
            sim_extents_carve(extents, start, size);
            *offset = start;
            return true;
        }
    }
    return false;
}

bool sim_extents_give(struct sim_extents *extents, uint64_t offset, uint64_t size,
                      uint64_t *whole_offset, uint64_t *whole_size)
{
    struct extent *low = at_or_before(extents, offset);
    assert(!low || low->offset + low->size <= offset);
    if (low && low->offset + low->size != offset) {
        low = NULL;
    }
    struct sim_node *node = sim_tree_ceiling(&extents->by_offset, offset, 0);
    struct extent *high = node ? SIM_OWNER(node, struct extent, by_offset) : NULL;
    if (high && high->offset != offset + size) {
        high = NULL;
    }
    if (high) {
        unlink_extent(extents, high);
        size += high->size;
    }
    if (low) {
        unlink_extent(extents, low);
        offset = low->offset;
        size += low->size;
        free(high);
        high = low;
    }
    if (!high) {
        high = malloc(sizeof *high);
        if (!high) {
            return false;
        }
    }
    *high = (struct extent){.offset = offset, .size = size};
    link_extent(extents, high);
    if (whole_offset) {
        *whole_offset = offset;
    }
    if (whole_size) {
        *whole_size = size;
    }
    return true;
}

void sim_extents_clear(struct sim_extents *extents)
{
    for (struct sim_node *node; (node = sim_tree_first(&extents->by_offset));) {
        struct extent *extent = SIM_OWNER(node, struct extent, by_offset);
        unlink_extent(extents, extent);
        free(extent);
    }
}
