/* SPDX-License-Identifier: Apache-2.0 */
/* Work of the device that is held for a while. */
#ifndef MEMSHIM_TESTS_PROCESS_HELD_WORK_H
#define MEMSHIM_TESTS_PROCESS_HELD_WORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include <cuda.h>

#include "say.h"

static atomic_bool released;
static long hold_ms = 300;

static inline void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static inline void CUDA_CB until_released(void *unused)
{
    (void)unused;
    while (!atomic_load(&released)) {
        nap_ms(1);
    }
}

static inline void *release(void *unused)
{
    nap_ms(hold_ms);
    atomic_store(&released, true);
    return unused;
}

/* What is queued on the stream from here on runs only after a thread of its own has let it. */
static inline pthread_t hold(CUstream stream)
{
    pthread_t thread;
    MUST(cuLaunchHostFunc(stream, until_released, NULL));
    MUST(pthread_create(&thread, NULL, release, NULL));
    return thread;
}

#endif
