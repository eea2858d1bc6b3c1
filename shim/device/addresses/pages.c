/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the live allocations on each page. Only the first and the last page of an allocation are
 * kept, because only these can be shared. */
#include "shim/device/addresses/pages.h"

#include <stdlib.h>

/* Without memory for its table, uthash leaves a page out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "allocator/base/locks/lock.h"

struct driver_page {
    uint64_t number; /* address / MS_DRIVER_SLAB_BYTES */
    uint64_t live;   /* allocations that touch it */
    uint32_t site;   /* of the first of them, which was charged for it */
    UT_hash_handle hh;
};

static struct driver_page *known MS_GUARDED_BY(*MS_LOCK(PAGES)); /* by number */

static struct driver_page *find(uint64_t number) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct driver_page *page = NULL;
    HASH_FIND(hh, known, &number, sizeof number, page);
    return page;
}

/* True if nothing touched the page before. */
static bool touch_locked(uint64_t number, uint32_t site) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct driver_page *page = find(number);
    if (page) {
        page->live++;
        return false;
    }
    page = malloc(sizeof *page);
    if (page) {
        *page = (struct driver_page){.number = number, .live = 1, .site = site};
        HASH_ADD(hh, known, number, sizeof page->number, page);
        if (!page->hh.tbl) {
            free(page);
        }
    }
    return true;
}

/* True if nothing touches the page any more; *site is then the one that was charged for it. */
static bool leave_locked(uint64_t number, uint32_t *site) MS_REQUIRES(*MS_LOCK(PAGES))
{
    struct driver_page *page = find(number);
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

/* The pages of an allocation that others may touch (its first and its last), and the number of
 * pages between them. */
struct touched {
    uint64_t ends[2];
    int end_count;
    uint64_t between;
};

static struct touched touched_by(uint64_t addr, uint64_t bytes)
{
    const uint64_t first = addr / MS_DRIVER_SLAB_BYTES;
    if (bytes == 0) {
        return (struct touched){.end_count = 0};
    }
    const uint64_t last = (addr + bytes - 1) / MS_DRIVER_SLAB_BYTES;
    return last == first ? (struct touched){.ends = {first}, .end_count = 1}
                         : (struct touched){
                               .ends = {first, last}, .end_count = 2, .between = last - first - 1};
}

uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes, uint32_t site)
{
    const struct touched touched = touched_by(addr, bytes);
    uint64_t pages = touched.between;
    ms_lock_acquire(MS_LOCK(PAGES));
    for (int i = 0; i < touched.end_count; i++) {
        pages += touch_locked(touched.ends[i], site);
    }
    ms_lock_release(MS_LOCK(PAGES));
    return pages * MS_DRIVER_SLAB_BYTES;
}

struct ms_pages_left ms_pages_leave(uint64_t addr, uint64_t bytes, uint32_t site)
{
    const struct touched touched = touched_by(addr, bytes);
    struct ms_pages_left left = {.own_bytes = touched.between * MS_DRIVER_SLAB_BYTES};
    ms_lock_acquire(MS_LOCK(PAGES));
    for (int i = 0; i < touched.end_count; i++) {
        uint32_t charged = site;
        if (!leave_locked(touched.ends[i], &charged)) {
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
