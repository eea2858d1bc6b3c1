/* SPDX-License-Identifier: Apache-2.0 */
/* The time that passes. */
#ifndef MEMSHIM_TESTS_PROCESS_CLOCK_H
#define MEMSHIM_TESTS_PROCESS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* On a clock that nobody sets. */
static inline uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
