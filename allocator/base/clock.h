/* SPDX-License-Identifier: Apache-2.0 */
/* The host's clocks, in nanoseconds. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CLOCK_H
#define MEMSHIM_ALLOCATOR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MS_NS_PER_S UINT64_C(1000000000)

static inline uint64_t ms_clock_of_ns(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * MS_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Never goes back: for waits and lengths of time. */
static inline uint64_t ms_clock_ns(void)
{
    return ms_clock_of_ns(CLOCK_MONOTONIC);
}

/* Likewise, some milliseconds old and a few ns in cost: for what is asked at every allocation. */
static inline uint64_t ms_clock_coarse_ns(void)
{
    return ms_clock_of_ns(CLOCK_MONOTONIC_COARSE);
}

/* Since 1970. It may be set while the program runs. */
static inline uint64_t ms_clock_unix_ns(void)
{
    return ms_clock_of_ns(CLOCK_REALTIME);
}

#endif
