/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of unsigned sizes that every room needs. */
#ifndef MEMSHIM_ALLOCATOR_BASE_ARITHMETIC_H
#define MEMSHIM_ALLOCATOR_BASE_ARITHMETIC_H

#include <stdint.h>

static inline uint64_t ms_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t ms_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* a + b; the largest number where that is more, as in a damaged trace. */
static inline uint64_t ms_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* a - b; 0 where b is larger. */
static inline uint64_t ms_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* The difference, whichever is larger. */
static inline uint64_t ms_apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Rounds up to the next multiple of unit, a power of two. The result must fit 64 bits. */
static inline uint64_t ms_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) & ~(unit - 1);
}

#endif
