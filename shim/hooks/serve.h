/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind the trampolines: a function for each call that the application makes, and for each
 * report of a framework. */
#ifndef MEMSHIM_SHIM_HOOKS_SERVE_H
#define MEMSHIM_SHIM_HOOKS_SERVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/hook.h"

/* One for each row of hooks.def, except the two versions of cuGetProcAddress,
 * which shim/door answers, and what is only gated. */
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    CUresult ms_serve_##symbol params;
#include "shim/tables/hooks.def"

/* A range of a framework's allocator was born (bytes > 0) or died (bytes < 0) on this device.
 * total_bytes: the framework's own sum of live bytes, UINT64_MAX where it does not say. The guard
 * is set. */
void ms_serve_range(int device, const void *addr, int64_t bytes, uint64_t total_bytes);

/* A block of an allocator's that may hand out more than it tells of, and its pieces as above. The
 * guard is set. */
void ms_serve_kept_block(int device, const void *addr);
void ms_serve_kept_range(int device, const void *addr, int64_t bytes);

/* A framework reports a piece there: what the program mapped around it is the framework's to tell
 * of. Nothing happens elsewhere. The guard is set. */
void ms_serve_range_among_maps(uint64_t addr, uint64_t bytes);

/* What the program mapped by itself that is recorded as live, and is no arena. */
extern _Atomic uint64_t ms_live_maps_count;

static inline void ms_serve_range_in_maps(uint64_t addr, uint64_t bytes)
{
    if (__builtin_expect(atomic_load_explicit(&ms_live_maps_count, memory_order_relaxed) != 0, 0)) {
        ms_serve_range_among_maps(addr, bytes);
    }
}

/* The range's physical memory is about to be shown to a device or a process outside: it lies on the
 * device from now on, and is not moved any more. False: it could not be brought there, and must not
 * be shown. True where the range is not memory of ours. The guard is set. */
bool ms_serve_pin(uint64_t addr, uint64_t bytes);

#endif
