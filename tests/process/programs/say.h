/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs share: saying what they saw, and stopping where a call must work. What
 * they print to standard output has to be the same with and without memshim. */
#ifndef MEMSHIM_TESTS_PROCESS_SAY_H
#define MEMSHIM_TESTS_PROCESS_SAY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* The call has to succeed (its result is 0); else the program ends with status 1. */
#define MUST(call)                                                                                \
    do {                                                                                          \
        int must_result = (int)(call);                                                            \
        if (must_result != 0) {                                                                   \
            (void)fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, must_result); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define EXPECT(condition)                                                                 \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* One line of the program's account: what was called and what it answered. */
#define SAY_RESULT(call) (void)printf("%s -> %d\n", #call, (int)(call))

/* FNV-1a, to say the contents of a buffer in a line. */
static inline uint64_t hash_bytes(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 1099511628211u;
    }
    return hash;
}

/* A small seeded generator, so that a run can be repeated. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
