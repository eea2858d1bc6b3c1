/* SPDX-License-Identifier: Apache-2.0 */
/* How the hash table of table.h gets its memory, and grows. */
#include "allocator/base/containers/table.h"

#include "allocator/base/containers/pages.h"

#define FIRST_ROOM 64u

bool ms_table_make(struct ms_table *table, size_t entry_bytes, size_t room)
{
    *table = (struct ms_table){.slots = ms_pages_map_dense(room * entry_bytes), .room = room};
    if (table->slots == NULL) {
        table->room = 0;
    }
    return table->slots != NULL;
}

void ms_table_free(struct ms_table *table, size_t entry_bytes)
{
    if (table->slots != NULL) {
        ms_pages_unmap(table->slots, table->room * entry_bytes);
    }
    *table = (struct ms_table){0};
}

__attribute__((noinline, cold)) bool ms_table_grow(struct ms_table *table, size_t entry_bytes)
{
    struct ms_table larger;

    if (!ms_table_make(&larger, entry_bytes, table->room != 0 ? 2 * table->room : FIRST_ROOM)) {
        return false;
    }
    for (size_t i = 0; i < table->room; i++) {
        const void *old = ms_table_at(table, entry_bytes, i);
        const uint64_t key = ms_table_key(old);

        if (key != 0) {
            void *slot = ms_table_slot(&larger, entry_bytes, key);

            while (ms_table_key(slot) != 0) { /* another of the same key */
                slot = ms_table_next(&larger, entry_bytes, slot);
            }
            memcpy(slot, old, entry_bytes);
        }
    }
    larger.used = table->used;
    ms_table_free(table, entry_bytes);
    *table = larger;
    return true;
}
