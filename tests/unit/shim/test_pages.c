/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's own allocator takes, by the pages that allocations touch, and whose it is. */
#include <criterion/criterion.h>

#include "shim/device/addresses/pages.h"

#define PAGE MS_DRIVER_SLAB_BYTES
#define BASE (1ULL << 40)

enum { ONE = 5, OTHER = 6 };

Test(pages, a_page_is_taken_by_the_first_and_goes_with_the_last)
{
    cr_assert_eq(ms_pages_touch(BASE, 512, ONE), PAGE);
    cr_assert_eq(ms_pages_touch(BASE + 512, 512, ONE), 0);

    struct ms_pages_left left = ms_pages_leave(BASE, 512, ONE);
    cr_assert_eq(left.own_bytes, 0);
    cr_assert_eq(left.others, 0);

    left = ms_pages_leave(BASE + 512, 512, ONE);
    cr_assert_eq(left.own_bytes, PAGE);
    cr_assert_eq(left.others, 0);
}

/* The site that was charged gets its page back, whoever leaves it last. */
Test(pages, a_page_goes_to_the_site_that_was_charged_for_it)
{
    cr_assert_eq(ms_pages_touch(BASE, PAGE + 512, ONE), 2 * PAGE);
    cr_assert_eq(ms_pages_touch(BASE + PAGE + 512, 2 * PAGE, OTHER), 2 * PAGE);

    struct ms_pages_left left = ms_pages_leave(BASE, PAGE + 512, ONE);
    cr_assert_eq(left.own_bytes, PAGE, "the second is touched still");
    cr_assert_eq(left.others, 0);

    left = ms_pages_leave(BASE + PAGE + 512, 2 * PAGE, OTHER);
    cr_assert_eq(left.own_bytes, 2 * PAGE);
    cr_assert_eq(left.others, 1);
    cr_assert_eq(left.other_sites[0], ONE);
}

Test(pages, nothing_takes_nothing)
{
    cr_assert_eq(ms_pages_touch(BASE, 0, ONE), 0);
    cr_assert_eq(ms_pages_leave(BASE, 0, ONE).own_bytes, 0);
}
