/* SPDX-License-Identifier: Apache-2.0 */
/* One span for all pools; it never shrinks. */
#include "shim/device/addresses/reach.h"

struct ms_reach ms_reach = {.begin = UINT64_MAX};

void ms_reach_add(uint64_t addr, uint64_t bytes)
{
    uint64_t begin = atomic_load(&ms_reach.begin);
    while (addr < begin && !atomic_compare_exchange_weak(&ms_reach.begin, &begin, addr)) {
    }
    uint64_t end = atomic_load(&ms_reach.end);
    while (addr + bytes > end && !atomic_compare_exchange_weak(&ms_reach.end, &end, addr + bytes)) {
    }
}
