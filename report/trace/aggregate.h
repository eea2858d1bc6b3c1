/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over a whole run, exact after every event. Writer and reader share this code: the writer
 * applies it as the events happen, the reader when it replays them. Pure; the caller holds the
 * lock. The structs lie in the trace as they are (little-endian, 64-bit fields only): changing one
 * changes MS_FORMAT_MINOR. All sizes are in bytes, all times in ns since the trace began. */
#ifndef MEMSHIM_REPORT_TRACE_AGGREGATE_H
#define MEMSHIM_REPORT_TRACE_AGGREGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/timed_event.h"

#define MS_DEVICE_COUNT 64
#define MS_COUNTED_KINDS \
    32 /* kinds of event that are counted: counting more would change the sums of older traces */

enum ms_driver_call {
    MS_CALL_CREATE,
    MS_CALL_MAP,
    MS_CALL_SET_ACCESS,
    MS_CALL_UNMAP,
    MS_CALL_RELEASE,
    MS_CALL_COUNT
};

/* Kinds of memory that was ever live outside the pool. */
enum ms_outside {
    MS_OUTSIDE_TENSORS = 1,
    MS_OUTSIDE_BLOCKS = 2 /* the program's own mappings; since version 3.7 of the format */
};

/* The state of one device at one moment. */
struct ms_counters {
    uint64_t block_bytes;           /* live blocks as asked for, without arenas */
    uint64_t tensor_bytes;          /* live tensors, in arenas and in the program's own mappings */
    uint64_t arena_bytes;           /* whole arenas, live tensors and holes */
    uint64_t forwarded_block_bytes; /* the part of block_bytes that the driver served; charged by
                                       reason */
    uint64_t blocks, arenas, tensors;
    uint64_t owner_bytes[MS_OWNER_COUNT];          /* charged, by owner */
    uint64_t reason_bytes[MS_CHARGE_REASON_COUNT]; /* charged without chunks, by its reason */
    uint64_t host_chunk_bytes; /* chunks in host memory: neither charged nor reserved */
    uint64_t host_pinned_bytes;
    uint64_t proxy_bytes;            /* pages that a framework believes it has mapped itself */
    uint64_t cap_bytes, total_bytes; /* 0: not known yet */
    uint64_t threshold;              /* 0 normal, 1 warning, 2 critical, 3 emergency */
    uint64_t samples; /* number of MS_EVENT_SAMPLE. The values of the last one, and the bytes
                         charged then: */
    uint64_t sampled_free_bytes, sampled_others_bytes, sampled_charged_bytes;
    uint64_t outside; /* enum ms_outside, or'ed: kinds of memory that was live outside the pool.
                         From then on the program's own chunks are reserved bytes */
};

/* The four lines of the timeline at one moment. */
struct ms_moment {
    uint64_t time_ns;
    uint64_t live_bytes, reserved_bytes, charged_bytes, cap_bytes;
};

struct ms_aggregate {
    struct ms_counters now;
    struct ms_counters at_peak; /* at peak_live; valid if at_peak_saved, else `now` still equals
                                   it */
    uint64_t at_peak_saved;
    struct ms_moment peak_live, peak_charged;
    struct ms_moment peak_reserved; /* live_bytes: the most while reserved stayed at its peak */
    uint64_t peak_tensor_bytes, peak_host_pinned_bytes, peak_host_chunk_bytes;
    /* The newest block, which may yet become an arena. Its bytes are live, but make a peak only
     * once it is clear that they are a block's own. */
    uint64_t fresh_id, fresh_bytes;
    struct ms_moment fresh_peak;          /* when it was allocated; a peak if it is above
                                             peak_live */
    struct ms_counters fresh_at_peak;     /* the counters then */
    uint64_t first_time_ns, last_time_ns; /* of the events of this device */
    uint64_t events;
    uint64_t allocations, frees;               /* blocks and forwarded allocations */
    uint64_t tensor_allocations, tensor_frees; /* tensors */
    uint64_t failed_allocations;               /* refused driver calls */
    uint64_t torch_ooms;                       /* OutOfMemoryErrors that PyTorch raised */
    uint64_t spilled_bytes, promoted_bytes;    /* all bytes ever moved */
    uint64_t held_ns;                          /* how long the device stood still for them */
    uint64_t host_uses, host_use_bytes;        /* of memory on the host (MS_EVENT_USE) */
    uint64_t driver_calls[MS_CALL_COUNT]; /* MS_CALL_UNMAP counts mappings, of which one call takes
                                             many */
    uint64_t kind_events[MS_COUNTED_KINDS]; /* by enum ms_event_kind */
};

/* Applies the device's event. Sums never pass below 0: an event that would make one negative (a
 * trace that begins late, a corrupted one) leaves 0. */
void ms_aggregate_apply(struct ms_aggregate *aggregate, const struct ms_event *event,
                        uint64_t time_ns);

/* The same for a row of events of one device, as long as they can change only live bytes among the
 * timeline's lines (blocks and tensors do). Stops before the first event of another device or
 * another kind. Returns how many it applied; live_bytes[i] gets the live bytes of
 * ms_aggregate_moment after event i. */
size_t ms_aggregate_apply_row(struct ms_aggregate *aggregate, const struct ms_timed_event *row,
                              size_t count, uint64_t *live_bytes);

/* An allocation was refused (torch: PyTorch gave up). */
void ms_aggregate_oom(struct ms_aggregate *aggregate, bool torch);

/* Live bytes: blocks that are no arenas, and tensors. */
uint64_t ms_counters_live(const struct ms_counters *counters);

/* The pool's device chunks, and the program's own once something was live in them. */
uint64_t ms_counters_reserved(const struct ms_counters *counters);

uint64_t ms_counters_charged(const struct ms_counters *counters);

/* The peak of live bytes, with the newest block if that counts. */
struct ms_moment ms_aggregate_peak_live(const struct ms_aggregate *aggregate);

/* The counters at that peak. */
const struct ms_counters *ms_aggregate_at_peak(const struct ms_aggregate *aggregate);

/* The lines of the timeline: as `now`, but without a block that is likely to become an arena. */
struct ms_moment ms_aggregate_moment(const struct ms_aggregate *aggregate, uint64_t time_ns);

/* 1 - live/reserved at the peak of reserved bytes (of the times at that peak, the one with the most
 * live bytes), in parts per million; -1: nothing was reserved. */
int64_t ms_aggregate_fragmentation_ppm(const struct ms_aggregate *aggregate);

/* Whether the event hands memory out (a block, a forwarded allocation, a tensor, a chunk of the
 * program's own). */
bool ms_event_is_allocation(const struct ms_event *event);

#endif
