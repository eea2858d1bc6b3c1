/* SPDX-License-Identifier: Apache-2.0 */
/* What the measured programs share: the time of a loop, and how they say it. */
#ifndef MEMSHIM_TESTS_BENCH_TIMING_H
#define MEMSHIM_TESTS_BENCH_TIMING_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../process/programs/clock.h"

/* The count that the command line names, or this one. */
static inline uint64_t count_argument(int argc, char **argv, uint64_t otherwise)
{
    return argc > 1 ? strtoull(argv[1], NULL, 10) : otherwise;
}

/* One line for scripts/bench.sh: nanoseconds for one of them. */
static inline void say_each(uint64_t start_ns, uint64_t count)
{
    (void)printf("%.2f\n", (double)(now_ns() - start_ns) / (double)count);
    (void)fflush(stdout);
}

/* The same, and the end of the program at once: the report that memshim writes at an ordinary end
 * grows with the count, and is no part of what is measured. */
static inline _Noreturn void end_with_each(uint64_t start_ns, uint64_t count)
{
    say_each(start_ns, count);
    _exit(0);
}

#endif
