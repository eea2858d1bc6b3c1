/* SPDX-License-Identifier: Apache-2.0 */
/* The largest batch that fits, from runs with a few batches. Pure. */
#ifndef MEMSHIM_REPORT_FIT_BATCH_SEARCH_H
#define MEMSHIM_REPORT_FIT_BATCH_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_batch_point {
    uint64_t batch;       /* 1 or more; all different */
    uint64_t needs_bytes; /* if there is enough memory */
    bool fits;            /* in the available memory */
};

struct ms_batch_bounds {
    uint64_t fits;    /* the largest that fits; 0: none was seen */
    uint64_t too_big; /* the smallest that does not fit; 0: none was seen */
};

struct ms_batch_bounds ms_batch_bounds(const struct ms_batch_point *points, size_t count);

/* The next batch to try, from at least two points: the largest that fits, on a line through the
 * points next to the memory on both sides, or through the two nearest. It always lies between those
 * known to fit and those known not to. If no line helps: the middle, or twice the largest. 0: the
 * answer is settled, or there are too few points. */
uint64_t ms_batch_next(const struct ms_batch_point *points, size_t count, uint64_t room_bytes);

/* Where to run instead of `guess`, which lies between the bounds, so that `left` runs (1 or more,
 * this one included) settle the answer whatever each of them shows: halves of 2^left batches.
 * `guess` itself where they cannot: the bounds are further apart, or none is known above and it is
 * that far away. */
uint64_t ms_batch_within_reach(uint64_t guess, struct ms_batch_bounds bounds, size_t left);

#endif
