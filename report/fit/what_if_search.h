/* SPDX-License-Identifier: Apache-2.0 */
/* The search behind what-if (report/model/verdict/what_if.h): replays the run's trace with
 * different caps. */
#ifndef MEMSHIM_REPORT_FIT_WHAT_IF_SEARCH_H
#define MEMSHIM_REPORT_FIT_WHAT_IF_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/verdict.h"

struct ms_recording;

/* A search for the least cap, in steps of a hundredth of the device. */
struct ms_what_if_cap {
    uint64_t cap_bytes;       /* completes; 0: no cap that was tried does */
    uint64_t too_small_bytes; /* the largest cap below it that was tried and does not complete, the
                                 run's own included; 0: none */
    uint64_t host_bytes;      /* most live memory on the host at cap_bytes */
};

/* The least memory, beside the driver's own, with which a run completes with nothing on the host.
 * Divided by the peak of live bytes it is the overhead ratio. */
struct ms_overhead {
    const char *why;        /* a clause: why it is unknown; null: nobody asked yet */
    int device;             /* the main one */
    uint64_t min_cap_bytes; /* 0: unknown */
    uint64_t peak_live_bytes;
    uint64_t part_events; /* only the first ones were replayed; 0: all were */
    unsigned replays;
};

struct ms_what_if {
    bool tried;
    const char *why;        /* a clause: why not; null: nobody asked yet */
    size_t oom;             /* index of the out-of-memory */
    uint64_t device_bytes;  /* of the run's device */
    uint64_t request_bytes; /* the size of the request, which has to succeed */
    uint64_t room_bytes;    /* the room that the run had: its cap, or the part of it that others and
                               the driver left */
    struct ms_what_if_cap plain, spilled; /* plain: nothing on the host; spilled: live memory may
                                             move there */
    bool own_cap_spilled; /* it completes with that room, if more live memory may move than the run
                             allowed */
    uint64_t own_cap_host_bytes; /* and needs so much on the host */
    unsigned replays;
    struct ms_overhead overhead; /* for a run that no out-of-memory ended */
};

/* Searches for the caps with which the run would have got past the out-of-memory that ended it.
 * state: of that out-of-memory. recording: of its device; what came after it is cut off. Fills the
 * caps of `found`, and counts the replays; the caller sets the sizes. False: the recording could
 * not be replayed. */
bool ms_what_if_search(struct ms_recording *recording, const struct ms_oom_state *state,
                       uint64_t most_operations, struct ms_what_if *found);

/* Fills min_cap_bytes, peak_live_bytes and replays. False: the recording could not be replayed, or
 * completes with nothing. */
bool ms_overhead_search(const struct ms_recording *recording, struct ms_overhead *found);

#endif
