/* SPDX-License-Identifier: Apache-2.0 */
/* Sorted tables of address ranges that do not overlap, with binary search.
 *
 * The entries are structs of one type, whose first two members are the range's address and its
 * length in bytes, eight bytes each (MS_RANGES_HOLD checks that). The owner of a table holds its
 * own lock around each call; only `count` may be read without it. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_RANGES_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_RANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_ranges {
    size_t entry_bytes;
    void *entries; /* sorted by address */
    size_t room;   /* capacity, in entries */
    _Atomic size_t count;
};

#define MS_RANGES_HOLD(type)                                                          \
    _Static_assert(offsetof(type, addr) == 0 && sizeof(((type *)0)->addr) == 8 &&     \
                       offsetof(type, bytes) == 8 && sizeof(((type *)0)->bytes) == 8, \
                   "an entry begins with its range")

/* The index of the first entry that ends after addr; the count if there is none. */
size_t ms_ranges_place(const struct ms_ranges *ranges, uint64_t addr);

/* Copies an entry in. False: no host memory; then nothing has changed. */
bool ms_ranges_insert(struct ms_ranges *ranges, const void *entry);

/* Removes `count` entries from index `first` on. */
void ms_ranges_remove(struct ms_ranges *ranges, size_t first, size_t count);

#endif
