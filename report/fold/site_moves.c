/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that moved to host memory or back, and the part of a block that lies in them. */
#include "report/fold/site_moves.h"

#include <stdbool.h>
#include <stdlib.h>

struct moved_range {
    uint64_t addr, bytes;
    uint64_t longest; /* end of the longest range up to this one */
    uint8_t device;
    bool down;
};

_Static_assert(sizeof(struct moved_range) == MS_MOVES_RANGE_BYTES, "the header says this size");

void ms_moves_add(struct ms_moves *moves, const struct ms_event *event)
{
    struct moved_range *range = ms_buffer_extend(&moves->ranges, sizeof(*range));

    if (range) {
        *range = (struct moved_range){.addr = event->addr,
                                      .bytes = event->bytes,
                                      .device = event->device,
                                      .down = event->kind == MS_EVENT_SPILL};
    }
}

size_t ms_moves_count(const struct ms_moves *moves)
{
    return moves->ranges.bytes / sizeof(struct moved_range);
}

static int by_address(const void *a, const void *b)
{
    const struct moved_range *left = a, *right = b;

    if (left->device != right->device) {
        return left->device < right->device ? -1 : 1;
    }
    return left->addr < right->addr ? -1 : left->addr > right->addr;
}

void ms_moves_sort(struct ms_moves *moves)
{
    struct moved_range *all = (struct moved_range *)moves->ranges.at;
    const size_t count = ms_moves_count(moves);
    uint64_t longest = 0;

    if (count > 0) {
        qsort(all, count, sizeof(*all), by_address);
    }
    for (size_t i = 0; i < count; i++) {
        longest = all[i].bytes > longest ? all[i].bytes : longest;
        all[i].longest = longest;
    }
}

/* How many ranges begin before the address. */
static size_t before(const struct moved_range *all, size_t count, uint8_t device, uint64_t addr)
{
    size_t low = 0;

    while (low < count) {
        const size_t middle = low + (count - low) / 2;
        const bool is_before =
            all[middle].device != device ? all[middle].device < device : all[middle].addr < addr;

        if (is_before) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

static uint64_t overlap(const struct moved_range *range, uint64_t addr, uint64_t end)
{
    const uint64_t from = range->addr > addr ? range->addr : addr;
    const uint64_t range_end = range->addr + range->bytes;
    const uint64_t to = range_end < end ? range_end : end;

    return to > from ? to - from : 0;
}

struct ms_site_moved ms_moves_of(const struct ms_moves *moves, uint8_t device, uint64_t addr,
                                 uint64_t bytes)
{
    const struct moved_range *all = (const struct moved_range *)moves->ranges.at;
    const uint64_t end = addr + bytes;
    struct ms_site_moved moved = {0};
    size_t at = before(all, ms_moves_count(moves), device, end);

    /* No earlier range reaches further than the longest of them. */
    while (at > 0 && all[at - 1].device == device &&
           all[at - 1].addr + all[at - 1].longest > addr) {
        const struct moved_range *range = &all[--at];

        *(range->down ? &moved.down_bytes : &moved.up_bytes) += overlap(range, addr, end);
    }
    return moved;
}

void ms_moves_free(struct ms_moves *moves)
{
    ms_buffer_free(&moves->ranges);
}
