/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that never moves, and tables in it: what call sites are kept in.
 *
 * None of it is the application's heap. All of it together is bounded. Whoever adds holds one lock;
 * looking things up takes none: what is found was complete before it could be found. */
#ifndef MEMSHIM_SHIM_SITES_INDEX_H
#define MEMSHIM_SHIM_SITES_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_SITES_MAX_BYTES (256ULL << 20) /* of host memory for all of it */

/* Addresses for an array that grows in place. */
struct ms_pages {
    void *base;
    size_t reserved_bytes, usable_bytes;
};

/* False: the process may not have so many addresses. */
bool ms_pages_reserve(struct ms_pages *pages, size_t bytes);

/* The first `bytes` of it can be used from here on. False: there is no room. Under the lock. */
bool ms_pages_reach(struct ms_pages *pages, size_t bytes);

/* How much all of it takes now. Under the lock. */
uint64_t ms_pages_taken_bytes(void);

/* From hashes to numbers that are not 0, several for one hash where that comes about. */
struct ms_slots {
    uint32_t mask;
    _Atomic uint64_t entries[]; /* upper half of the hash, number; 0: free */
};

struct ms_site_index {
    struct ms_slots *_Atomic slots; /* null before the first number */
    uint32_t used;                  /* under the lock */
    bool shared; /* looked into without the lock: an array that is replaced stays */
};

/* Puts the number in. False: there is no room. Under the lock. */
bool ms_index_add(struct ms_site_index *index, uint64_t hash, uint32_t number);

/* Goes through the numbers whose hash agrees, as far as its upper half goes. */
struct ms_probe {
    const struct ms_slots *slots;
    uint32_t hash, at;
};

static inline struct ms_probe ms_probe(const struct ms_site_index *index, uint64_t hash)
{
    const uint32_t upper = (uint32_t)(hash >> 32);
    return (struct ms_probe){atomic_load_explicit(&index->slots, memory_order_acquire), upper,
                             upper};
}

/* 0: there are no more. */
static inline uint32_t ms_probe_next(struct ms_probe *probe)
{
    while (probe->slots != NULL) {
        const uint32_t at = probe->at++ & probe->slots->mask;
        const uint64_t entry =
            atomic_load_explicit(&probe->slots->entries[at], memory_order_acquire);
        if (entry == 0 || (uint32_t)(entry >> 32) == probe->hash) {
            return (uint32_t)entry;
        }
    }
    return 0;
}

/* Another word into a hash. */
static inline uint64_t ms_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    return hash ^ hash >> 29;
}

#endif
