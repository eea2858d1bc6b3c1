/* SPDX-License-Identifier: Apache-2.0 */
/* The containers of a device's live memory, by address: blocks, forwarded allocations, and pages
 * that a program maps by itself; neighbouring pages are joined. Ranges never overlap: if a damaged
 * trace has an overlap, the older range stays. */
#ifndef MEMSHIM_REPORT_READ_CONTAINERS_H
#define MEMSHIM_REPORT_READ_CONTAINERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_container {
    uint64_t addr, bytes;
    uint64_t stream;
    uint32_t site;
    bool pages; /* else it comes and goes as a whole */
};

struct ms_containers {
    struct ms_buffer ranges; /* struct ms_container, by address */
};

/* False: it overlaps another, is empty, or memory ran out. */
bool ms_containers_add(struct ms_containers *containers, const struct ms_container *container);

/* Removes a container that is no page, by its beginning. False: there is none. */
bool ms_containers_remove(struct ms_containers *containers, uint64_t addr,
                          struct ms_container *removed);

/* Cuts pages out. False: no single run of pages holds them all. */
bool ms_containers_cut(struct ms_containers *containers, uint64_t addr, uint64_t bytes);

/* The container of the address; null: none. */
const struct ms_container *ms_containers_find(const struct ms_containers *containers,
                                              uint64_t addr);

static inline size_t ms_containers_count(const struct ms_containers *containers)
{
    return containers->ranges.bytes / sizeof(struct ms_container);
}

static inline struct ms_container *ms_containers_at(const struct ms_containers *containers,
                                                    size_t index)
{
    return (struct ms_container *)containers->ranges.at + index;
}

#endif
