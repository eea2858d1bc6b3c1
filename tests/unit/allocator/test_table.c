/* SPDX-License-Identifier: Apache-2.0 */
/* The common hash tables beside a list: any order of entering and removing, with many entries of
 * one key, and keys that crowd around one home. */
#include <criterion/criterion.h>

#include "allocator/base/containers/chains.h"
#include "allocator/base/containers/table.h"

#define MOST_ENTRIES 200
#define ROUNDS       100000

struct entry {
    uint64_t key;
    uint64_t other; /* by which entries of one key differ */
    uint64_t value;
};

static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static struct entry *find(const struct ms_table *table, uint64_t key, uint64_t other)
{
    struct entry *entry = ms_table_slot(table, sizeof(*entry), key);

    while (entry->key != 0 && entry->other != other) {
        entry = ms_table_next(table, sizeof(*entry), entry);
    }
    return entry;
}

/* Against `list`, of `count` entries. */
static void check(const struct ms_table *table, const struct entry *list, size_t count)
{
    size_t found = 0;

    cr_assert_eq(table->used, count);
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = find(table, list[i].key, list[i].other);

        cr_assert_eq(entry->key, list[i].key);
        cr_assert_eq(entry->value, list[i].value);
    }
    for (size_t i = 0; i < table->room; i++) {
        found += ms_table_key(ms_table_at(table, sizeof(struct entry), i)) != 0;
    }
    cr_assert_eq(found, count);
}

static void play(uint64_t keys, uint64_t stride)
{
    struct ms_table table = {0};
    static struct entry list[MOST_ENTRIES];
    size_t count = 0;

    cr_assert_null(ms_table_find(&table, sizeof(struct entry), 1));
    for (int round = 0; round < ROUNDS; round++) {
        if (count < MOST_ENTRIES && draw(2) == 0) {
            const uint64_t key = (draw(keys) + 1) * stride;
            struct entry *slot;

            cr_assert(ms_table_reserve(&table, sizeof(*slot)));
            slot = find(&table, key, (uint64_t)round);
            cr_assert_eq(slot->key, 0);
            ms_table_enter(&table, slot, key);
            slot->other = (uint64_t)round;
            slot->value = draw(UINT32_MAX);
            list[count++] = *slot;
        } else if (count > 0) {
            const size_t at = draw(count);

            ms_table_remove(&table, sizeof(struct entry),
                            find(&table, list[at].key, list[at].other));
            list[at] = list[--count];
        }
        if (round % 997 == 0) {
            check(&table, list, count);
        }
    }
    check(&table, list, count);
    cr_assert_null(ms_table_find(&table, sizeof(struct entry), 0));
    cr_assert_leq(table.room, (size_t)4 * MOST_ENTRIES);
    ms_table_free(&table, sizeof(struct entry));
    cr_assert_eq(table.room, 0);
}

Test(table, many_keys)
{
    play(100000, 1);
}

Test(table, addresses)
{
    play(1000, UINT64_C(2) << 20);
}

Test(table, few_keys_with_many_entries)
{
    play(5, 512);
}

/* --- chains ----------------------------------------------------------------------------------- */

#define RECORDS 3000 /* more than chains */

struct record {
    bool entered, met;
    struct ms_link link;
};

static void check_chains(const struct ms_chains *chains, struct record *records, uint64_t stride)
{
    struct record *met = NULL;

    for (size_t i = 0; i < RECORDS; i++) {
        records[i].met = false;
        cr_assert_eq(ms_chains_find(chains, i * stride), records[i].entered ? &records[i] : NULL);
    }
    while ((met = ms_chains_next(chains, met)) != NULL) {
        cr_assert(met->entered && !met->met);
        met->met = true;
    }
    for (size_t i = 0; i < RECORDS; i++) {
        cr_assert_eq(records[i].met, records[i].entered);
    }
}

static void play_chains(uint64_t stride)
{
    static struct record records[RECORDS];
    struct ms_chains chains = {.offset = offsetof(struct record, link)};

    memset(records, 0, sizeof(records));
    check_chains(&chains, records, stride);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t at = draw(RECORDS);

        if (records[at].entered) {
            ms_chains_remove(&chains, &records[at]);
        } else {
            ms_chains_enter(&chains, &records[at], at * stride);
        }
        records[at].entered = !records[at].entered;
        if (round % 4999 == 0) {
            check_chains(&chains, records, stride);
        }
    }
}

Test(chains, ids)
{
    play_chains(1);
}

Test(chains, addresses)
{
    play_chains(UINT64_C(2) << 20);
}

/* Two records of one key, as a handle that the driver hands out again before its first record is
 * gone: the younger one is found. */
Test(chains, the_youngest_of_a_key)
{
    struct record older = {0};
    struct record younger = {0};
    struct ms_chains chains = {.offset = offsetof(struct record, link)};

    ms_chains_enter(&chains, &older, 7);
    ms_chains_enter(&chains, &younger, 7);
    cr_assert_eq(ms_chains_find(&chains, 7), &younger);
    ms_chains_remove(&chains, &younger);
    cr_assert_eq(ms_chains_find(&chains, 7), &older);
}
