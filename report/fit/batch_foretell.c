/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells a batch by replaying its requests. */
#include "report/fit/batch_foretell.h"

#include <stdlib.h>

#include "allocator/base/arithmetic.h"
#include "report/replay/course.h"
#include "report/replay/replay.h"
#include "report/replay/torch_alone.h"

#define MOST  (UINT64_C(1) << 32)
#define GRAIN (UINT64_C(2) << 20) /* the driver's grain: PyTorch never asks for less */

static size_t ranks_of(const struct ms_batch_run *run)
{
    return run->courses.bytes / sizeof(struct ms_batch_course);
}

static struct ms_batch_course *rank_at(const struct ms_batch_run *run, size_t index)
{
    return (struct ms_batch_course *)(void *)run->courses.at + index;
}

static struct ms_recording *course_at(const struct ms_batch_run *run, size_t index)
{
    return rank_at(run, index)->course;
}

/* Sorts by rank, because the processes of each run begin in another order. */
bool ms_batch_run_add(struct ms_batch_run *run, int32_t rank, struct ms_recording *course)
{
    size_t at = ranks_of(run);

    if (!ms_buffer_extend(&run->courses, sizeof(struct ms_batch_course))) {
        return false;
    }
    for (; at > 0 && rank_at(run, at - 1)->rank > rank; at--) {
        *rank_at(run, at) = *rank_at(run, at - 1);
    }
    *rank_at(run, at) = (struct ms_batch_course){rank, course};
    return true;
}

void ms_batch_run_free(struct ms_batch_run *run)
{
    for (size_t i = 0; i < ranks_of(run); i++) {
        ms_recording_delete(course_at(run, i));
    }
    ms_buffer_free(&run->courses);
    run->courses = (struct ms_buffer){0};
}

/* ---- one batch ---- */

enum outcome { FITS, DOES_NOT, UNKNOWN };

static enum outcome replay(const struct ms_recording *course, uint64_t cap_bytes)
{
    struct ms_torch_alone alone;

    ms_torch_alone_run(course, cap_bytes, false, &alone);
    return alone.host_memory ? UNKNOWN : alone.failed ? DOES_NOT : FITS;
}

static bool have_the_same_ranks(const struct ms_batch_run *a, const struct ms_batch_run *b)
{
    bool same = ranks_of(a) == ranks_of(b);

    for (size_t i = 0; same && i < ranks_of(a); i++) {
        same = rank_at(a, i)->rank == rank_at(b, i)->rank;
    }
    return same;
}

/* All ranks must fit. */
static enum outcome foretell_by(const struct ms_batch_run *near, const struct ms_batch_run *other,
                                uint64_t batch, uint64_t cap_bytes)
{
    enum outcome outcome = have_the_same_ranks(near, other) ? FITS : UNKNOWN;

    for (size_t i = 0; outcome == FITS && i < ranks_of(near); i++) {
        struct ms_recording *foretold = ms_course_foretell(
            course_at(near, i), near->batch, course_at(other, i), other->batch, batch);

        outcome = foretold ? replay(foretold, cap_bytes) : UNKNOWN;
        ms_recording_delete(foretold);
    }
    return outcome;
}

static const struct ms_batch_run *nearest(const struct ms_batch_run *runs, size_t count,
                                          uint64_t batch)
{
    const struct ms_batch_run *found = runs;

    for (size_t i = 1; i < count; i++) {
        if (ms_apart(runs[i].batch, batch) < ms_apart(found->batch, batch)) {
            found = &runs[i];
        }
    }
    return found;
}

/* PyTorch may act differently for a larger batch; a run that acts the same is the better
 * companion. */
static bool does_the_same(const struct ms_batch_run *a, const struct ms_batch_run *b)
{
    return ranks_of(a) > 0 && ranks_of(b) > 0 &&
           ms_recording_count(course_at(a, 0)) == ms_recording_count(course_at(b, 0));
}

/* Prefers runs that act the same. Of them the nearest on the other side of the batch, or else the
 * farthest one, because sizes are rounded. */
