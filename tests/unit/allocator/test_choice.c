/* SPDX-License-Identifier: Apache-2.0 */
/* Which of two idle chunks is taken first. */
#include <criterion/criterion.h>

#include "allocator/backing/choice.h"

#define GRANULE UINT64_C(0x200000)
#define LONG    UINT64_C(0x100000000)  /* where a long reservation begins */
#define SHORT   UINT64_C(0x9000000000) /* and one of which little is used */

/* Of the long one 1,000 granules are in use, of the short one 100; now is 5,000. */
static struct ms_candidate at(ms_addr_t arena, uint64_t slot, uint64_t idle)
{
    return (struct ms_candidate){.addr = arena + slot * GRANULE,
                                 .bytes = GRANULE,
                                 .arena = arena,
                                 .arena_bytes = 20000 * GRANULE,
                                 .reach_bytes = (arena == LONG ? 1000 : 100) * GRANULE,
                                 .free_since = 5000 - idle,
                                 .now = 5000};
}

static bool first(const struct ms_choice *choice, struct ms_candidate a, struct ms_candidate b)
{
    return choice->rank(choice->ctx, &a) > choice->rank(choice->ctx, &b);
}

Test(choice, what_is_far_up_goes_first)
{
    cr_assert(first(&ms_choice_default, at(LONG, 900, 40), at(LONG, 500, 40)));
    cr_assert(first(&ms_choice_default, at(LONG, 900, 40), at(LONG, 400, 200)),
              "though it died later");
    cr_assert(first(&ms_choice_default, at(LONG, 999, 1), at(LONG, 998, 1)), "by one granule");
}

Test(choice, what_is_idle_for_long_goes_first)
{
    cr_assert(first(&ms_choice_default, at(LONG, 800, 400), at(LONG, 900, 40)));
    struct ms_candidate never = at(LONG, 800, 0);
    never.free_since = 0;
    cr_assert(first(&ms_choice_default, never, at(LONG, 900, 400)));
}

Test(choice, what_was_freed_just_now_is_judged_by_its_place)
{
    cr_assert(first(&ms_choice_default, at(LONG, 900, 2), at(LONG, 800, 30)));
    cr_assert(first(&ms_choice_default, at(SHORT, 90, 2), at(LONG, 800, 30)));
}

Test(choice, each_reservation_is_measured_by_what_is_used_of_it)
{
    cr_assert(first(&ms_choice_default, at(SHORT, 90, 40), at(LONG, 500, 40)));
    cr_assert(first(&ms_choice_highest, at(LONG, 500, 40), at(SHORT, 90, 40)));
}

Test(choice, of_blocks_only_the_time_counts)
{
    struct ms_candidate low = at(LONG, 1, 41);
    struct ms_candidate high = at(LONG, 999, 40);
    low.reach_bytes = high.reach_bytes = 0;
    cr_assert(first(&ms_choice_default, low, high));
}

Test(choice, numbers_do_not_run_over)
{
    struct ms_candidate last = at(LONG, 999, 0);
    struct ms_candidate old = at(LONG, 999, 0);
    last.now = old.now = (UINT64_C(1) << 40) + 1;
    last.free_since = last.now - 1;
    old.free_since = 1;
    cr_assert(first(&ms_choice_default, old, last));
    last.arena_bytes = last.reach_bytes = UINT64_C(1) << 47;
    last.addr = last.arena + last.reach_bytes - GRANULE;
    cr_assert(first(&ms_choice_default, last, at(LONG, 0, 1)));
}
