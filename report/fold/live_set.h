/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory by key: blocks and tensors by id, other memory by address. */
#ifndef MEMSHIM_REPORT_FOLD_LIVE_SET_H
#define MEMSHIM_REPORT_FOLD_LIVE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/containers/table.h"

struct ms_live {
    uint64_t key; /* 0: none */
    uint64_t addr, bytes;
    uint64_t born_ns;
    uint32_t site;
    uint32_t born_phase, born_epoch; /* site_lifetimes.h */
    uint32_t allocation;             /* of a block or tensor: its number */
    uint8_t device;
    bool captured; /* born in an arena that a capture froze */
    uint32_t
        caller; /* on a worker of autograd: the site whose Python called autograd; 0: unknown */
};

struct ms_live_set {
    struct ms_table table; /* struct ms_live */
};

/* Number of slots, free ones (key 0) included: for walks over all. */
static inline size_t ms_live_room(const struct ms_live_set *set)
{
    return set->table.room;
}

static inline struct ms_live *ms_live_at(const struct ms_live_set *set, size_t index)
{
    return ms_table_at(&set->table, sizeof(struct ms_live), index);
}

/* The entry of the key (not 0); a new one is zero but for its key. Valid until the next call. Null:
 * there is no memory. */
struct ms_live *ms_live_add(struct ms_live_set *set, uint64_t key);

/* Removes the entry of the key, and copies it to `live`. False: there is none; 0 never has one. */
bool ms_live_take(struct ms_live_set *set, uint64_t key, struct ms_live *live);

/* Null: there is none. Valid until the next call. */
struct ms_live *ms_live_find(const struct ms_live_set *set, uint64_t key);

/* Removes all entries of the device. */
void ms_live_forget(struct ms_live_set *set, uint8_t device);

void ms_live_free(struct ms_live_set *set);

#endif
