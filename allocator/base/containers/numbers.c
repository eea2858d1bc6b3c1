/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers by 64-bit ids. */
#include "allocator/base/containers/numbers.h"

#include <stddef.h>
#include <stdlib.h>

#include "allocator/base/containers/table.h"

struct number_entry {
    uint64_t id;
    uint32_t number;
};

struct ms_numbers {
    struct ms_table table;   /* struct number_entry */
    uint32_t number_of_zero; /* number of the id 0, which the table cannot hold */
};

struct ms_numbers *ms_numbers_new(void)
{
    struct ms_numbers *numbers = calloc(1, sizeof(*numbers));

    if (numbers) {
        numbers->number_of_zero = MS_NUMBER_NONE;
    }
    return numbers;
}

void ms_numbers_delete(struct ms_numbers *numbers)
{
    if (numbers) {
        ms_table_free(&numbers->table, sizeof(struct number_entry));
        free(numbers);
    }
}

bool ms_numbers_put(struct ms_numbers *numbers, uint64_t id, uint32_t number)
{
    struct number_entry *entry;

    if (id == 0) {
        numbers->number_of_zero = number;
        return true;
    }
    if (!ms_table_reserve(&numbers->table, sizeof(*entry))) {
        return false;
    }
    entry = ms_table_slot(&numbers->table, sizeof(*entry), id);
    if (entry->id == 0) {
        ms_table_enter(&numbers->table, entry, id);
    }
    entry->number = number;
    return true;
}

uint32_t ms_numbers_get(const struct ms_numbers *numbers, uint64_t id)
{
    const struct number_entry *entry = ms_table_find(&numbers->table, sizeof(*entry), id);

    if (id == 0) {
        return numbers->number_of_zero;
    }
    return entry ? entry->number : MS_NUMBER_NONE;
}

void ms_numbers_remove(struct ms_numbers *numbers, uint64_t id)
{
    struct number_entry *entry = ms_table_find(&numbers->table, sizeof(*entry), id);

    if (id == 0) {
        numbers->number_of_zero = MS_NUMBER_NONE;
    }
    if (entry) {
        ms_table_remove(&numbers->table, sizeof(*entry), entry);
    }
}
