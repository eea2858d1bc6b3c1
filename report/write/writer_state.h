/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer's files share: the handle, and the extents being filled. */
#ifndef MEMSHIM_REPORT_WRITE_WRITER_STATE_H
#define MEMSHIM_REPORT_WRITE_WRITER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock.h"
#include "allocator/base/locks/lock_annotations.h"
#include "report/fold/digest.h"
#include "report/fold/fold.h"
#include "report/trace/encoding.h"
#include "report/trace/format.h"
#include "report/write/trace_clock.h"
#include "report/write/trace_file.h"
#include "report/write/writer.h"

#define MS_MIN_WINDOWS 4u
#define MS_MAX_LOGS    16u

#define MS_DIGEST_PARTS 1024u /* the most extents of one digest */

/* An extent that is mapped. */
struct ms_mapped {
    struct ms_extent_header *header;
    uint64_t offset;
};

/* The extents of one of the two digests. */
struct ms_digest_slot {
    uint64_t *offsets; /* pages of their own, MS_DIGEST_PARTS */
    uint32_t count;
};

/* For Clang's analysis (lock_annotations.h): the two locks of a trace. */
extern struct ms_lock_role ms_trace_role;
extern struct ms_lock_role ms_trace_growing_role;

struct ms_trace_digest {
    ms_fold_t *
        fold MS_GUARDED_BY(ms_trace_growing_role); /* null: nothing was folded yet, or `off` */
    bool off MS_GUARDED_BY(ms_trace_growing_role); /* for good */
    /* The half folded window, mapped; null: none. */
    struct ms_extent_header *folding MS_GUARDED_BY(ms_trace_growing_role);
    _Atomic bool due; /* there are records to fold: ms_digest_step */
    /* How many of the ring's oldest windows are folded; how many the last written digest covers. */
    uint32_t folded MS_GUARDED_BY(ms_trace_growing_role);
    uint32_t covered MS_GUARDED_BY(ms_trace_growing_role);
    /* The position of the next definition to read: the extent, and the byte in it. */
    uint32_t site_extent MS_GUARDED_BY(ms_trace_growing_role);
    uint64_t site_bytes MS_GUARDED_BY(ms_trace_growing_role);
    uint64_t generation MS_GUARDED_BY(ms_trace_growing_role);
    struct ms_digest_slot slots[2] MS_GUARDED_BY(ms_trace_growing_role);
    struct ms_fold_oom ooms[MS_DIGEST_OOMS]; /* grows under `lock`, read up to oom_count */
    _Atomic uint32_t oom_count;
};

struct ms_trace {
    /* Take `growing` before `lock`. `lock` is short: every event takes it. `growing` is held while
     * the file grows, so that no emitter waits for another one's system calls. pages and
     * device_extents change under both and are read under either. */
    ms_lock_t lock;
    ms_lock_t growing;
    _Atomic bool closed; /* nothing is recorded any more; set under `lock`, read under either */
    bool released MS_GUARDED_BY(ms_trace_role); /* and the file is given up */
    struct ms_file_header *header;
    struct ms_tail *tail; /* in the header's extent */
    struct ms_clock clock;
    uint64_t start_monotonic_ns;
    int64_t clock_ahead_ns;                           /* as in the header */
    struct ms_device_page *pages[MS_DEVICE_COUNT];    /* null: not seen yet */
    struct ms_mapped device_extents[MS_DEVICE_COUNT]; /* none if the file had no room */

    /* The tail holds the events from packed to recorded; their times never go back. */
    uint64_t recorded MS_GUARDED_BY(ms_trace_role);
    uint64_t packed MS_GUARDED_BY(ms_trace_role);
    uint64_t last_ns MS_GUARDED_BY(ms_trace_role);

    /* Windows: in use; next; full and not sealed yet. */
    struct ms_mapped window MS_GUARDED_BY(ms_trace_role);
    struct ms_mapped spare MS_GUARDED_BY(ms_trace_role);
    struct ms_mapped retired MS_GUARDED_BY(ms_trace_role);
    uint8_t *payload MS_GUARDED_BY(ms_trace_role); /* of `window` */
    uint32_t payload_bytes MS_GUARDED_BY(ms_trace_role);
    uint32_t payload_room MS_GUARDED_BY(ms_trace_role);
    uint32_t window_events MS_GUARDED_BY(ms_trace_role);
    uint64_t window_sequence MS_GUARDED_BY(ms_trace_role);
    /* The number of lost events at which to ask for room again. */
    uint64_t retry_at_lost MS_GUARDED_BY(ms_trace_role);
    struct ms_codec codec MS_GUARDED_BY(ms_trace_role);
    struct ms_aggregate sums[MS_DEVICE_COUNT] MS_GUARDED_BY(ms_trace_role); /* of packed events */

