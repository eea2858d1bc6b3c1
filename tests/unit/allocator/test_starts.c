/* SPDX-License-Identifier: Apache-2.0 */
/* The bitmap of block starts against a plain array. */
#include <criterion/criterion.h>
#include <string.h>

#include "allocator/space/starts.h"

enum { POSITIONS = 1 << 19 };

static bool plain[POSITIONS];

static bool plain_at_or_below(uint64_t position, uint64_t *out)
{
    for (uint64_t at = position + 1; at-- > 0;) {
        if (plain[at]) {
            *out = at;
            return true;
        }
    }
    return false;
}

Test(starts, predecessor_is_found_across_every_level)
{
    struct ms_starts starts;
    cr_assert(ms_starts_init(&starts, POSITIONS));
    uint64_t state = 7;
    uint64_t found = 0;
    cr_assert_not(ms_starts_at_or_below(&starts, POSITIONS - 1, &found));
    for (int round = 0; round < 4000; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (state >> 33) % POSITIONS;
        if (plain[at]) {
            ms_starts_clear(&starts, at);
        } else {
            ms_starts_set(&starts, at);
        }
        plain[at] = !plain[at];
        cr_assert_eq(ms_starts_test(&starts, at), plain[at]);
        uint64_t from = round % 5 == 0 ? at : (state >> 13) % POSITIONS;
        uint64_t expected = 0;
        bool is = plain_at_or_below(from, &expected);
        cr_assert_eq(ms_starts_at_or_below(&starts, from, &found), is);
        cr_assert(!is || found == expected, "%lu: %lu, not %lu", (unsigned long)from,
                  (unsigned long)found, (unsigned long)expected);
    }
    ms_starts_destroy(&starts);
}

Test(starts, one_far_below_is_found_and_cleared_summaries_hide_nothing)
{
    struct ms_starts starts;
    uint64_t found = 0;
    cr_assert(ms_starts_init(&starts, (uint64_t)1 << 31));
    ms_starts_set(&starts, 3);
    ms_starts_set(&starts, (uint64_t)1 << 30);
    cr_assert(ms_starts_at_or_below(&starts, ((uint64_t)1 << 31) - 1, &found));
    cr_assert_eq(found, (uint64_t)1 << 30);
    ms_starts_clear(&starts, (uint64_t)1 << 30);
    cr_assert(ms_starts_at_or_below(&starts, ((uint64_t)1 << 31) - 1, &found));
    cr_assert_eq(found, 3);
    cr_assert_not(ms_starts_at_or_below(&starts, 2, &found));
    ms_starts_destroy(&starts);
}
