/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a trace's events again, in order, for callers that need more of them than the model
 * keeps. */
#ifndef MEMSHIM_REPORT_READ_EVENTS_H
#define MEMSHIM_REPORT_READ_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/read/reader.h"
#include "report/trace/format.h"

struct ms_events_visitor {
    void *ctx;
    void (*event)(void *ctx, const struct ms_event *event, uint64_t time_ns);
    /* Events before this moment are missing, so memory that earlier events made live may be gone.
     * sums: the device's own sums at the moment. Called for each device. May be null. */
    void (*gap)(void *ctx, uint8_t device, const struct ms_aggregate *sums, uint64_t time_ns);
};

/* Visits the events of an open trace. *damaged_windows: how many could not be read whole. False:
 * there is no memory. */
bool ms_events_walk(struct ms_reader *reader, const struct ms_events_visitor *visitor,
                    uint64_t *damaged_windows);

/* path: a trace file. Damaged events are left out, and make a gap. False, with a sentence in `why`
 * that names the file: it cannot be read. */
bool ms_events_visit(const char *path, const struct ms_events_visitor *visitor, char *why,
                     size_t why_bytes);

#endif
