/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions and graphs have been launched before. Lock-free, of fixed size: when it is full,
 * what is new counts as seen, so that nothing is measured twice without end. */
#ifndef MEMSHIM_SHIM_DRIVER_SEEN_H
#define MEMSHIM_SHIM_DRIVER_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#define MS_SEEN_BITS   14u
#define MS_SEEN_SLOTS  (1u << MS_SEEN_BITS)
#define MS_SEEN_FACTOR 0x9e3779b1u

/* The table itself: a handle that lies in its home slot is known, without another look. */
extern _Atomic uintptr_t ms_seen_slots[MS_SEEN_SLOTS];
static inline uint32_t ms_seen_home(const void *handle)
{
    return (uint32_t)(uintptr_t)handle * MS_SEEN_FACTOR >> (32 - MS_SEEN_BITS);
}

/* True where the handle is known; otherwise it is from now on. */
bool ms_seen(const void *handle);

/* The handle is gone, and may be given to something else. */
void ms_unseen(const void *handle);

#endif
