/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges of addresses that a run reserved, or mapped without that: where the survey's maps can
 * lie. */
#ifndef MEMSHIM_REPORT_MODEL_ADDRESS_RANGES_H
#define MEMSHIM_REPORT_MODEL_ADDRESS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/trace/format.h"

struct ms_address_range {
    uint8_t device;
    bool open, framework; /* it is still reserved; the program reserved it, or tells of its pages */
    uint64_t addr, bytes;
    uint64_t low, high; /* that were ever mapped in it: none where high is 0 */
    uint64_t begin_ns, end_ns, last_ns;
    uint64_t mapped_bytes; /* now */
    double weight;         /* mapped bytes x ns */
};

struct ms_address_ranges {
    struct ms_buffer all; /* struct ms_address_range: the first so many */
    size_t newest;        /* that was looked for */
};

/* Every event of the trace, in order. */
void ms_address_ranges_take(struct ms_address_ranges *ranges, const struct ms_event *event,
                            uint64_t time_ns);

/* Adds all to `sorted`, weighed up to the run's end, the heaviest first. */
void ms_address_ranges_sort(const struct ms_address_ranges *ranges, uint64_t end_ns,
                            struct ms_buffer *sorted);

#endif
