/* SPDX-License-Identifier: Apache-2.0 */
/* The arenas that a capture froze: a sorted list of ranges. */
#include "report/fold/frozen.h"

#include <stddef.h>
#include <string.h>

/* By device and address; they do not overlap. */
struct frozen_range {
    uint64_t addr, bytes;
    uint8_t device;
};

_Static_assert(sizeof(struct frozen_range) == MS_FROZEN_RANGE_BYTES, "the header says this size");

static size_t count_of(const struct ms_frozen *frozen)
{
    return frozen->ranges.bytes / sizeof(struct frozen_range);
}

static bool begins_up_to(const struct frozen_range *range, uint8_t device, uint64_t addr)
{
    return range->device < device || (range->device == device && range->addr <= addr);
}

/* How many ranges begin at or before the address. */
static size_t up_to(const struct ms_frozen *frozen, uint8_t device, uint64_t addr)
{
    const struct frozen_range *all = (const struct frozen_range *)frozen->ranges.at;
    size_t low = 0, high = count_of(frozen);

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (begins_up_to(&all[middle], device, addr)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void ms_frozen_add(struct ms_frozen *frozen, const struct ms_event *event)
{
    const size_t place = up_to(frozen, event->device, event->addr), count = count_of(frozen);

    if (!ms_buffer_extend(&frozen->ranges, sizeof(struct frozen_range))) {
        return;
    }

    struct frozen_range *all = (struct frozen_range *)frozen->ranges.at;

    memmove(&all[place + 1], &all[place], (count - place) * sizeof(*all));
    all[place] = (struct frozen_range){event->addr, event->bytes, event->device};
}

void ms_frozen_take(struct ms_frozen *frozen, uint8_t device, uint64_t addr)
{
    struct frozen_range *all = (struct frozen_range *)frozen->ranges.at;
    const size_t end = up_to(frozen, device, addr), count = count_of(frozen);

    if (end > 0 && all[end - 1].device == device && all[end - 1].addr == addr) {
        memmove(&all[end - 1], &all[end], (count - end) * sizeof(*all));
        frozen->ranges.bytes -= sizeof(*all);
    }
}

bool ms_frozen_has(const struct ms_frozen *frozen, uint8_t device, uint64_t addr)
{
    const struct frozen_range *all = (const struct frozen_range *)frozen->ranges.at;
    const size_t end = up_to(frozen, device, addr);

    return end > 0 && all[end - 1].device == device &&
           addr - all[end - 1].addr < all[end - 1].bytes;
}

void ms_frozen_free(struct ms_frozen *frozen)
{
    ms_buffer_free(&frozen->ranges);
}
