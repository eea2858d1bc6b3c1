/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling points lie on the line of a thread's bytes, mean_bytes apart on average, at exponential
 * distances. An allocation is taken if at least one point falls into it: with probability 1 -
 * exp(-bytes / mean). The distance to the next point does not depend on the past. So after an
 * allocation that was taken it is drawn anew, however many points fell into it. */
#include "shim/sites/sample.h"

#include <time.h>

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    uint64_t state;     /* of the generator; 0: nothing drawn yet in this thread */
    double until_bytes; /* to the next point */
} here;

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64). */
static uint64_t draw(void)
{
    uint64_t z = here.state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

static double uniform(void)
{
    return (double)(draw() >> 11) * 0x1p-53;
}

/* Exponential with mean 1, by von Neumann's comparison of uniforms. It is exact, and needs no
 * logarithm, which would need the mathematical library. A falling run u1 > u2 > ... has an odd
 * length with probability exp(-u1); each failure before adds one to the result. */
static double exponential(void)
{
    for (double whole = 0;; whole += 1) {
        const double first = uniform();
        double last = first;
        bool odd = true;
        for (;;) {
            const double next = uniform();
            if (next >= last) {
                break;
            }
            last = next;
            odd = !odd;
        }
        if (odd) {
            return whole + first;
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
        here.until_bytes = exponential() * (double)mean_bytes;
    }
    if (here.until_bytes > (double)bytes) {
        here.until_bytes -= (double)bytes;
        return false;
    }
    here.until_bytes = exponential() * (double)mean_bytes;
    return true;
}
