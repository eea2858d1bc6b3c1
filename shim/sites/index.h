/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that never moves, and the tables in it that hold call sites.
 *
 * None of it comes from the application's heap, and its total is bounded. One lock guards
 * additions; look-ups take none, because an item can be found only after it is complete. */
#ifndef MEMSHIM_SHIM_SITES_INDEX_H
#define MEMSHIM_SHIM_SITES_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_SITES_MAX_BYTES (256ULL << 20) /* of host memory, in total */

/* Addresses for an array that grows in place. */
struct ms_pages {
    void *base;
    size_t reserved_bytes, usable_bytes;
};

/* False: the process may not have that many addresses. */
bool ms_pages_reserve(struct ms_pages *pages, size_t bytes);

/* Makes the first `bytes` of it usable. False: no room. The caller holds the lock. */
bool ms_pages_reach(struct ms_pages *pages, size_t bytes);

/* How many bytes all of it takes now. The caller holds the lock. */
uint64_t ms_pages_taken_bytes(void);

/* Maps hashes to numbers other than 0; several numbers may share a hash. */
struct ms_slots {
    uint32_t mask;
    _Atomic uint64_t entries[]; /* upper half of the hash, number; 0: free */
};

struct ms_site_index {
    struct ms_slots *_Atomic slots; /* null until the first number is added */
    uint32_t used;                  /* guarded by the lock */
    bool shared;                    /* read without the lock, so a replaced array is kept */
};

/* Adds the number. False: no room. The caller holds the lock. */
bool ms_index_add(struct ms_site_index *index, uint64_t hash, uint32_t number);

/* Iterates over the numbers whose hash agrees in its upper half. */
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

/* 0: no more. */
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

/* Mixes another word into a hash. */
static inline uint64_t ms_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    return hash ^ hash >> 29;
}

#endif
