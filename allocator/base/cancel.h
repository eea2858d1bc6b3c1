/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps pthread_cancel from ending a thread inside memshim. It ends threads where they wait, open,
 * read or write; one that holds a lock of ours, or owes something back, must go on. So all such
 * code stands between hold and let, and naps are taken by ms_nap. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CANCEL_H
#define MEMSHIM_ALLOCATOR_BASE_CANCEL_H

#include <pthread.h>
#include <stdint.h>

#include "allocator/base/clock.h"

/* Returns the state for ms_cancel_let; pairs may be nested. */
static inline int ms_cancel_hold(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void ms_cancel_let(int before)
{
    (void)pthread_setcancelstate(before, NULL);
}

/* A signal may end it early. */
static inline void ms_nap(uint64_t ns)
{
    const struct timespec span = {.tv_sec = (time_t)(ns / MS_NS_PER_S),
                                  .tv_nsec = (long)(ns % MS_NS_PER_S)};
    const int cancellation = ms_cancel_hold();
    (void)nanosleep(&span, NULL);
    ms_cancel_let(cancellation);
}

#endif
