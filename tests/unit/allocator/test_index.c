/* SPDX-License-Identifier: Apache-2.0 */
/* The table of live blocks, and the free ranges by size, against the plainest thing that works. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/space/range.h"

enum { ENTRIES = 20000 };

static uint64_t state = 42;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

Test(index, finds_what_was_inserted_and_nothing_else)
{
    struct ms_block_index index;
    cr_assert(ms_index_init(&index));
    struct ms_range *range = calloc(ENTRIES, sizeof(*range));
    for (int k = 0; k < ENTRIES; k++) {
        range[k].addr = 0x700000000000u + (uint64_t)k * 512;
        ms_index_insert(&index, &range[k]);
    }
    cr_assert_eq(index.entries, ENTRIES);
    cr_assert_geq(index.buckets, ENTRIES, "the table grows with what it holds");
    for (int k = 0; k < ENTRIES; k++) {
        cr_assert_eq(ms_index_find(&index, range[k].addr), &range[k]);
        cr_assert_null(ms_index_find(&index, range[k].addr + 8));
    }
    for (int k = 0; k < ENTRIES; k += 2) {
        cr_assert_eq(ms_index_take(&index, range[k].addr), &range[k]);
        cr_assert_null(ms_index_take(&index, range[k].addr));
    }
    for (int k = 0; k < ENTRIES; k++) {
        cr_assert_eq(ms_index_find(&index, range[k].addr), k % 2 == 0 ? NULL : &range[k]);
    }
    cr_assert_eq(index.entries, ENTRIES / 2);
    ms_index_destroy(&index);
    free(range);
}

/* The smallest size of at least `bytes` among those present; 0 where there is none. */
static uint64_t plain_best(const struct ms_range *range, const bool *present, uint64_t bytes)
{
    uint64_t best = 0;
    for (int k = 0; k < 512; k++) {
        if (present[k] && range[k].bytes >= bytes && (best == 0 || range[k].bytes < best)) {
            best = range[k].bytes;
        }
    }
    return best;
}

Test(bins, best_fit_is_exact_at_every_size)
{
    static struct ms_bins bins;
    static struct ms_range range[512];
    static bool present[512];
    memset(&bins, 0, sizeof(bins));
    for (int round = 0; round < 50000; round++) {
        unsigned k = (unsigned)(draw() % 512);
        if (present[k]) {
            ms_bins_remove(&bins, &range[k]);
        } else {
            /* Sizes on both sides of the limit between lists and tree, and at it. */
            uint64_t units = draw() % 4 == 0 ? draw() % 8192 + 1 : draw() % 64 + 2016;
            range[k].addr = (k + 1) * (uint64_t)0x10000000;
            range[k].bytes = units * 512;
            ms_bins_insert(&bins, &range[k]);
        }
        present[k] = !present[k];
        uint64_t wanted = (draw() % 8192 + 1) * 512;
        const struct ms_range *best = ms_bins_best(&bins, wanted);
        cr_assert_eq(best == NULL ? 0 : best->bytes, plain_best(range, present, wanted));
        const struct ms_range *largest = ms_bins_largest(&bins);
        uint64_t most = 0;
        for (int j = 0; j < 512; j++) {
            most = present[j] && range[j].bytes > most ? range[j].bytes : most;
        }
        cr_assert_eq(largest == NULL ? 0 : largest->bytes, most);
    }
}
