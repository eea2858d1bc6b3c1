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
static bool touch_locked(uint64_t number) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct page *page = find(number);
    if (page) {
        page->live++;
        return false;
    }
    page = malloc(sizeof *page);
    if (page) {
        *page = (struct page){.number = number, .live = 1};
        HASH_ADD(hh, known, number, sizeof page->number, page);
        if (!page->hh.tbl) {
            free(page);
        }
    }
    return true;
}

/* True where nothing touches the page any more. */
static bool leave_locked(uint64_t number) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct page *page = find(number);
    if (page && --page->live != 0) {
        return false;
    }
    if (page) {
        HASH_DEL(known, page);
        free(page);
    }
    return true;
}

static uint64_t change(uint64_t addr, uint64_t bytes, bool (*one)(uint64_t number))
{
    uint64_t first = addr / MS_DRIVER_SLAB_BYTES;
    uint64_t last = (addr + bytes - 1) / MS_DRIVER_SLAB_BYTES;
    uint64_t pages = last > first ? last - first - 1 : 0; /* those between are nobody else's */
    ms_lock_acquire(MS_LOCK(PAGES));
    pages += one(first);
    if (last > first) {
        pages += one(last);
    }
    ms_lock_release(MS_LOCK(PAGES));
    return pages * MS_DRIVER_SLAB_BYTES;
}

uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes)
{
    return bytes ? change(addr, bytes, touch_locked) : 0;
}

uint64_t ms_pages_leave(uint64_t addr, uint64_t bytes)
{
    return bytes ? change(addr, bytes, leave_locked) : 0;
}