static int merit(const struct ms_batch_run *near, const struct ms_batch_run *run, uint64_t batch)
{
    return 2 * does_the_same(near, run) + ((run->batch > batch) != (near->batch > batch));
}

static const struct ms_batch_run *companion(const struct ms_batch_run *runs, size_t count,
                                            const struct ms_batch_run *near, uint64_t batch)
{
    const struct ms_batch_run *best = NULL;

    for (size_t i = 0; i < count; i++) {
        const int mine = merit(near, &runs[i], batch),
                  so_far = best ? merit(near, best, batch) : -1;
        const bool nearer = best && ms_apart(runs[i].batch, batch) < ms_apart(best->batch, batch);

        if (&runs[i] != near && (mine > so_far || (mine == so_far && nearer == (mine % 2 == 1)))) {
            best = &runs[i];
        }
    }
    return best;
}

static enum outcome foretell(const struct ms_batch_run *runs, size_t count, uint64_t batch,
                             uint64_t cap_bytes)
{
    const struct ms_batch_run *near = nearest(runs, count, batch);

    return foretell_by(near, companion(runs, count, near, batch), batch, cap_bytes);
}

/* ---- the search ---- */

/* The largest batch that is foretold to fit, at least `low`; 0: nothing can be foretold. high: 0,
 * or a batch that does not fit. */
static uint64_t largest(const struct ms_batch_run *runs, size_t count, uint64_t low, uint64_t high,
                        uint64_t cap_bytes)
{
    uint64_t step = 1;

    while (high == 0 || high - low > 1) {
        const uint64_t batch = high > 0 ? low + (high - low) / 2 : low + step;
        const enum outcome outcome =
            batch < MOST ? foretell(runs, count, batch, cap_bytes) : UNKNOWN;

        if (outcome == UNKNOWN) {
            return 0;
        }
        *(outcome == FITS ? &low : &high) = batch;
        step *= 2;
    }
    return low;
}

/* The least memory with which it completes, in units of the driver's grain. */
static uint64_t least_bytes(const struct ms_recording *course)
{
    struct ms_torch_alone alone;
    uint64_t low = 0, high;

    ms_torch_alone_run(course, MS_REPLAY_AMPLE_BYTES, false, &alone);
    high = alone.peak_charged_bytes;
    while (high - low > GRAIN) {
        const uint64_t middle = low + (high - low) / 2;

        *(replay(course, middle) == FITS ? &high : &low) = middle;
    }
    return high;
}

static uint64_t by_line(const struct ms_batch_run *runs, size_t count, uint64_t cap_bytes)
{
    struct ms_batch_point *points = calloc(count, sizeof(*points));
    uint64_t next = 0;

    for (size_t i = 0; points && i < count; i++) {
        points[i] = (struct ms_batch_point){.batch = runs[i].batch, .fits = runs[i].fits};
        for (size_t rank = 0; rank < ranks_of(&runs[i]); rank++) {
            const uint64_t bytes = least_bytes(course_at(&runs[i], rank));

            points[i].needs_bytes = bytes > points[i].needs_bytes ? bytes : points[i].needs_bytes;
        }
    }
    if (points) {
        next = ms_batch_next(points, count, cap_bytes);
    }
    free(points);
    return next;
}

struct ms_batch_bounds ms_batch_runs_bounds(const struct ms_batch_run *runs, size_t count)
{
    struct ms_batch_bounds bounds = {0};

    for (size_t i = 0; i < count; i++) {
        const struct ms_batch_point point = {.batch = runs[i].batch, .fits = runs[i].fits};
        const struct ms_batch_bounds one = ms_batch_bounds(&point, 1);

        bounds.fits = one.fits > bounds.fits ? one.fits : bounds.fits;
        if (one.too_big > 0 && (bounds.too_big == 0 || one.too_big < bounds.too_big)) {
            bounds.too_big = one.too_big;
        }
    }
    return bounds;
}

