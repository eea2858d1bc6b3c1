/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device's insides: dry_memory.c keeps memory, dry_work.c streams and fences, dry_halt.c
 * contents and standstills. One lock for all. */
#ifndef MEMSHIM_ALLOCATOR_DEVICE_DRY_STATE_H
#define MEMSHIM_ALLOCATOR_DEVICE_DRY_STATE_H

#include <stdatomic.h>

#include "allocator/base/containers/slab.h"
#include "allocator/base/locks/lock.h"
#include "allocator/device/dry.h"

/* For each stream, how much of its work: the place in the table of streams is the index. */
struct dry_clock {
    uint64_t seen[MS_DRY_STREAMS];
};

struct dry_piece {
    struct dry_piece *next; /* younger, of the same stream */
    uint64_t sequence;      /* of the stream, from 1 */
    uint64_t owner;
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t done_ns;       /* virtual time; MS_DRY_UNTIL_TOLD */
    struct dry_clock after; /* the work that has to be done before it */
};

struct dry_stream {
    ms_stream_t id; /* 0: the place is free */
    uint64_t queued, done;
    uint64_t tail_ns;                  /* when the last piece will be done */
    struct dry_clock after;            /* the work that its next piece comes after */
    struct dry_piece *oldest, *newest; /* pieces that the host does not know to be done */
};

struct dry_fence {
    struct dry_clock covers;
    bool exists;
};

struct dry_slot {
    uint64_t chunk; /* its handle; 0: nothing mapped */
    bool first;     /* the mapping begins here */
    bool access;
};

struct dry_reservation {
    ms_addr_t base;
    uint64_t bytes;
    uint64_t mappings;
    struct dry_slot *slots;
    struct dry_reservation *next;
};

struct dry_chunk {
    uint64_t bytes;
    uint64_t *tags; /* one for each unit; null: nothing was written yet */
    uint64_t mappings;
    enum ms_location location;
    bool released;
};

struct dry_copy {
    ms_addr_t to, from;
    uint64_t bytes;
    uint64_t done_ns; /* virtual time */
};

struct dry_plain {
    ms_addr_t addr;
    uint64_t bytes;
    struct dry_plain *next;
};

struct ms_dry {
    struct ms_device_ops ops;
    ms_lock_t lock;
    struct ms_dry_costs costs;
    uint64_t now_ns, cost_ns;
    uint64_t calls[MS_DRY_OP_COUNT];
    uint64_t fail_at[MS_DRY_OP_COUNT]; /* the number of the call that fails; 0: none */
    ms_status_t fail_status[MS_DRY_OP_COUNT];
    uint64_t all_calls;           /* of every op */
    uint64_t fail_from, fail_end; /* the numbers of the calls of any op that fail */
    ms_status_t fail_all_status;
    _Atomic int capturing;                 /* 0 or 1 */
    uint64_t others_bytes, unusable_bytes; /* see ms_dry_set_others */
    bool stalled, no_host, uses_untold;
    bool halted;
    struct dry_copy *copies; /* queued since all were done */
    uint64_t copy_count, copies_done, copy_room;
    char violation[256];

    ms_addr_t next_addr; /* never handed out twice */
    struct dry_reservation *reservations;
    struct dry_plain *plains;
    struct dry_chunk *chunks; /* by handle - 1; a handle is never handed out twice */
    uint64_t chunk_count, chunk_room;
    uint64_t mapped_twice; /* chunks at several addresses */
    struct ms_dry_stats stats;

    struct dry_stream streams[MS_DRY_STREAMS];
    struct dry_clock known;   /* the work that the host knows to be done, by fences */
    struct dry_fence *fences; /* by fence - 1 */
    uint64_t fence_count, fence_room;
    struct ms_slab piece_slab;
};

/* Everything below: lock held. */

/* Counts a call and adds its price. False: this call has to fail, with *status. */
bool ms_dry_begin(struct ms_dry *dry, enum ms_dry_op op, ms_status_t *status);

__attribute__((format(printf, 2, 3))) void ms_dry_violated(struct ms_dry *dry, const char *format,
                                                           ...);

/* Makes room for one more element in a growing array; false: the host has no memory. */
bool ms_dry_room(void **array, uint64_t count, uint64_t *room, size_t element_bytes);

bool ms_dry_is_accessible(struct ms_dry *dry, ms_addr_t addr, uint64_t bytes);

/* Records a violation if work that the host does not know to be done touches the range. */
void ms_dry_check_quiet(struct ms_dry *dry, ms_addr_t addr, uint64_t bytes, const char *what);

/* Completes all work, and lets the host know. False: some lasts until ms_dry_finish. */
bool ms_dry_finish_all(struct ms_dry *dry, uint64_t timeout_ns);

/* The chunk behind addr, and addr's offset in it; null: there is none. */
struct dry_chunk *ms_dry_chunk_behind(struct ms_dry *dry, ms_addr_t addr, uint64_t *offset);

/* The operations of dry_memory.c, dry_work.c and dry_halt.c, for the table. */
void ms_dry_memory_fill_ops(struct ms_device_ops *ops);
void ms_dry_work_fill_ops(struct ms_device_ops *ops);
void ms_dry_halt_fill_ops(struct ms_device_ops *ops);

#endif
