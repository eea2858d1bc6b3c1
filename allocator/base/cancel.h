/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps pthread_cancel from ending a thread inside memshim. It ends threads where they wait, open,
 * read or write; one that holds a lock of ours, or owes something back, must go on. Use the pair
 * around all such code. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CANCEL_H
#define MEMSHIM_ALLOCATOR_BASE_CANCEL_H

#include <pthread.h>

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

#endif
