/* SPDX-License-Identifier: Apache-2.0 */
/* Segments, and the chunks that stand behind their granules. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_SEGMENT_H
#define MEMSHIM_ALLOCATOR_SPACE_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"
#include "allocator/space/range.h"
#include "allocator/space/starts.h"

struct ms_arena;
struct ms_granule;
struct ms_heat;
struct ms_proxy;

struct ms_chunk {
    ms_handle_t handle; /* the address, if the device has no virtual memory management */
    uint64_t bytes;
    struct ms_segment *segment; /* where it is mapped; null for a spare */
    uint64_t slot;              /* its first slot there */
    struct ms_chunk *next;      /* in a list of spares, or of the current fill */
    bool host;                  /* host memory, for holes and spilled memory; not charged */
    bool was_mapped;            /* its next mapping counts as a move */
    bool stuck;                 /* could not be unmapped: lost, with its addresses */
    bool spilled;               /* on the host, in the place of a device chunk */
    bool aside;                 /* mapped in the staging segment (move.c), too; never released
                                   meanwhile */
    uint8_t returns;            /* as in struct ms_spill_candidate, for its contents */
    uint64_t promoted; /* the standstill that brought its contents from the host; 0: none */

    /* For a chunk that is mapped twice: see views.h. Otherwise null. Growth lock. */
    struct ms_chunk *twin; /* the same chunk in its other place */
    struct ms_range *lent; /* the part of its granule that the twin uses */
};

struct ms_segment {
    ms_addr_t base;
    uint64_t bytes;
    struct ms_range *first;  /* ranges in address order cover it all */
    struct ms_starts starts; /* of live blocks */
    struct ms_chunk **slots; /* the chunk of each granule; null: none */
    uint64_t slot_count;
    enum ms_region region;
    bool plain;           /* one chunk of plain_alloc: slot 0 stands for all of it */
    struct ms_heat *heat; /* one for each slot, state lock; null: not kept. See ahead.h */

    /* From the first tensor in it on; null before. */
    struct ms_granule *granules; /* one for each slot */
    uint64_t *quiet;             /* a bit for each slot: see struct ms_granule */
    uint64_t *marks;             /* where tensors begin and end: see tensors.h */
    unsigned granule_shift;      /* log2 of its bytes */

    /* For a framework's reservation; otherwise null. */
    struct ms_arena *foreign;
    struct ms_proxy **proxies; /* the proxy mapped at each slot */
};

#endif
