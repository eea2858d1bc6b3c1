/* SPDX-License-Identifier: Apache-2.0 */
/* Follows reservations and mappings while a trace is read for the first time. */
#include "report/model/address_ranges.h"

#include <stdlib.h>

#define MOST_RANGES 1024u

static struct ms_address_range *range_at(const struct ms_address_ranges *ranges, size_t index)
{
    return (struct ms_address_range *)ranges->all.at + index;
}

static size_t range_count(const struct ms_address_ranges *ranges)
{
    return ranges->all.bytes / sizeof(struct ms_address_range);
}

static bool holds(const struct ms_address_range *range, uint8_t device, uint64_t addr)
{
    return range->open && range->device == device && addr - range->addr < range->bytes;
}

static struct ms_address_range *find_range(struct ms_address_ranges *ranges, uint8_t device,
                                           uint64_t addr)
{
    if (ranges->newest < range_count(ranges) &&
        holds(range_at(ranges, ranges->newest), device, addr)) {
        return range_at(ranges, ranges->newest);
    }
    for (size_t i = range_count(ranges); i-- > 0;) {
        if (holds(range_at(ranges, i), device, addr)) {
            ranges->newest = i;
            return range_at(ranges, i);
        }
    }
    return NULL;
}

static struct ms_address_range *add_range(struct ms_address_ranges *ranges,
                                          const struct ms_event *event, uint64_t time_ns)
{
    struct ms_address_range *range =
        range_count(ranges) < MOST_RANGES ? ms_buffer_extend(&ranges->all, sizeof(*range)) : NULL;

    if (range) {
        *range = (struct ms_address_range){.device = event->device,
                                           .open = true,
                                           .framework = event->owner == MS_OWNER_APPLICATION,
                                           .addr = event->addr,
                                           .bytes = event->bytes,
                                           .begin_ns = time_ns,
                                           .last_ns = time_ns};
    }
    return range;
}

static void weigh(struct ms_address_range *range, uint64_t time_ns)
{
    if (time_ns > range->last_ns) {
        range->weight += (double)range->mapped_bytes * (double)(time_ns - range->last_ns);
        range->last_ns = time_ns;
    }
}

static void take_mapping(struct ms_address_ranges *ranges, const struct ms_event *event,
                         uint64_t time_ns)
{
    struct ms_address_range *range = find_range(ranges, event->device, event->addr);
    uint64_t end;

    if (!range && event->kind == MS_EVENT_MAP) {
        range = add_range(ranges, event, time_ns);
    }
    if (!range) {
        return;
    }
    weigh(range, time_ns);
    if (event->kind == MS_EVENT_UNMAP) {
        range->mapped_bytes -=
            event->bytes < range->mapped_bytes ? event->bytes : range->mapped_bytes;
        return;
    }
    end = event->addr - range->addr + event->bytes;
    end = end < range->bytes ? range->addr + end : range->addr + range->bytes;
    range->low = range->high == 0 || event->addr < range->low ? event->addr : range->low;
    range->high = end > range->high ? end : range->high;
    range->mapped_bytes += event->bytes;
}

void ms_address_ranges_take(struct ms_address_ranges *ranges, const struct ms_event *event,
                            uint64_t time_ns)
{
    struct ms_address_range *range;

    if (event->addr == 0 || event->bytes == 0 || event->addr > UINT64_MAX - event->bytes) {
        return;
    }
    switch (event->kind) {
    case MS_EVENT_RANGE_RESERVE:
        add_range(ranges, event, time_ns);
        break;
    case MS_EVENT_RANGE_FREE:
        range = find_range(ranges, event->device, event->addr);
        if (range) {
            weigh(range, time_ns);
            range->open = false;
            range->end_ns = time_ns;
        }
        break;
    case MS_EVENT_MAP:
    case MS_EVENT_UNMAP:
        take_mapping(ranges, event, time_ns);
        break;
    case MS_EVENT_PROXY_MAP:
        range = find_range(ranges, event->device, event->addr);
        if (range) {
            range->framework = true;
        }
        break;
    default:
        break;
    }
}

/* ---- after the last event ---- */

static int by_weight(const void *a, const void *b)
{
    const struct ms_address_range *left = a, *right = b;

    return left->weight > right->weight ? -1 : left->weight < right->weight;
}

void ms_address_ranges_sort(const struct ms_address_ranges *ranges, uint64_t end_ns,
                            struct ms_buffer *sorted)
{
    struct ms_address_range *all;
    size_t count;

    ms_buffer_append(sorted, ranges->all.at, ranges->all.bytes);
    all = (struct ms_address_range *)sorted->at;
    count = sorted->bytes / sizeof(*all);
    for (size_t i = 0; i < count; i++) {
        weigh(&all[i], all[i].open ? end_ns : 0);
    }
    if (count > 0) {
        qsort(all, count, sizeof(*all), by_weight);
    }
}
