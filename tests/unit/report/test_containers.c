/* SPDX-License-Identifier: Apache-2.0 */
/* What live memory lies in, by address. */
#include <criterion/criterion.h>

#include "report/read/containers.h"

static bool add(struct ms_containers *to, uint64_t addr, uint64_t bytes, bool pages)
{
    const struct ms_container container = {.addr = addr, .bytes = bytes, .pages = pages};

    return ms_containers_add(to, &container);
}

static void check(const struct ms_containers *containers, size_t count, const uint64_t ranges[][2])
{
    cr_assert_eq(ms_containers_count(containers), count);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(ms_containers_at(containers, i)->addr, ranges[i][0]);
        cr_assert_eq(ms_containers_at(containers, i)->bytes, ranges[i][1]);
    }
}

Test(containers, neighbouring_pages_are_one_and_are_cut_apart)
{
    struct ms_containers pages = {{0}};

    cr_assert(add(&pages, 300, 100, true));
    cr_assert(add(&pages, 100, 100, true));
    check(&pages, 2, (const uint64_t[][2]){{100, 100}, {300, 100}});
    cr_assert(add(&pages, 200, 100, true));
    check(&pages, 1, (const uint64_t[][2]){{100, 300}});
    cr_assert(ms_containers_cut(&pages, 150, 100));
    check(&pages, 2, (const uint64_t[][2]){{100, 50}, {250, 150}});
    cr_assert_not(ms_containers_cut(&pages, 140, 50), "a part of it is gone");
    cr_assert(ms_containers_cut(&pages, 250, 50));
    cr_assert(ms_containers_cut(&pages, 100, 50));
    check(&pages, 1, (const uint64_t[][2]){{300, 100}});
    cr_assert(ms_containers_cut(&pages, 300, 100));
    check(&pages, 0, NULL);
    ms_buffer_free(&pages.ranges);
}

Test(containers, blocks_stay_apart_and_never_overlap)
{
    struct ms_containers blocks = {{0}};
    struct ms_container removed;

    cr_assert(add(&blocks, 100, 100, false));
    cr_assert(add(&blocks, 200, 100, false));
    cr_assert_not(add(&blocks, 150, 10, false));
    cr_assert_not(add(&blocks, 50, 51, true));
    cr_assert_not(add(&blocks, 250, UINT64_MAX, false));
    cr_assert_not(add(&blocks, 400, 0, false));
    check(&blocks, 2, (const uint64_t[][2]){{100, 100}, {200, 100}});
    cr_assert_eq(ms_containers_find(&blocks, 199)->addr, 100);
    cr_assert_null(ms_containers_find(&blocks, 300));
    cr_assert_not(ms_containers_remove(&blocks, 150, &removed));
    cr_assert_not(ms_containers_cut(&blocks, 100, 100), "it is no page");
    cr_assert(ms_containers_remove(&blocks, 100, &removed));
    cr_assert_eq(removed.bytes, 100);
    check(&blocks, 1, (const uint64_t[][2]){{200, 100}});
    ms_buffer_free(&blocks.ranges);
}
