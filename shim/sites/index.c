/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of host memory for call sites, and a hash table whose readers take no lock. */
#include "shim/sites/index.h"

#include <sys/mman.h>

#define FIRST_SLOTS 1024u
#define STEP_BYTES  (64u << 10) /* growth step of an array */

static uint64_t taken_bytes; /* guarded by the lock */

static void *map(size_t bytes, int protection)
{
    void *base = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

uint64_t ms_pages_taken_bytes(void)
{
    return taken_bytes;
}

bool ms_pages_reserve(struct ms_pages *pages, size_t bytes)
{
    *pages = (struct ms_pages){.base = map(bytes, PROT_NONE), .reserved_bytes = bytes};
    return pages->base != NULL;
}

bool ms_pages_reach(struct ms_pages *pages, size_t bytes)
{
    if (bytes <= pages->usable_bytes) {
        return true;
    }
    const size_t usable = (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    const size_t more = usable - pages->usable_bytes;
    if (usable > pages->reserved_bytes || taken_bytes + more > MS_SITES_MAX_BYTES ||
        mprotect((char *)pages->base + pages->usable_bytes, more, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    pages->usable_bytes = usable;
    taken_bytes += more;
    return true;
}

static size_t slots_bytes(uint32_t count)
{
    return sizeof(struct ms_slots) + (size_t)count * sizeof(uint64_t);
}

/* The entry is written last: whoever sees it sees what its number stands for. */
static void put(struct ms_slots *slots, uint64_t entry)
{
    uint32_t at = (uint32_t)(entry >> 32) & slots->mask;
    while (atomic_load_explicit(&slots->entries[at], memory_order_relaxed) != 0) {
        at = (at + 1) & slots->mask;
    }
    atomic_store_explicit(&slots->entries[at], entry, memory_order_release);
}

static bool grow(struct ms_site_index *index, struct ms_slots *old)
{
    const uint32_t count = old != NULL ? 2 * (old->mask + 1) : FIRST_SLOTS;
    struct ms_slots *wider = NULL;
    if (taken_bytes + slots_bytes(count) <= MS_SITES_MAX_BYTES) {
        wider = map(slots_bytes(count), PROT_READ | PROT_WRITE);
    }
    if (wider == NULL) {
        return false;
    }
    wider->mask = count - 1;
    taken_bytes += slots_bytes(count);
    for (uint32_t i = 0; old != NULL && i <= old->mask; i++) {
        const uint64_t entry = atomic_load_explicit(&old->entries[i], memory_order_relaxed);
        if (entry != 0) {
            put(wider, entry);
        }
    }
    atomic_store_explicit(&index->slots, wider, memory_order_release);
    if (old != NULL && !index->shared) {
        taken_bytes -= slots_bytes(old->mask + 1);
        (void)munmap(old, slots_bytes(old->mask + 1));
    }
    return true;
}

bool ms_index_add(struct ms_site_index *index, uint64_t hash, uint32_t number)
{
    struct ms_slots *slots = atomic_load_explicit(&index->slots, memory_order_relaxed);
    const bool room = slots != NULL && (index->used + 1) / 3 < (slots->mask + 1) / 4;
    if (!room && !grow(index, slots)) {
        return false;
    }
    put(atomic_load_explicit(&index->slots, memory_order_relaxed),
        (hash & ~(uint64_t)UINT32_MAX) | number);
    index->used++;
    return true;
}
