/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in an array sorted by address; joins neighbours as they come. */
#include "report/read/containers.h"

#include <string.h>

/* The first one that begins after the address. */
static size_t index_after(const struct ms_containers *containers, uint64_t addr)
{
    size_t low = 0, high = ms_containers_count(containers);

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (ms_containers_at(containers, middle)->addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const struct ms_container *ms_containers_find(const struct ms_containers *containers, uint64_t addr)
{
    const size_t after = index_after(containers, addr);
    const struct ms_container *before = after > 0 ? ms_containers_at(containers, after - 1) : NULL;

    return before && addr - before->addr < before->bytes ? before : NULL;
}

static bool insert(struct ms_containers *containers, size_t index,
                   const struct ms_container *container)
{
    if (!ms_buffer_extend(&containers->ranges, sizeof(*container))) {
        return false;
    }

    struct ms_container *to = ms_containers_at(containers, index);

    memmove(to + 1, to, (ms_containers_count(containers) - 1 - index) * sizeof(*to));
    *to = *container;
    return true;
}

static void erase(struct ms_containers *containers, size_t index)
{
    struct ms_container *from = ms_containers_at(containers, index);

    memmove(from, from + 1, (ms_containers_count(containers) - 1 - index) * sizeof(*from));
    containers->ranges.bytes -= sizeof(*from);
}

static bool join(const struct ms_container *low, const struct ms_container *high)
{
    return low->pages && high->pages && low->addr + low->bytes == high->addr;
}

bool ms_containers_add(struct ms_containers *containers, const struct ms_container *container)
{
    const size_t at = index_after(containers, container->addr);
    struct ms_container *low = at > 0 ? ms_containers_at(containers, at - 1) : NULL;
    struct ms_container *high =
        at < ms_containers_count(containers) ? ms_containers_at(containers, at) : NULL;

    if (container->bytes == 0 || container->bytes > UINT64_MAX - container->addr ||
        (low && container->addr - low->addr < low->bytes) ||
        (high && high->addr - container->addr < container->bytes)) {
        return false;
    }
    if (low && join(low, container)) {
        low->bytes += container->bytes;
        if (high && join(low, high)) {
            low->bytes += high->bytes;
            erase(containers, at);
        }
        return true;
    }
    if (high && join(container, high)) {
        high->addr = container->addr;
        high->bytes += container->bytes;
        return true;
    }
    return insert(containers, at, container);
}

bool ms_containers_remove(struct ms_containers *containers, uint64_t addr,
                          struct ms_container *removed)
{
    const struct ms_container *found = ms_containers_find(containers, addr);

    if (!found || found->pages || found->addr != addr) {
        return false;
    }
    *removed = *found;
    erase(containers, (size_t)(found - ms_containers_at(containers, 0)));
    return true;
}

bool ms_containers_cut(struct ms_containers *containers, uint64_t addr, uint64_t bytes)
{
    const size_t after = index_after(containers, addr);
    struct ms_container *run = after > 0 ? ms_containers_at(containers, after - 1) : NULL;

    if (!run || !run->pages || bytes == 0 || addr - run->addr >= run->bytes ||
        bytes > run->bytes - (addr - run->addr)) {
        return false;
    }

    struct ms_container rest = *run;

    rest.addr = addr + bytes;
    rest.bytes = run->addr + run->bytes - rest.addr;
    run->bytes = addr - run->addr;
    if (run->bytes == 0 && rest.bytes == 0) {
        erase(containers, after - 1);
    } else if (run->bytes == 0) {
        *run = rest;
    } else if (rest.bytes > 0) {
        return insert(containers, after, &rest);
    }
    return true;
}
