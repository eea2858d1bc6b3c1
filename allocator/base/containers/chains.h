/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of records that are linked through themselves. Entering a record takes no memory, so
 * it cannot fail, and records do not move. The number of chains is fixed, which serves some ten
 * thousand records well. Use table.h for unbounded growth, or for entries without a record.
 *
 * Not thread-safe: the owner's lock covers it. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CONTAINERS_CHAINS_H
#define MEMSHIM_ALLOCATOR_BASE_CONTAINERS_CHAINS_H

#include <stddef.h>
#include <stdint.h>

enum { MS_CHAINS_BITS = 10 };

/* A member of the record, one for each table that the record is in. */
struct ms_link {
    struct ms_link *next;
    uint64_t key;
};

/* Empty while it has no heads. */
struct ms_chains {
    size_t offset; /* of the link in a record */
    struct ms_link *heads[1 << MS_CHAINS_BITS];
};

static inline size_t ms_chains_home(uint64_t key)
{
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - MS_CHAINS_BITS));
}

static inline struct ms_link *ms_chains_link(const struct ms_chains *chains, const void *record)
{
    return (struct ms_link *)((const char *)record + chains->offset);
}

static inline void *ms_chains_record(const struct ms_chains *chains, const struct ms_link *link)
{
    return link != NULL ? (char *)link - chains->offset : NULL;
}

/* Null: no record has the key. */
static inline void *ms_chains_find(const struct ms_chains *chains, uint64_t key)
{
    const struct ms_link *link = chains->heads[ms_chains_home(key)];
    while (link != NULL && link->key != key) {
        link = link->next;
    }
    return ms_chains_record(chains, link);
}

/* Goes before records with the same key. */
static inline void ms_chains_enter(struct ms_chains *chains, void *record, uint64_t key)
{
    struct ms_link *link = ms_chains_link(chains, record);
    struct ms_link **head = &chains->heads[ms_chains_home(key)];
    *link = (struct ms_link){*head, key};
    *head = link;
}

/* The record must be in the table. */
static inline void ms_chains_remove(struct ms_chains *chains, const void *record)
{
    const struct ms_link *link = ms_chains_link(chains, record);
    struct ms_link **place = &chains->heads[ms_chains_home(link->key)];
    while (*place != link) {
        place = &(*place)->next;
    }
    *place = link->next;
}

/* Walks over all records, in no order: returns the one after `record`. Null as the argument starts
 * the walk; null as the result ends it. */
static inline void *ms_chains_next(const struct ms_chains *chains, const void *record)
{
    const struct ms_link *link = record != NULL ? ms_chains_link(chains, record) : NULL;
    size_t home = link != NULL ? ms_chains_home(link->key) + 1 : 0;
    link = link != NULL ? link->next : NULL;
    while (link == NULL && home < sizeof chains->heads / sizeof chains->heads[0]) {
        link = chains->heads[home++];
    }
    return ms_chains_record(chains, link);
}

#endif
