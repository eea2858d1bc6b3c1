/* SPDX-License-Identifier: Apache-2.0 */
/* Ids that are never used twice in this process. */
#include <stdatomic.h>

#include "allocator/base/ids.h"

uint64_t ms_ids_take(uint64_t count)
{
    static _Atomic uint64_t next = 1;
    return atomic_fetch_add_explicit(&next, count, memory_order_relaxed);
}
