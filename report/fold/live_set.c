/* SPDX-License-Identifier: Apache-2.0 */
/* The live blocks and tensors by key: a hash table with linear probing. */
#include "report/fold/live_set.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_ROOM 4096u

/* Ids are given in a row, addresses are multiples of large powers of two: either is spread. */
static inline size_t home_of(const struct ms_live_set *set, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (set->room - 1);
}

/* Where the key is, or would be. The set has room. */
static inline struct ms_live *slot_of(const struct ms_live_set *set, uint64_t key)
{
    size_t at = home_of(set, key);

    while (set->slots[at].key != 0 && set->slots[at].key != key) {
        at = (at + 1) & (set->room - 1);
    }
    return &set->slots[at];
}

static bool grow(struct ms_live_set *set)
{
    struct ms_live_set larger = {.room = set->room ? 2 * set->room : FIRST_ROOM, .used = set->used};

    larger.slots = mmap(NULL, larger.room * sizeof(*larger.slots), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger.slots == MAP_FAILED) {
        return false;
    }
    for (size_t i = 0; i < set->room; i++) {
        if (set->slots[i].key != 0) {
            *slot_of(&larger, set->slots[i].key) = set->slots[i];
        }
    }
    ms_live_free(set);
    *set = larger;
    return true;
}

struct ms_live *ms_live_add(struct ms_live_set *set, uint64_t key)
{
    if (2 * set->used >= set->room && !grow(set)) {
        return NULL;
    }

    struct ms_live *slot = slot_of(set, key);

    set->used += slot->key == 0;
    *slot = (struct ms_live){.key = key};
    return slot;
}

struct ms_live *ms_live_find(const struct ms_live_set *set, uint64_t key)
{
    /* An empty place has the key 0, which is nobody's. */
    struct ms_live *slot = set->room && key ? slot_of(set, key) : NULL;

    return slot && slot->key == key ? slot : NULL;
}

/* Those that follow move up, so that no search ends at the hole. */
static void close_hole(struct ms_live_set *set, size_t hole)
{
    const size_t mask = set->room - 1;

    for (size_t at = (hole + 1) & mask; set->slots[at].key != 0; at = (at + 1) & mask) {
        const size_t home = home_of(set, set->slots[at].key);

        if (((at - home) & mask) >= ((at - hole) & mask)) {
            set->slots[hole] = set->slots[at];
            hole = at;
        }
    }
    set->slots[hole].key = 0;
}

bool ms_live_take(struct ms_live_set *set, uint64_t key, struct ms_live *live)
{
    struct ms_live *slot = ms_live_find(set, key);

    if (!slot) {
        return false;
    }
    *live = *slot;
    set->used--;
    close_hole(set, (size_t)(slot - set->slots));
    return true;
}

void ms_live_forget(struct ms_live_set *set, uint8_t device)
{
    struct ms_live_set others = {0};

    for (size_t i = 0; i < set->room; i++) {
        const struct ms_live *live = &set->slots[i];
        struct ms_live *kept =
            live->key && live->device != device ? ms_live_add(&others, live->key) : NULL;

        if (kept) {
            *kept = *live;
        }
    }
    ms_live_free(set);
    *set = others;
}

void ms_live_free(struct ms_live_set *set)
{
    if (set->slots) {
        munmap(set->slots, set->room * sizeof(*set->slots));
    }
    *set = (struct ms_live_set){0};
}
