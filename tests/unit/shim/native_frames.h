/* SPDX-License-Identifier: Apache-2.0 */
/* Functions whose frames look different, compiled with different flags: each calls `next`. */
#ifndef MEMSHIM_TESTS_NATIVE_FRAMES_H
#define MEMSHIM_TESTS_NATIVE_FRAMES_H

#include <stdint.h>

struct road {
    uint64_t (*next)(struct road *road);
    uint64_t random;
    int depth;
};

typedef uint64_t (*frame_t)(struct road *road);

#define NATIVE_FRAMES(flags)                            \
    uint64_t native_plain_##flags(struct road *road);   \
    uint64_t native_alloca_##flags(struct road *road);  \
    uint64_t native_aligned_##flags(struct road *road); \
    uint64_t native_large_##flags(struct road *road);   \
    uint64_t native_saving_##flags(struct road *road);

NATIVE_FRAMES(o0)
NATIVE_FRAMES(o2)
NATIVE_FRAMES(o2_pointers)
NATIVE_FRAMES(os)

#endif
