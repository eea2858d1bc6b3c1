/* SPDX-License-Identifier: Apache-2.0 */
/* Hot roads whose instructions are counted (roads.py): ROAD(name) { what one of them does } makes
 * road_name(), a function that does it ROAD_EACH times, between whose beginning and end callgrind
 * counts. Each is walked once before, uncounted, so that tables are filled and stacks are known;
 * then several times, of which the median counts: now and then one of them pays for what is done
 * once in many. */
#ifndef MEMSHIM_TESTS_BENCH_ROADS_H
#define MEMSHIM_TESTS_BENCH_ROADS_H

#include <gnu/libc-version.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define ROAD_EACH  1600u /* twice that many events are packed in whole rounds */
#define ROAD_WALKS 5

#define ROAD(name)                                                    \
    static void one_##name(uint32_t i);                               \
    __attribute__((noinline, used)) static void road_##name(void)     \
    {                                                                 \
        for (uint32_t i = 0; i < ROAD_EACH; i++) {                    \
            one_##name(i);                                            \
        }                                                             \
    }                                                                 \
    __attribute__((noinline, used)) static void approach_##name(void) \
    {                                                                 \
        for (uint32_t i = 0; i < ROAD_EACH; i++) {                    \
            one_##name(i);                                            \
        }                                                             \
    }                                                                 \
    __attribute__((noinline)) static void one_##name(uint32_t i)

/* Says the name, in the order of callgrind's parts, of which each has ROAD_WALKS. */
#define WALK(name)                             \
    do {                                       \
        approach_##name();                     \
        for (int i = 0; i < ROAD_WALKS; i++) { \
            road_##name();                     \
        }                                      \
        (void)printf("%s\n", #name);           \
    } while (0)

#if defined(__clang__)
#    define ROADS_COMPILER "clang", __clang_major__, __clang_minor__
#else
#    define ROADS_COMPILER "gcc", __GNUC__, __GNUC_MINOR__
#endif

/* The same numbers in every run. */
static inline uint64_t roads_random(void)
{
    static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* First of all: what the counts depend on, beside the sources. */
static inline void say_world(void)
{
#if defined(__x86_64__)
    const char *machine = "x86-64";
#else
    const char *machine = "other";
#endif
    (void)printf("%s, %s %d.%d, glibc %s\n", machine, ROADS_COMPILER, gnu_get_libc_version());
}

/* At once: what is done at an ordinary end is no part of this. */
static inline _Noreturn void end_of_roads(void)
{
    (void)fflush(stdout);
    _exit(0);
}

#endif
