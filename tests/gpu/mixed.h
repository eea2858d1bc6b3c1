/* SPDX-License-Identifier: Apache-2.0 */
/* A range of two chunks side by side, each either of the device's memory or of the host's: what a
 * block looks like of which a part has been spilled. */
#ifndef MEMSHIM_TESTS_GPU_MIXED_H
#define MEMSHIM_TESTS_GPU_MIXED_H

#include <stdbool.h>

#include "tests/gpu/gpu.h"

enum location { ON_DEVICE, ON_HOST, LOCATIONS };

struct mixed {
    CUdeviceptr at;
    size_t each; /* bytes of a chunk; the second begins there */
    struct {
        CUmemGenericAllocationHandle chunk[LOCATIONS];
        bool mapped;
    } half[2];
};

/* Both halves, each with a chunk at either location, none mapped yet. False: the device cannot map
 * host memory. */
bool mixed_open(const struct gpu *gpu, struct mixed *mixed);
void mixed_close(struct mixed *mixed);

/* Maps that half's chunk of that location in the place of the other, with access. Contents stay
 * with their chunk. */
void mixed_show(const struct gpu *gpu, struct mixed *mixed, unsigned half, enum location location);

#define MIXED(mixed)    \
    struct mixed mixed; \
    NEEDS(mixed_open(gpu, &(mixed)), "the device cannot map host memory")

#endif
