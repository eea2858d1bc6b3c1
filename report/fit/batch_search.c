/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells a batch by a line through two runs. */
#include "report/fit/batch_search.h"

#include "allocator/base/arithmetic.h"

#define MOST (UINT64_C(1) << 32)

struct ms_batch_bounds ms_batch_bounds(const struct ms_batch_point *points, size_t count)
{
    struct ms_batch_bounds bounds = {0};

    for (size_t i = 0; i < count; i++) {
        if (points[i].fits && points[i].batch > bounds.fits) {
            bounds.fits = points[i].batch;
        }
        if (!points[i].fits && (bounds.too_big == 0 || points[i].batch < bounds.too_big)) {
            bounds.too_big = points[i].batch;
        }
    }
    return bounds;
}

/* The point nearest to the memory, except `other`. */
static const struct ms_batch_point *nearest(const struct ms_batch_point *points, size_t count,
                                            uint64_t room_bytes, const struct ms_batch_point *other)
{
    const struct ms_batch_point *found = NULL;

    for (size_t i = 0; i < count; i++) {
        if (&points[i] != other && (!found || ms_apart(points[i].needs_bytes, room_bytes) <
                                                  ms_apart(found->needs_bytes, room_bytes))) {
            found = &points[i];
        }
    }
    return found;
}

static const struct ms_batch_point *point_of(const struct ms_batch_point *points, size_t count,
                                             uint64_t batch)
{
    for (size_t i = 0; i < count; i++) {
        if (points[i].batch == batch) {
            return &points[i];
        }
    }
    return NULL;
}

uint64_t ms_batch_next(const struct ms_batch_point *points, size_t count, uint64_t room_bytes)
{
    const struct ms_batch_bounds bounds = ms_batch_bounds(points, count);
    const struct ms_batch_point *first = point_of(points, count, bounds.fits);
    const struct ms_batch_point *second = point_of(points, count, bounds.too_big);
    double slope, guess;

    if (count < 2 || (bounds.too_big > 0 && bounds.too_big <= bounds.fits + 1)) {
        return 0;
    }
    if (!first || !second) {
        first = nearest(points, count, room_bytes, NULL);
        second = nearest(points, count, room_bytes, first);
    }
    slope = ((double)second->needs_bytes - (double)first->needs_bytes) /
            ((double)second->batch - (double)first->batch);
    if (slope > 0) {
        guess = (double)first->batch + ((double)room_bytes - (double)first->needs_bytes) / slope;
    } else if (bounds.too_big > 0) {
        guess = ((double)bounds.fits + (double)bounds.too_big) / 2;
    } else {
        guess = 2 * (double)bounds.fits;
    }
    if (guess < (double)bounds.fits + 1) {
        guess = (double)bounds.fits + 1;
    }
    if (bounds.too_big > 0 && guess > (double)bounds.too_big - 1) {
        guess = (double)bounds.too_big - 1;
    }
    return guess < (double)MOST ? (uint64_t)guess : 0;
}

uint64_t ms_batch_within_reach(uint64_t guess, struct ms_batch_bounds bounds, size_t left)
{
    const uint64_t half = UINT64_C(1) << (left - 1);
    const bool open = bounds.too_big == 0;

    if (open ? guess >= bounds.fits + 2 * half : bounds.too_big - bounds.fits > 2 * half) {
        return guess;
    }
    if (guess > bounds.fits + half) {
        return bounds.fits + half;
    }
    return !open && guess + half < bounds.too_big ? bounds.too_big - half : guess;
}
