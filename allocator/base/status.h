/* SPDX-License-Identifier: Apache-2.0 */
/* The statuses of the allocator room, and how a device's own errors travel through it. */
#ifndef MEMSHIM_ALLOCATOR_BASE_STATUS_H
#define MEMSHIM_ALLOCATOR_BASE_STATUS_H

#include <stdint.h>

/* 0 is success. The pool acts only upon the negative values below. Positive values are the device's
 * own error codes (a CUresult on the real driver): the pool rolls back, hands them through unread,
 * and the caller returns them to the application. */
typedef int32_t ms_status_t;

enum {
    MS_OK = 0,
    MS_ERR_NO_MEMORY = -1,     /* the device, or the budget, has no room; the ladder goes on */
    MS_ERR_NOT_READY = -2,     /* queued work is not done */
    MS_ERR_NOT_OURS = -3,      /* the address or id is unknown here; the caller forwards the call */
    MS_ERR_INVALID = -4,       /* a wrong argument of the caller's (zero bytes, double free) */
    MS_ERR_NOT_SUPPORTED = -5, /* the device cannot do this at all */
    MS_ERR_LIMIT = -6          /* more than the block's holder may have */
};

#endif
