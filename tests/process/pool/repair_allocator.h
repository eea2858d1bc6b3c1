/* SPDX-License-Identifier: Apache-2.0 */
/* A caching allocator as frameworks have it: it takes large arenas from the driver, one stream
 * each, hands out parts of them, and tells memshim of each: through memshim.h where they lie in
 * segments, and as PyTorch does where they lie in pages. Its library is called libc10_cuda.so, and
 * needs a libc10.so: so memshim knows who maps pages, and that somebody will report. A part that is
 * freed is handed out again at once, in the order of its stream; one that other streams have used
 * is held back until their events have passed, though its death is told at once.
 *
 * One per device, thread-safe: its lock is held in every call, as PyTorch holds its own. Sizes are
 * bytes. Ends the program where a call fails that must not. */
#ifndef MEMSHIM_TESTS_PROCESS_REPAIR_ALLOCATOR_H
#define MEMSHIM_TESTS_PROCESS_REPAIR_ALLOCATOR_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

enum repair_arenas {
    REPAIR_SEGMENTS, /* cuMemAlloc: PyTorch's native segments */
    REPAIR_PAGES,    /* 20 MiB pages mapped into one long range per stream: expandable segments */
};

struct repair_allocator;

struct repair_stats {
    uint64_t live_bytes, peak_live_bytes;
    uint64_t held_bytes, peak_held_bytes; /* of the arenas */
    uint64_t refused;                     /* requests for which the driver had no memory */
};

/* For the device of the current context. peers: how many other devices reach its memory. */
struct repair_allocator *repair_allocator_new(CUdevice device, enum repair_arenas kind,
                                              const CUdevice *peers, size_t peer_count);

/* A part of at least `bytes` for work of the stream, 512-aligned; 0: the driver has no memory, even
 * after the arenas in which nothing lives were given back. */
CUdeviceptr repair_alloc(struct repair_allocator *allocator, size_t bytes, CUstream stream);

/* The part that begins at `at` dies; users: recorded events of other streams that have used it,
 * destroyed here. */
void repair_free(struct repair_allocator *allocator, CUdeviceptr at, const CUevent *users,
                 size_t user_count);

/* Gives the stream's arenas back in which nothing lives. */
void repair_empty_cache(struct repair_allocator *allocator, CUstream stream);

struct repair_stats repair_stats_of(struct repair_allocator *allocator);

#pragma GCC visibility pop

#endif
