/* SPDX-License-Identifier: Apache-2.0 */
/* pthread_cancel ends a thread where it waits, opens, reads or writes: not while it holds a lock of
 * ours, or is to give something back. Around whatever does any of that. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CANCEL_H
#define MEMSHIM_ALLOCATOR_BASE_CANCEL_H

#include <pthread.h>

/* Returns what ms_cancel_let is to be given; pairs may stand inside each other. */
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
