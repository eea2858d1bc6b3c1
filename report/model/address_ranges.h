/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges of addresses that a run reserved, or mapped without a reservation: the survey's maps
 * show some of them. */
#ifndef MEMSHIM_REPORT_MODEL_ADDRESS_RANGES_H
#define MEMSHIM_REPORT_MODEL_ADDRESS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/trace/format.h"

struct ms_address_range {
    uint8_t device;
    bool open, framework; /* open: still reserved; framework: the program reserved it, or reports
                             its pages */
    uint64_t addr, bytes;
    uint64_t low, high; /* the part of it that was ever mapped; none if high is 0 */
    uint64_t begin_ns, end_ns, last_ns;
    uint64_t mapped_bytes; /* now */
    double weight;         /* mapped bytes x ns */
};

struct ms_address_ranges {
    struct ms_buffer all; /* struct ms_address_range: the first ones, up to a limit */
    size_t newest;        /* index of the one found last */
};

/* Takes every event of the trace, in order. */
void ms_address_ranges_take(struct ms_address_ranges *ranges, const struct ms_event *event,
                            uint64_t time_ns);

/* Adds all to `sorted`, weighted up to the run's end, the heaviest first. */
void ms_address_ranges_sort(const struct ms_address_ranges *ranges, uint64_t end_ns,
                            struct ms_buffer *sorted);

#endif
