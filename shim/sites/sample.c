/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling points lie on the line of a thread's bytes, mean_bytes apart on average, at exponential
 * distances. An allocation is taken if at least one point falls into it: with probability 1 -
 * exp(-bytes / mean). The distance to the next point does not depend on the past. So after an
 * allocation that was taken it is drawn anew, however many points fell into it. */
#include "shim/sites/sample.h"

#include <time.h>

#include "allocator/base/arithmetic.h"

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    uint64_t state;       /* of the generator; 0: nothing drawn yet in this thread */
    uint64_t until_bytes; /* to the next point, rounded up: sizes are whole */
} here;

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64). */
static uint64_t draw(void)
{
    uint64_t z = here.state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

/* Exponential, by von Neumann's comparison of uniforms. It is exact, and needs no logarithm, only
 * integers (arithmetic.h): draws count as uniforms in 2^-64. A falling run u1 > u2 > ... has an odd
 * length with probability exp(-u1); each failure before adds one mean to the result. */
static uint64_t exponential(uint64_t mean_bytes)
{
    for (uint64_t bytes = 0;; bytes = ms_plus(bytes, mean_bytes)) {
        const uint64_t first = draw();
        uint64_t last = first;
        bool odd = true;
        for (uint64_t next; (next = draw()) < last; last = next) {
            odd = !odd;
        }
        if (odd) {
            const uint64_t part = (uint64_t)((unsigned __int128)first * mean_bytes >> 64);
            return ms_plus(bytes, part + 1);
        }
    }
}

static void seed(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    here.state = (uint64_t)(uintptr_t)&here ^ (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
    here.state = draw() | 1;
}

bool ms_sample_takes(uint64_t bytes, uint64_t mean_bytes)
{
    if (here.state == 0) {
        seed();
        here.until_bytes = exponential(mean_bytes);
    }
    if (here.until_bytes > bytes) {
        here.until_bytes -= bytes;
        return false;
    }
    here.until_bytes = exponential(mean_bytes);
    return true;
}
