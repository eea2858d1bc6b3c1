/* SPDX-License-Identifier: Apache-2.0 */
/* The host's clock, for waits that are bounded. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CLOCK_H
#define MEMSHIM_ALLOCATOR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ms_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
