/* Open addressing over atomic words. A slot that was left keeps a mark, so that chains through it
 * hold. */
#include "shim/serve/seen.h"

#include <stdatomic.h>
#include <stdint.h>

#define SLOTS  16384u
#define PROBES 64u
#define LEFT   ((uintptr_t)1) /* no handle of the driver's is odd and this small */

static _Atomic uintptr_t slots[SLOTS];

static uint32_t home_of(uintptr_t handle)
{
    return (uint32_t)((handle * 0x9e3779b97f4a7c15ULL) >> 50) % SLOTS;
}

bool ms_seen(const void *handle)
{
    uintptr_t key = (uintptr_t)handle;
    uint32_t home = home_of(key);
    for (uint32_t i = 0; i < PROBES; i++) {
        _Atomic uintptr_t *slot = &slots[(home + i) % SLOTS];
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
    uint32_t home = home_of(key);
    for (uint32_t i = 0; i < PROBES; i++) {
        uintptr_t found = key;
        if (atomic_compare_exchange_strong(&slots[(home + i) % SLOTS], &found, LEFT) ||
            found == 0) {
            return;
        }
    }
}
