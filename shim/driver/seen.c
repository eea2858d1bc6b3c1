/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing over atomic words. A deleted entry leaves a mark, so that probing goes on past
 * it. */
#include "shim/driver/seen.h"

#include <stdatomic.h>
#include <stdint.h>

#define SLOTS  MS_SEEN_SLOTS
#define PROBES 64u
#define LEFT   ((uintptr_t)1) /* no handle of the driver's is odd and this small */

_Atomic uintptr_t ms_seen_slots[SLOTS];

bool ms_seen(const void *handle)
{
    uintptr_t key = (uintptr_t)handle;
    uint32_t home = ms_seen_home(handle);
    for (uint32_t i = 0; i < PROBES; i++) {
        _Atomic uintptr_t *slot = &ms_seen_slots[(home + i) % SLOTS];
        uintptr_t found = atomic_load_explicit(slot, memory_order_relaxed);
        if (found == key) {
            return true;
        }
        if (found == 0) {
            if (atomic_compare_exchange_strong(slot, &found, key)) {
                return false;
            }
            if (found == key) {
                return true;
            }
        }
    }
    return true;
}

void ms_unseen(const void *handle)
{
    uintptr_t key = (uintptr_t)handle;
    uint32_t home = ms_seen_home(handle);
    for (uint32_t i = 0; i < PROBES; i++) {
        uintptr_t found = key;
        if (atomic_compare_exchange_strong(&ms_seen_slots[(home + i) % SLOTS], &found, LEFT) ||
            found == 0) {
            return;
        }
    }
}
