/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind the trampolines: one for each call that the application makes, and one for
 * each report of a framework. */
#ifndef MEMSHIM_SHIM_HOOKS_SERVE_H
#define MEMSHIM_SHIM_HOOKS_SERVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/hook.h"

/* One for each row of hooks.def. Exceptions: the two versions of cuGetProcAddress, which shim/door
 * answers, and rows that are only gated. */
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    CUresult ms_serve_##symbol params;
#include "shim/tables/hooks.def"

/* A framework's allocator handed out a range, or took it back, on this device. total_bytes: the
 * framework's own sum of live bytes; UINT64_MAX if it does not say. The guard is set. */
void ms_serve_born(int device, const void *addr, uint64_t bytes, uint64_t total_bytes);
void ms_serve_died(int device, const void *addr, uint64_t bytes, uint64_t total_bytes);

/* ms_serve_kept_block: a block of an allocator that may hand out more than it reports.
 * ms_serve_kept_range: a piece of such a block is handed out (bytes > 0) or taken back (bytes < 0).
 * The guard is set. */
void ms_serve_kept_block(int device, const void *addr);
void ms_serve_kept_range(int device, const void *addr, int64_t bytes);

/* A framework reports a piece of memory there: if the program mapped that memory itself, the
 * framework's reports count from now on. Otherwise nothing happens. The guard is set. */
void ms_serve_range_among_maps(uint64_t addr, uint64_t bytes);

/* How many of the program's own mappings are recorded as live and are no arenas. */
extern _Atomic uint64_t ms_live_maps_count;

static inline void ms_serve_range_in_maps(uint64_t addr, uint64_t bytes)
{
    if (__builtin_expect(atomic_load_explicit(&ms_live_maps_count, memory_order_relaxed) != 0, 0)) {
        ms_serve_range_among_maps(addr, bytes);
    }
}

/* A device or process outside is about to learn the range's physical address. Moves the range to
 * the device if need be, and pins it. False: that failed, and the address must not be shown. True
 * also if the range is not our memory. The guard is set. */
bool ms_serve_pin(uint64_t addr, uint64_t bytes);

#endif
