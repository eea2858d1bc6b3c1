/* Live allocations by the page they touch. Only pages that more than one allocation can share are
 * remembered: the first and the last of each. */
#include "shim/serve/pages.h"

#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 4096u

struct page {
    struct page *next;
    uint64_t number; /* address / MS_SLAB_BYTES */
    uint64_t live;   /* allocations that touch it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page *buckets[BUCKETS];

static struct page **slot_of(uint64_t number)
{
    struct page **slot = &buckets[(number * 0x9e3779b97f4a7c15ULL) >> 52];
    while (*slot && (*slot)->number != number) {
        slot = &(*slot)->next;
    }
    return slot;
}

/* True where nothing touched the page before. */
static bool touch_locked(uint64_t number)
{
    struct page **slot = slot_of(number);
    if (*slot) {
        (*slot)->live++;
        return false;
    }
    struct page *page = malloc(sizeof *page);
    if (page) {
        *page = (struct page){.number = number, .live = 1};
        *slot = page;
    }
    return true;
}

/* True where nothing touches the page any more. */
static bool leave_locked(uint64_t number)
{
    struct page **slot = slot_of(number);
    struct page *page = *slot;
    if (page && --page->live != 0) {
        return false;
    }
    if (page) {
        *slot = page->next;
        free(page);
    }
    return true;
}

static uint64_t change(uint64_t addr, uint64_t bytes, bool (*one)(uint64_t number))
{
    uint64_t first = addr / MS_SLAB_BYTES;
    uint64_t last = (addr + bytes - 1) / MS_SLAB_BYTES;
    uint64_t pages = last > first ? last - first - 1 : 0; /* those between are nobody else's */
    pthread_mutex_lock(&lock);
    pages += one(first);
    if (last > first) {
        pages += one(last);
    }
    pthread_mutex_unlock(&lock);
    return pages * MS_SLAB_BYTES;
}

uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes)
{
    return bytes ? change(addr, bytes, touch_locked) : 0;
}

uint64_t ms_pages_leave(uint64_t addr, uint64_t bytes)
{
    return bytes ? change(addr, bytes, leave_locked) : 0;
}

void ms_pages_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void ms_pages_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void ms_pages_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}
