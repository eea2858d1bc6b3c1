/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum: four lanes of 64-bit words. */
#include "allocator/base/checksum.h"

#include <string.h>

#define MULTIPLIER 0x9e3779b97f4a7c15u
#define LANES      4u

static uint64_t fold(uint64_t lane, uint64_t word)
{
    lane ^= word;
    return ((lane << 29) | (lane >> 35)) * MULTIPLIER;
}

uint64_t ms_checksum(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t lanes[LANES] = {1, 2, 3, 4};
    uint64_t words[LANES];
    size_t left = bytes;

    while (left > 0) {
        size_t step = left < sizeof(words) ? left : sizeof(words);

        if (step < sizeof(words)) {
            memset(words, 0, sizeof(words));
        }
        memcpy(words, at, step);
        for (unsigned lane = 0; lane < LANES; lane++) {
            lanes[lane] = fold(lanes[lane], words[lane]);
        }
        at += step;
        left -= step;
    }

    uint64_t sum = fold(MULTIPLIER, bytes);

    for (unsigned lane = 0; lane < LANES; lane++) {
        sum = fold(sum, lanes[lane]);
    }
    return sum ? sum : 1;
}
