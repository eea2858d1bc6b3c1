/* SPDX-License-Identifier: Apache-2.0 */
/* Finds ranges by binary search; inserts and removes them. */
#include "shim/device/addresses/ranges.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 64u

static char *entry_at(const struct ms_ranges *ranges, size_t index)
{
    return (char *)ranges->entries + index * ranges->entry_bytes;
}

static uint64_t end_of(const struct ms_ranges *ranges, size_t index)
{
    uint64_t range[2];
    memcpy(range, entry_at(ranges, index), sizeof(range));
    return range[0] + range[1];
}

size_t ms_ranges_place(const struct ms_ranges *ranges, uint64_t addr)
{
    size_t low = 0;
    size_t high = ranges->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (end_of(ranges, middle) <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool ms_ranges_insert(struct ms_ranges *ranges, const void *entry)
{
    if (ranges->count == ranges->room) {
        size_t room = ranges->room ? ranges->room * 2 : FIRST_ROOM;
        void *wider = realloc(ranges->entries, room * ranges->entry_bytes);
        if (!wider) {
            return false;
        }
        ranges->entries = wider;
        ranges->room = room;
    }
    uint64_t addr;
    memcpy(&addr, entry, sizeof(addr));
    size_t i = ms_ranges_place(ranges, addr);
    memmove(entry_at(ranges, i + 1), entry_at(ranges, i),
            (ranges->count - i) * ranges->entry_bytes);
    memcpy(entry_at(ranges, i), entry, ranges->entry_bytes);
    ranges->count++;
    return true;
}

void ms_ranges_remove(struct ms_ranges *ranges, size_t first, size_t count)
{
    ranges->count -= count;
    memmove(entry_at(ranges, first), entry_at(ranges, first + count),
            (ranges->count - first) * ranges->entry_bytes);
}
