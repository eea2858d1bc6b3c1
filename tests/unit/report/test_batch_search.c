/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the largest batch, over needs that are known by hand. */
#include <criterion/criterion.h>

#include "report/fit/batch_search.h"

struct made {
    uint64_t fixed, each, step; /* needs: fixed + each x batch, rounded up to steps */
};

static uint64_t needs(const struct made *made, uint64_t batch)
{
    const uint64_t bytes = made->fixed + made->each * batch;

    return (bytes + made->step - 1) / made->step * made->step;
}

/* Runs it takes, and that it ends at the largest that fits. */
static void search(const struct made *made, uint64_t a, uint64_t b, uint64_t room, size_t most)
{
    struct ms_batch_point points[16];
    size_t count = 0;
    uint64_t next = a, truth = 0;

    while (needs(made, truth + 1) <= room) {
        truth++;
    }
    for (; next > 0; next = count == 1 ? b : ms_batch_next(points, count, room)) {
        cr_assert_lt(count, most);
        points[count++] =
            (struct ms_batch_point){next, needs(made, next), needs(made, next) <= room};
    }

    const struct ms_batch_bounds bounds = ms_batch_bounds(points, count);

    cr_assert_eq(bounds.fits, truth, "%lu for %lu", bounds.fits, truth);
    cr_assert_eq(bounds.too_big, truth + 1);
}

Test(batch_search, lines)
{
    search(&(struct made){1000, 10, 1}, 4, 8, 2000, 5);     /* both fit: 100 */
    search(&(struct made){1000, 10, 1}, 200, 400, 2000, 5); /* none does */
    search(&(struct made){1000, 10, 1}, 8, 400, 2000, 5);
    search(&(struct made){1000, 10, 1}, 100, 101, 2000, 3); /* it is among them */
}

Test(batch_search, needs_in_steps)
{
    search(&(struct made){1000, 10, 64}, 4, 8, 2000, 7);
    search(&(struct made){1000, 333, 512}, 1, 2, 90000, 7);
}

Test(batch_search, not_even_one)
{
    search(&(struct made){1000, 10, 1}, 4, 8, 1005, 6);
}

/* From any guess, `left` runs settle what lies within 2^left, wherever the truth is. */
Test(batch_search, within_reach)
{
    for (uint64_t high = 2; high <= 16; high++) {
        for (uint64_t truth = 0; truth < high; truth++) {
            for (uint64_t guess = 1; guess < high; guess++) {
                struct ms_batch_bounds bounds = {0, high};
                size_t left = 4;

                for (; bounds.too_big > bounds.fits + 1; left--) {
                    const uint64_t wish = guess <= bounds.fits     ? bounds.fits + 1
                                          : guess < bounds.too_big ? guess
                                                                   : bounds.too_big - 1;
                    const uint64_t batch = ms_batch_within_reach(wish, bounds, left);

                    cr_assert(left > 0 && batch > bounds.fits && batch < bounds.too_big);
                    *(batch <= truth ? &bounds.fits : &bounds.too_big) = batch;
                }
                cr_assert_eq(bounds.fits, truth);
            }
        }
    }
}

Test(batch_search, out_of_reach)
{
    cr_assert_eq(ms_batch_within_reach(20, (struct ms_batch_bounds){16, 0}, 4), 20);
    cr_assert_eq(ms_batch_within_reach(30, (struct ms_batch_bounds){16, 0}, 4), 24);
    cr_assert_eq(ms_batch_within_reach(40, (struct ms_batch_bounds){16, 0}, 4), 40);
    cr_assert_eq(ms_batch_within_reach(17, (struct ms_batch_bounds){16, 33}, 4), 17);
    cr_assert_eq(ms_batch_within_reach(17, (struct ms_batch_bounds){16, 32}, 3), 17);
    cr_assert_eq(ms_batch_within_reach(17, (struct ms_batch_bounds){16, 24}, 3), 20);
}

Test(batch_search, what_foretells_nothing)
{
    const struct ms_batch_point flat[] = {{4, 1000, true}, {8, 1000, true}};

    cr_assert_eq(ms_batch_next(flat, 2, 2000), 16);
    cr_assert_eq(ms_batch_next(flat, 1, 2000), 0);
}