    struct ms_mapped log MS_GUARDED_BY(ms_trace_role);
    uint32_t log_count MS_GUARDED_BY(ms_trace_growing_role);
    uint32_t note_bytes MS_GUARDED_BY(ms_trace_role);
    uint32_t thresholds MS_GUARDED_BY(ms_trace_role);

    struct ms_trace_file file; /* grows under `growing` */

    /* Definitions: the extent in use (none before the first), their number, and their extents. */
    struct ms_mapped sites MS_GUARDED_BY(ms_trace_growing_role);
    uint32_t sites_count MS_GUARDED_BY(ms_trace_growing_role);
    uint32_t sites_room;
    uint64_t *site_offsets; /* sites_room of them */

    /* Full windows, oldest first. */
    uint64_t *ring; /* offsets, ring_room of them */
    uint32_t ring_room;
    uint32_t ring_first MS_GUARDED_BY(ms_trace_growing_role);
    uint32_t ring_count MS_GUARDED_BY(ms_trace_growing_role);
    /* Windows that have room, the one in use and the next included. */
    uint32_t ring_limit MS_GUARDED_BY(ms_trace_growing_role);
    struct ms_trace_digest digest;
    char dir[PATH_MAX];
};

/* These take and release the locks, and tell Clang's analysis about the roles. */
static inline void ms_trace_acquire_at(struct ms_trace *trace, const char *place)
    MS_ACQUIRE(ms_trace_role) MS_NO_THREAD_SAFETY
{
    ms_lock_acquire_at(&trace->lock, place);
}

static inline bool ms_trace_try(struct ms_trace *trace)
    MS_TRY_ACQUIRE(true, ms_trace_role) MS_NO_THREAD_SAFETY
{
    return ms_lock_try(&trace->lock);
}

static inline void ms_trace_release(struct ms_trace *trace)
    MS_RELEASE(ms_trace_role) MS_NO_THREAD_SAFETY
{
    ms_lock_release(&trace->lock);
}

static inline void ms_trace_growing_acquire_at(struct ms_trace *trace, const char *place)
    MS_ACQUIRE(ms_trace_growing_role) MS_NO_THREAD_SAFETY
{
    ms_lock_acquire_at(&trace->growing, place);
}

static inline bool ms_trace_growing_try(struct ms_trace *trace)
    MS_TRY_ACQUIRE(true, ms_trace_growing_role) MS_NO_THREAD_SAFETY
{
    return ms_lock_try(&trace->growing);
}

static inline void ms_trace_growing_release(struct ms_trace *trace)
    MS_RELEASE(ms_trace_growing_role) MS_NO_THREAD_SAFETY
{
    ms_lock_release(&trace->growing);
}

#define ms_trace_acquire(trace)         ms_trace_acquire_at((trace), MS_PLACE)
#define ms_trace_growing_acquire(trace) ms_trace_growing_acquire_at((trace), MS_PLACE)

/* Makes stored bytes part of the file. To be called after every store to a window, before the store
 * that makes a reader trust it. Costs a comparison if windows are mappings. */
static inline void ms_trace_put(struct ms_trace *trace, const void *at, size_t bytes)
{
    if (__builtin_expect(trace->file.copied, 0)) {
        ms_trace_file_put(&trace->file, at, bytes);
    }
}

/* Only holders of the lock write these counters (of `growing`: those of definitions); they are
 * atomic for readers of the file. */
static inline void ms_trace_add(struct ms_trace *trace, _Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
    ms_trace_put(trace, counter, sizeof(*counter));
}

static inline void ms_trace_disk_full(struct ms_trace *trace)
{
    atomic_store_explicit(&trace->header->disk_full, 1, memory_order_relaxed);
    ms_trace_put(trace, &trace->header->disk_full, sizeof(trace->header->disk_full));
}

/* Converts nanoseconds of the clock to time since the trace began, in units of MS_TIME_UNIT_NS;
 * never goes back. Needs the lock. */
static inline uint64_t ms_trace_time_of(struct ms_trace *trace, uint64_t clock_ns)
    MS_REQUIRES(ms_trace_role)
{
    const uint64_t ns = clock_ns - trace->start_monotonic_ns;

    if (ns > trace->last_ns) {
        trace->last_ns = ns / MS_TIME_UNIT_NS * MS_TIME_UNIT_NS;
    }
    return trace->last_ns;
}

/* The time at that value of the clock's counter. Needs the lock. */
static inline uint64_t ms_trace_time_at(struct ms_trace *trace, uint64_t ticks)
    MS_REQUIRES(ms_trace_role)
{
    return ms_trace_time_of(trace, ms_trace_clock_ns(&trace->clock, ticks));
}

