/* SPDX-License-Identifier: Apache-2.0 */
/* Live allocations by the page they touch. Only pages that more than one allocation can share are
 * remembered: the first and the last of each. */
#include "shim/device/addresses/pages.h"

#include <stdlib.h>

/* Without memory for its tables a page is not remembered. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "allocator/base/locks/lock.h"

struct page {
    uint64_t number; /* address / MS_DRIVER_SLAB_BYTES */
    uint64_t live;   /* allocations that touch it */
    uint32_t site;   /* of the first of them, which was charged for it */
    UT_hash_handle hh;
};

static struct page *known MS_GUARDED_BY(*MS_LOCK(PAGES)); /* by number */

static struct page *find(uint64_t number) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct page *page = NULL;
    HASH_FIND(hh, known, &number, sizeof number, page);
    return page;
}

/* True where nothing touched the page before. */
static bool touch_locked(uint64_t number, uint32_t site) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct page *page = find(number);
    if (page) {
        page->live++;
        return false;
    }
    page = malloc(sizeof *page);
    if (page) {
        *page = (struct page){.number = number, .live = 1, .site = site};
        HASH_ADD(hh, known, number, sizeof page->number, page);
        if (!page->hh.tbl) {
            free(page);
        }
    }
    return true;
}

/* True where nothing touches the page any more; *site is then the one that was charged for it. */
static bool leave_locked(uint64_t number, uint32_t *site) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct page *page = find(number);
    if (page && --page->live != 0) {
        return false;
    }
    if (page) {
        *site = page->site;
        HASH_DEL(known, page);
        free(page);
    }
    return true;
}

/* The pages between the first and the last are nobody else's. */
static uint64_t pages_between(uint64_t first, uint64_t last)
{
    return last > first ? last - first - 1 : 0;
}

uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes, uint32_t site)
{
    const uint64_t first = addr / MS_DRIVER_SLAB_BYTES;
    const uint64_t last = (addr + bytes - 1) / MS_DRIVER_SLAB_BYTES;
    uint64_t pages = pages_between(first, last);
    if (bytes == 0) {
        return 0;
    }
    ms_lock_acquire(MS_LOCK(PAGES));
    pages += touch_locked(first, site);
    if (last > first) {
        pages += touch_locked(last, site);
    }
    ms_lock_release(MS_LOCK(PAGES));
    return pages * MS_DRIVER_SLAB_BYTES;
}

struct ms_pages_left ms_pages_leave(uint64_t addr, uint64_t bytes, uint32_t site)
{
    const uint64_t ends[] = {addr / MS_DRIVER_SLAB_BYTES,
                             (addr + bytes - 1) / MS_DRIVER_SLAB_BYTES};
    struct ms_pages_left left = {.own_bytes =
                                     pages_between(ends[0], ends[1]) * MS_DRIVER_SLAB_BYTES};
    if (bytes == 0) {
        return (struct ms_pages_left){0};
    }
    ms_lock_acquire(MS_LOCK(PAGES));
    for (int i = 0; i < 2 - (ends[0] == ends[1]); i++) {
        uint32_t charged = site;
        if (!leave_locked(ends[i], &charged)) {
            continue;
        }
        if (charged == site) {
            left.own_bytes += MS_DRIVER_SLAB_BYTES;
        } else {
            left.other_sites[left.others++] = charged;
        }
    }
    ms_lock_release(MS_LOCK(PAGES));
    return left;
}
