/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table from 64-bit ids to numbers: open addressing, doubled as it fills. */
#include "allocator/base/numbers.h"

#include <stddef.h>
#include <stdlib.h>

#define FIRST_SLOTS 1024u

struct slot {
    uint64_t id;
    uint32_t number_1; /* + 1; 0: the slot is empty */
};

/* Open addressing, no more than half full; what follows a removed slot moves up. */
struct ms_numbers {
    struct slot *slots;
    uint64_t count, mask;
};

static uint64_t home(const struct ms_numbers *numbers, uint64_t id)
{
    const uint64_t mixed = id * UINT64_C(0x9e3779b97f4a7c15);

    return (mixed ^ (mixed >> 29)) & numbers->mask;
}

static struct slot *find(const struct ms_numbers *numbers, uint64_t id)
{
    uint64_t at = home(numbers, id);

    while (numbers->slots[at].number_1 != 0 && numbers->slots[at].id != id) {
        at = (at + 1) & numbers->mask;
    }
    return &numbers->slots[at];
}

struct ms_numbers *ms_numbers_new(void)
{
    struct ms_numbers *numbers = calloc(1, sizeof(*numbers));

    if (numbers) {
        numbers->mask = FIRST_SLOTS - 1;
        numbers->slots = calloc(FIRST_SLOTS, sizeof(*numbers->slots));
    }
    if (numbers && !numbers->slots) {
        free(numbers);
        return NULL;
    }
    return numbers;
}

void ms_numbers_delete(struct ms_numbers *numbers)
{
    if (numbers) {
        free(numbers->slots);
        free(numbers);
    }
}

static bool grow(struct ms_numbers *numbers)
{
    struct ms_numbers larger = {.mask = numbers->mask * 2 + 1};

    larger.slots = calloc(larger.mask + 1, sizeof(*larger.slots));
    if (!larger.slots) {
        return false;
    }
    for (uint64_t at = 0; at <= numbers->mask; at++) {
        if (numbers->slots[at].number_1 != 0) {
            *find(&larger, numbers->slots[at].id) = numbers->slots[at];
        }
    }
    free(numbers->slots);
    numbers->slots = larger.slots;
    numbers->mask = larger.mask;
    return true;
}

bool ms_numbers_put(struct ms_numbers *numbers, uint64_t id, uint32_t number)
{
    if (numbers->count * 2 > numbers->mask && !grow(numbers)) {
        return false;
    }

    struct slot *slot = find(numbers, id);

    numbers->count += slot->number_1 == 0;
    *slot = (struct slot){.id = id, .number_1 = number + 1};
    return true;
}

uint32_t ms_numbers_get(const struct ms_numbers *numbers, uint64_t id)
{
    return find(numbers, id)->number_1 - 1;
}

void ms_numbers_remove(struct ms_numbers *numbers, uint64_t id)
{
    struct slot *hole = find(numbers, id);

    if (hole->number_1 == 0) {
        return;
    }
    numbers->count--;

    uint64_t gap = (uint64_t)(hole - numbers->slots);

    for (uint64_t at = (gap + 1) & numbers->mask; numbers->slots[at].number_1 != 0;
         at = (at + 1) & numbers->mask) {
        const uint64_t wanted = home(numbers, numbers->slots[at].id);

        /* It may move up unless its home lies behind the gap. */
        if (((at - wanted) & numbers->mask) >= ((at - gap) & numbers->mask)) {
            numbers->slots[gap] = numbers->slots[at];
            gap = at;
        }
    }
    numbers->slots[gap].number_1 = 0;
}
