/* SPDX-License-Identifier: Apache-2.0 */
/* The largest batch that fits, from runs with a few batches. Pure. */
#ifndef MEMSHIM_REPORT_MODEL_BATCH_SEARCH_H
#define MEMSHIM_REPORT_MODEL_BATCH_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_batch_point {
    uint64_t batch;       /* 1 or more; no two alike */
    uint64_t needs_bytes; /* with memory enough */
    bool fits;            /* the memory that there is */
};

struct ms_batch_bounds {
    uint64_t fits;    /* the largest that does; 0: none was seen */
    uint64_t too_big; /* the smallest that does not; 0: none was seen */
};

struct ms_batch_bounds ms_batch_bounds(const struct ms_batch_point *points, size_t count);

/* The next to try, of at least two points: the largest that fits, as a line through two of them
 * foretells it: through those next to the memory on both sides of it, or through the two nearest.
 * Always between what is known to fit and what is not. Where a line foretells nothing: the middle,
 * or twice the largest. 0: it is settled, or there are too few. */
uint64_t ms_batch_next(const struct ms_batch_point *points, size_t count, uint64_t room_bytes);

#endif
