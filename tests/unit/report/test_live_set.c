/* SPDX-License-Identifier: Apache-2.0 */
/* The set of what is live, against a plain array. */
#include <criterion/criterion.h>

#include "report/fold/live_set.h"
#include "synthetic.h"

enum { KEYS = 3000, TURNS = 40000 };

Test(live_set, keeps_what_was_added)
{
    struct ms_live_set set = {0};
    struct ms_live live;
    static uint64_t bytes[KEYS]; /* 0: not in */
    uint64_t random = 11;
    size_t used = 0;

    for (int turn = 0; turn < TURNS; turn++) {
        const size_t which = synthetic_random(&random) % KEYS;
        const uint64_t key = (which + 1) << 21; /* addresses are multiples of large powers of two */

        cr_assert_eq(ms_live_find(&set, key) != NULL, bytes[which] != 0);
        if (bytes[which] == 0) {
            bytes[which] = 1 + synthetic_random(&random) % 1000;
            ms_live_add(&set, key)->bytes = bytes[which];
            used++;
        } else {
            cr_assert(ms_live_take(&set, key, &live));
            cr_assert_eq(live.bytes, bytes[which]);
            bytes[which] = 0;
            used--;
        }
        cr_assert_eq(set.table.used, used);
    }
    cr_assert_leq(ms_live_room(&set), (size_t)8 * KEYS);
    ms_live_free(&set);
}

/* What has no address has the key 0: it must neither be found in an empty place nor be counted. */
Test(live_set, nothing_has_the_key_0)
{
    struct ms_live_set set = {0};
    struct ms_live live;

    cr_assert_not_null(ms_live_add(&set, 7));
    for (int i = 0; i < 3; i++) {
        cr_assert_null(ms_live_find(&set, 0));
        cr_assert_not(ms_live_take(&set, 0, &live));
    }
    cr_assert_eq(set.table.used, 1);
    ms_live_free(&set);
}
