/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table for hot paths, and for code that must not use the application's heap: open
 * addressing by 64-bit keys, in pages of its own.
 *
 * The caller passes the size of an entry, the same in every call. An entry begins with its key as a
 * uint64_t. The key 0 marks a free slot: no entry has it. Several entries may have one key; the
 * caller walks over them to find the right one. At least half of the slots are free, so every walk
 * ends.
 *
 * Not thread-safe. A pointer to an entry is good until the table changes. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CONTAINERS_TABLE_H
#define MEMSHIM_ALLOCATOR_BASE_CONTAINERS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Empty when zeroed. */
struct ms_table {
    void *slots;
    size_t room; /* slots: a power of two, or 0 */
    size_t used;
};

/* Makes an empty table with so many slots (a power of two). False: the host has no memory. */
bool ms_table_make(struct ms_table *table, size_t entry_bytes, size_t room);

/* Doubles the number of slots. False: the host has no memory, and nothing changed. */
bool ms_table_grow(struct ms_table *table, size_t entry_bytes);

/* Gives the pages back; the table is empty afterwards. */
void ms_table_free(struct ms_table *table, size_t entry_bytes);

/* The slot of that index, free or not. */
static inline void *ms_table_at(const struct ms_table *table, size_t entry_bytes, size_t index)
{
    return (char *)table->slots + index * entry_bytes;
}

static inline uint64_t ms_table_key(const void *slot)
{
    return *(const uint64_t *)slot;
}

/* The slot at which a search for the key begins. The hash spreads ids, which come in sequence, as
 * well as addresses, which are multiples of powers of two. */
static inline size_t ms_table_home(const struct ms_table *table, uint64_t key)
{
    const uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(mixed ^ mixed >> 32) & (table->room - 1);
}

/* The slot behind this one; the first is behind the last. */
static inline void *ms_table_behind(const struct ms_table *table, size_t entry_bytes,
                                    const void *slot)
{
    const char *behind = (const char *)slot + entry_bytes;

    return behind == (const char *)table->slots + table->room * entry_bytes ? table->slots
                                                                            : (void *)behind;
}

/* Searches from the slot on: the first entry of the key, or the free slot that ends the search. */
static inline void *ms_table_walk(const struct ms_table *table, size_t entry_bytes, uint64_t key,
                                  void *slot)
{
    while (ms_table_key(slot) != 0 && ms_table_key(slot) != key) {
        slot = ms_table_behind(table, entry_bytes, slot);
    }
    return slot;
}

/* The first entry of the key, or the free slot where it belongs. The table must have room. */
static inline void *ms_table_slot(const struct ms_table *table, size_t entry_bytes, uint64_t key)
{
    return ms_table_walk(table, entry_bytes, key,
                         ms_table_at(table, entry_bytes, ms_table_home(table, key)));
}

/* The next entry of this one's key, or a free slot. */
static inline void *ms_table_next(const struct ms_table *table, size_t entry_bytes,
                                  const void *slot)
{
    return ms_table_walk(table, entry_bytes, ms_table_key(slot),
                         ms_table_behind(table, entry_bytes, slot));
}

/* Null: no entry has the key. No entry has the key 0. */
static inline void *ms_table_find(const struct ms_table *table, size_t entry_bytes, uint64_t key)
{
    void *slot = table->room != 0 && key != 0 ? ms_table_slot(table, entry_bytes, key) : NULL;

    return slot != NULL && ms_table_key(slot) != 0 ? slot : NULL;
}

/* Makes room for one more entry. False: the host has no memory for it. */
static inline bool ms_table_reserve(struct ms_table *table, size_t entry_bytes)
{
    return 2 * table->used < table->room || ms_table_grow(table, entry_bytes);
}

/* Turns the free slot, where the key belongs, into an entry; the caller sets its other bytes. */
static inline void ms_table_enter(struct ms_table *table, void *slot, uint64_t key)
{
    *(uint64_t *)slot = key;
    table->used++;
}

/* How many slots lie from the home of the key to the slot. */
static inline size_t ms_table_distance(const struct ms_table *table, size_t entry_bytes,
                                       uint64_t key, const void *slot)
{
    const size_t at = (size_t)((const char *)slot - (const char *)table->slots) / entry_bytes;

    return (at - ms_table_home(table, key)) & (table->room - 1);
}

/* Removes the entry, and moves up those behind it that a search would miss now. */
static inline void ms_table_remove(struct ms_table *table, size_t entry_bytes, void *slot)
{
    void *behind = ms_table_behind(table, entry_bytes, slot);

    for (uint64_t key; (key = ms_table_key(behind)) != 0;
         behind = ms_table_behind(table, entry_bytes, behind)) {
        /* It may not move to a slot before its home. */
        if (ms_table_distance(table, entry_bytes, key, behind) >=
            ms_table_distance(table, entry_bytes, key, slot)) {
            memcpy(slot, behind, entry_bytes);
            slot = behind;
        }
    }
    *(uint64_t *)slot = 0;
    table->used--;
}

#endif
