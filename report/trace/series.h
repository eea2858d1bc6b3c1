/* SPDX-License-Identifier: Apache-2.0 */
/* The four lines of the timeline over a whole run, in a fixed number of time buckets: when the run
 * outgrows them, neighbours merge. Lies in the trace as it is. Pure; the caller holds the lock. */
#ifndef MEMSHIM_REPORT_TRACE_SERIES_H
#define MEMSHIM_REPORT_TRACE_SERIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/aggregate.h"
#include "report/trace/timed_event.h"

#define MS_SERIES_BUCKETS     1024
#define MS_SERIES_FIRST_SHIFT 16 /* a bucket's width at first: 2^16 ns */
#define MS_SERIES_LAST_SHIFT  53 /* the largest: 1,024 buckets are 292 years */

enum ms_line { MS_LINE_LIVE, MS_LINE_RESERVED, MS_LINE_CHARGED, MS_LINE_CAP, MS_LINE_COUNT };

struct ms_bucket {
    uint64_t samples; /* 0: no event here; the bucket before goes on */
    uint64_t min_bytes[MS_LINE_COUNT], max_bytes[MS_LINE_COUNT], last_bytes[MS_LINE_COUNT];
};

struct ms_series {
    uint32_t shift; /* bucket i holds the times [i << shift, (i + 1) << shift) */
    uint32_t used;  /* buckets from the first to the last one with a sample */
    _Atomic uint64_t
        events; /* events added. Counted last: events that a killed process added without counting
                   them can be added again, which only `samples` shows */
    struct ms_bucket buckets[MS_SERIES_BUCKETS];
};

/* Two copies: a merge happens in the idle one, so that a process killed meanwhile leaves the other
 * whole. */
struct ms_series_pair {
    _Atomic uint32_t current; /* which of the two is valid */
    uint32_t unused;
    struct ms_series copy[2];
};

void ms_series_init(struct ms_series_pair *pair);
void ms_series_note(struct ms_series_pair *pair, const struct ms_moment *moment);

/* Adds a row of events. `others` has the other three lines during all of it, live_bytes[i] the live
 * bytes after event i. Times never go back. */
void ms_series_note_row(struct ms_series_pair *pair, const struct ms_moment *others,
                        const struct ms_timed_event *row, const uint64_t *live_bytes, size_t count);

/* False: a copy read from a file has fields out of range. */
bool ms_series_is_valid(const struct ms_series *series);

#endif
