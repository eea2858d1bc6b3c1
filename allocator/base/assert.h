/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions of invariants, in three tiers:
 *
 *   off       in installed builds: an assertion evaluates nothing and costs nothing
 *   cheap     MS_ASSERT: a comparison or two, each time
 *   walkers   MS_ASSERT_WALK: a walk over a whole structure. Each place walks at its first, second,
 *             fourth, eighth ... time, so that long tests stay fast
 *
 * MEMSHIM_CHECKS turns the second and third on: in the build that tests run on, and in builds with
 * a sanitizer. A failed assertion prints its place and ends the process. */
#ifndef MEMSHIM_ALLOCATOR_BASE_ASSERT_H
#define MEMSHIM_ALLOCATOR_BASE_ASSERT_H

#ifdef MEMSHIM_CHECKS

#    include <stdatomic.h>

/* Writes the message of a failed check to standard error. */
void ms_check_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the process after such messages, and says how to run without memshim (way_out.h). */
_Noreturn void ms_check_end(void);

/* Reports the failed assertion and ends the process. */
_Noreturn void ms_assert_failed(const char *what, const char *file, int line);

#    define MS_ASSERT(holds) ((holds) ? (void)0 : ms_assert_failed(#    holds, __FILE__, __LINE__))

#    define MS_ASSERT_WALK(holds)                          \
        do {                                               \
            static _Atomic unsigned times;                 \
            unsigned before = atomic_fetch_add(&times, 1); \
            if ((before & (before + 1)) == 0) {            \
                MS_ASSERT(holds);                          \
            }                                              \
        } while (0)

#else

#    define MS_ASSERT(holds)      ((void)sizeof(holds))
#    define MS_ASSERT_WALK(holds) ((void)sizeof(holds))

#endif

#endif
