/* SPDX-License-Identifier: Apache-2.0 */
/* The host's clocks, in nanoseconds. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CLOCK_H
#define MEMSHIM_ALLOCATOR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MS_NS_PER_US UINT64_C(1000)
#define MS_NS_PER_S  UINT64_C(1000000000)

static inline uint64_t ms_clock_of_ns(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * MS_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Monotonic: for waits and durations. */
static inline uint64_t ms_clock_ns(void)
{
    return ms_clock_of_ns(CLOCK_MONOTONIC);
}

/* Monotonic, up to some milliseconds old, and costs a few ns: for reading at every allocation. */
static inline uint64_t ms_clock_coarse_ns(void)
{
    return ms_clock_of_ns(CLOCK_MONOTONIC_COARSE);
}

/* Since 1970. May jump when somebody sets the clock. */
static inline uint64_t ms_clock_unix_ns(void)
{
    return ms_clock_of_ns(CLOCK_REALTIME);
}

#endif
