/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of unsigned sizes that every room needs.
 *
 * What runs inside the program computes in integers alone: a program may have had each inexact
 * result of a floating-point operation end it by a signal (feenableexcept), and looks at the flags
 * that such operations leave (fetestexcept). A test reads it off the library's instructions. */
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

/* part / whole in so many units, to the nearest. whole is not 0; the result must fit 64 bits. */
static inline uint64_t ms_share(uint64_t part, uint64_t whole, uint64_t units)
{
    return (uint64_t)(((unsigned __int128)part * units + whole / 2) / whole);
}

/* Fractions from the user are counted in parts per billion. */
#define MS_PPB UINT64_C(1000000000)

/* So much of the bytes, rounded down. */
static inline uint64_t ms_of_ppb(uint64_t bytes, uint64_t ppb)
{
    return bytes / MS_PPB * ppb + bytes % MS_PPB * ppb / MS_PPB;
}

/* Fractions in a public struct and in the trace are doubles. These convert them by operations whose
 * results are exact: a fraction from 0 to 1 is a multiple of 2^-53. */
static inline double ms_ratio(uint64_t part, uint64_t whole)
{
    return (double)(int64_t)ms_share(part, whole, UINT64_C(1) << 53) * 0x1p-53;
}

static inline uint64_t ms_of_ratio(double ratio, uint64_t units)
{
    return ms_share((uint64_t)(int64_t)(ratio * 0x1p53), UINT64_C(1) << 53, units);
}

/* Rounds up to the next multiple of unit, a power of two. The result must fit 64 bits. */
static inline uint64_t ms_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) & ~(unit - 1);
}

#endif
