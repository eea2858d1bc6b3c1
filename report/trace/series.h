/* SPDX-License-Identifier: Apache-2.0 */
/* The four lines of the timeline over a whole run, in a fixed number of time buckets: when the run
 * outgrows them, neighbours are merged. Lies in the trace as it is. Pure; the caller holds the
 * lock. */
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
#define MS_SERIES_LAST_SHIFT  53 /* and at most: 1,024 of them are 292 years */

enum ms_line { MS_LINE_LIVE, MS_LINE_RESERVED, MS_LINE_CHARGED, MS_LINE_CAP, MS_LINE_COUNT };

struct ms_bucket {
    uint64_t samples; /* 0: nothing happened here; the bucket before goes on */
    uint64_t min_bytes[MS_LINE_COUNT], max_bytes[MS_LINE_COUNT], last_bytes[MS_LINE_COUNT];
};

struct ms_series {
    uint32_t shift; /* bucket i holds the times [i << shift, (i + 1) << shift) */
    uint32_t used;  /* buckets from the first to the last one with a sample */
    _Atomic uint64_t
        events; /* that were noted. Counted last: those that a killed process noted
                   without counting them can be noted again, and only `samples` tells */
    struct ms_bucket buckets[MS_SERIES_BUCKETS];
};

/* Two copies: a merge is done in the idle one, so that a process killed in its middle leaves the
 * other whole. */
struct ms_series_pair {
    _Atomic uint32_t current; /* which of the two is valid */
    uint32_t unused;
    struct ms_series copy[2];
};

void ms_series_init(struct ms_series_pair *pair);
void ms_series_note(struct ms_series_pair *pair, const struct ms_moment *moment);

/* A row of events after which the other three lines stand where `others` has them, and live bytes
 * at live_bytes[i]. Times never go back. */
void ms_series_note_row(struct ms_series_pair *pair, const struct ms_moment *others,
                        const struct ms_timed_event *row, const uint64_t *live_bytes, size_t count);

/* False where a copy read from a file has fields out of range. */
bool ms_series_is_valid(const struct ms_series *series);

#endif
