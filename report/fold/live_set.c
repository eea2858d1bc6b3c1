/* SPDX-License-Identifier: Apache-2.0 */
/* The live blocks and tensors by key. */
#include "report/fold/live_set.h"

struct ms_live *ms_live_add(struct ms_live_set *set, uint64_t key)
{
    struct ms_live *slot;

    if (!ms_table_reserve(&set->table, sizeof(*slot))) {
        return NULL;
    }
    slot = ms_table_slot(&set->table, sizeof(*slot), key);
    if (slot->key == 0) {
        ms_table_enter(&set->table, slot, key);
    }
    *slot = (struct ms_live){.key = key};
    return slot;
}

struct ms_live *ms_live_find(const struct ms_live_set *set, uint64_t key)
{
    return ms_table_find(&set->table, sizeof(struct ms_live), key);
}

bool ms_live_take(struct ms_live_set *set, uint64_t key, struct ms_live *live)
{
    struct ms_live *slot = ms_live_find(set, key);

    if (!slot) {
        return false;
    }
    *live = *slot;
    ms_table_remove(&set->table, sizeof(*slot), slot);
    return true;
}

void ms_live_forget(struct ms_live_set *set, uint8_t device)
{
    size_t i = 0;

    while (i < ms_live_room(set)) {
        struct ms_live *live = ms_live_at(set, i);

        if (live->key != 0 && live->device == device) {
            ms_table_remove(&set->table, sizeof(*live), live); /* another entry may have moved
                                                                  here */
        } else {
            i++;
        }
    }
}

void ms_live_free(struct ms_live_set *set)
{
    ms_table_free(&set->table, sizeof(struct ms_live));
}