/* By how much less the larger batch had live, where its largest tensor was smaller, too. */
static uint64_t drop(const struct ms_batch_run *smaller, const struct ms_batch_run *larger)
{
    return smaller->batch < larger->batch && larger->largest_bytes > 0 &&
                   larger->largest_bytes < smaller->largest_bytes &&
                   larger->live_bytes < smaller->live_bytes
               ? smaller->live_bytes - larger->live_bytes
               : 0;
}

bool ms_batch_runs_contrast(const struct ms_batch_run *runs, size_t count,
                            struct ms_batch_contrast *contrast)
{
    uint64_t most = 0;

    for (size_t i = 0; i < count * count; i++) {
        const struct ms_batch_run *smaller = &runs[i / count], *larger = &runs[i % count];

        if (drop(smaller, larger) > most) {
            most = drop(smaller, larger);
            *contrast = (struct ms_batch_contrast){smaller->batch, smaller->live_bytes,
                                                   larger->batch, larger->live_bytes};
        }
    }
    return most > 0;
}

static const struct ms_batch_run *largest_below(const struct ms_batch_run *runs, size_t count,
                                                uint64_t batch)
{
    const struct ms_batch_run *found = NULL;

    for (size_t i = 0; i < count; i++) {
        if (runs[i].batch < batch && (!found || runs[i].batch > found->batch)) {
            found = &runs[i];
        }
    }
    return found;
}

bool ms_batch_runs_level(const struct ms_batch_run *runs, size_t count,
                         struct ms_batch_contrast *level)
{
    const struct ms_batch_run *larger = largest_below(runs, count, UINT64_MAX);
    const struct ms_batch_run *smaller = larger ? largest_below(runs, count, larger->batch) : NULL;

    if (!smaller || larger->live_bytes == 0 || smaller->live_bytes != larger->live_bytes ||
        smaller->largest_bytes != larger->largest_bytes) {
        return false;
    }
    *level = (struct ms_batch_contrast){smaller->batch, smaller->live_bytes, larger->batch,
                                        larger->live_bytes};
    return true;
}

/* Whether nothing is left to search for. A batch that is padded does not grow by half. */
static bool is_over(const struct ms_batch_run *runs, size_t count, struct ms_batch_bounds bounds)
{
    struct ms_batch_contrast found;

    return (bounds.too_big > 0 && bounds.too_big <= bounds.fits + 1) ||
           ms_batch_runs_contrast(runs, count, &found) ||
           (bounds.too_big == 0 && ms_batch_runs_level(runs, count, &found) &&
            2 * found.larger >= 3 * found.smaller);
}

/* found: what is foretold; 0: nothing can be. */
static uint64_t next(const struct ms_batch_run *runs, size_t count, struct ms_batch_bounds bounds,
                     const struct ms_batch_limits *limits, uint64_t found)
{
    const size_t left = limits->most - count, chosen = count - limits->given;
    const bool exceeded = bounds.too_big == 0 && chosen > 0;
    uint64_t guess = found;

    if (exceeded && (found != bounds.fits || chosen > 1)) {
        guess = bounds.fits + (UINT64_C(1) << (left - 1)); /* nothing foretells what fits */
    } else if (found == 0) {
        guess = by_line(runs, count, limits->cap_bytes);
    } else if (found == bounds.fits) {
        guess = found + 1;
    }
    return guess > 0 ? ms_batch_within_reach(guess, bounds, left) : 0;
}

uint64_t ms_batch_foretell(const struct ms_batch_run *runs, size_t count,
                           const struct ms_batch_limits *limits)
{
    const struct ms_batch_bounds bounds = ms_batch_runs_bounds(runs, count);
    uint64_t found;

    if (count < 2 || is_over(runs, count, bounds)) {
        return 0;
    }
    found = largest(runs, count, bounds.fits, bounds.too_big, limits->cap_bytes);
    if (found == 0 && bounds.fits == 0 && bounds.too_big > 0 &&
        foretell(runs, count, 1, limits->cap_bytes) == DOES_NOT) {
        return 1; /* not even a batch of 1 is foretold to fit */
    }
    return next(runs, count, bounds, limits, found);
}
