/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions and graphs have been launched before. Lock-free, of fixed size. When it is full,
 * new handles count as seen, so that they are not measured again and again. */
#ifndef MEMSHIM_SHIM_DRIVER_SEEN_H
#define MEMSHIM_SHIM_DRIVER_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#define MS_SEEN_BITS   14u
#define MS_SEEN_SLOTS  (1u << MS_SEEN_BITS)
#define MS_SEEN_FACTOR 0x9e3779b1u

/* The table. A handle in its home slot is known without further search. */
extern _Atomic uintptr_t ms_seen_slots[MS_SEEN_SLOTS];
static inline uint32_t ms_seen_home(const void *handle)
{
    return (uint32_t)(uintptr_t)handle * MS_SEEN_FACTOR >> (32 - MS_SEEN_BITS);
}

/* True if the handle is known. If not, it is known from now on. */
bool ms_seen(const void *handle);

/* The handle is gone, and may later name something else. */
void ms_unseen(const void *handle);

#endif