/* The same without a call; false: it has to ask the system. */
static inline bool ms_trace_time_known(struct ms_trace *trace, uint64_t ticks, uint64_t *time_ns)
    MS_REQUIRES(ms_trace_role)
{
    uint64_t clock_ns;

    if (!ms_trace_clock_known(&trace->clock, ticks, &clock_ns)) {
        return false;
    }
    *time_ns = ms_trace_time_of(trace, clock_ns);
    return true;
}

static inline uint64_t ms_trace_time_ns(struct ms_trace *trace) MS_REQUIRES(ms_trace_role)
{
    return ms_trace_time_at(trace, ms_clock_ticks());
}

/* A new extent at the end of the file, mapped. Needs `growing`. 0 or an errno. */
int ms_mapped_new(struct ms_trace *trace, struct ms_mapped *extent)
    MS_REQUIRES(ms_trace_growing_role);
void ms_mapped_drop(struct ms_trace *trace, struct ms_mapped *extent);

static inline uint8_t *ms_mapped_payload(const struct ms_extent_header *header)
{
    return (uint8_t *)header + header->payload_offset;
}

/* Makes a reader trust the extent, by its sequence: everything else of it must be in place, and the
 * bytes behind payload_offset put. */
void ms_mapped_publish(struct ms_trace *trace, struct ms_extent_header *header, uint32_t kind,
                       uint64_t sequence);

/* Adds an entry and its payload, padded to 8 bytes, to an extent of them, whose writers the caller
 * keeps out. False: there is no room. */
bool ms_mapped_append(struct ms_trace *trace, struct ms_extent_header *header, const void *entry,
                      size_t entry_bytes, const void *payload, size_t payload_bytes);

/* The extent is about to be written anew. To be called before the first new byte: a reader that has
 * copied new bytes then notices. */
void ms_mapped_withdraw(struct ms_trace *trace, struct ms_extent_header *header);

/* The extent grows no more: makes its checksum. */
void ms_mapped_seal(struct ms_trace *trace, struct ms_extent_header *header);

/* Turns the windows into memory of the process's own. Called without the lock. */
void ms_trace_leave_mappings(struct ms_trace *trace)
    MS_EXCLUDES(ms_trace_role, ms_trace_growing_role);

/* Makes the spare window the one in use, for events from `packed` on. Needs the lock; the window in
 * use is full or none, and no window waits to be sealed. */
void ms_window_switch(struct ms_trace *trace, uint64_t now_ns) MS_REQUIRES(ms_trace_role);

/* Seals the full window and prepares a spare one. Called without the lock; false: there is no
 * room. */
bool ms_window_prepare(struct ms_trace *trace) MS_EXCLUDES(ms_trace_role, ms_trace_growing_role);

static inline uint32_t ms_ring_at(const struct ms_trace *trace, uint32_t index)
    MS_REQUIRES(ms_trace_growing_role)
{
    return (trace->ring_first + index) % trace->ring_room;
}

/* Recycles the oldest full window: returns its extent, mapped. Needs `growing`. 0 or an errno. */
int ms_window_recycle(struct ms_trace *trace, struct ms_mapped *extent)
    MS_REQUIRES(ms_trace_growing_role);

/* Checks whether there is something to fold, because the trace is nearly full. Needs `growing`. */
void ms_digest_ahead(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role);

/* Folds some records, if it is due and no other thread does it. Called without the lock, now and
 * then. */
void ms_digest_step(struct ms_trace *trace) MS_EXCLUDES(ms_trace_role, ms_trace_growing_role);

/* Before a window is recycled: makes a digest cover its events, if there can be one. Needs
 * `growing`. */
void ms_digest_cover(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role);

/* Frees the digest's memory, but not its extents of the file. Needs `growing`. */
void ms_digest_close(struct ms_trace *trace) MS_REQUIRES(ms_trace_growing_role);

/* Packs all events of the tail, into a new window if need be. Counts those that find no room as
 * lost. Needs the lock, which it releases in between if may_grow. */
void ms_tail_pack(struct ms_trace *trace, bool may_grow) MS_REQUIRES(ms_trace_role);

/* Writes a device's sums, which are those of the events before end_event, to its page. Needs the
 * lock. */
void ms_sums_commit(struct ms_trace *trace, uint8_t device, uint64_t end_event)
    MS_REQUIRES(ms_trace_role);

/* Make a device's page, and the next extent of the log. Called without the lock. */
void ms_device_make(struct ms_trace *trace, uint8_t device)
    MS_EXCLUDES(ms_trace_role, ms_trace_growing_role);
bool ms_log_next(struct ms_trace *trace) MS_EXCLUDES(ms_trace_role, ms_trace_growing_role);

#endif
