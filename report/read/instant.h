/* SPDX-License-Identifier: Apache-2.0 */
/* All memory that is live on a device at one moment: follows a trace's events up to there. Blocks
 * that are arenas are not live themselves. */
#ifndef MEMSHIM_REPORT_READ_INSTANT_H
#define MEMSHIM_REPORT_READ_INSTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/numbers.h"
#include "report/trace/format.h"

/* A live block or tensor. */
struct ms_standing {
    uint64_t id, addr, bytes;
    uint64_t born_ns;
    uint64_t stream; /* 0: none, or not recorded (of tensors) */
    uint64_t note;   /* for the caller's use; 0 at first */
    uint32_t site;
    uint8_t device;
    bool tensor;
};

struct ms_instant {
    struct ms_buffer standing; /* struct ms_standing, in no order */
    struct ms_numbers *by_id;
    struct ms_aggregate *sums;          /* MS_DEVICE_COUNT: one for each device */
    uint64_t since_ns[MS_DEVICE_COUNT]; /* memory allocated before is missing here; 0: none is */
    bool failed;                        /* memory ran out */
};

/* False: there is no memory. Free it either way. */
bool ms_instant_begin(struct ms_instant *instant);
void ms_instant_free(struct ms_instant *instant);

/* Takes the next event, or a gap before it (events.h). */
void ms_instant_take(struct ms_instant *instant, const struct ms_event *event, uint64_t time_ns);
void ms_instant_gap(struct ms_instant *instant, uint8_t device, const struct ms_aggregate *sums,
                    uint64_t time_ns);

/* Null: it is not live. Valid until the next event. */
struct ms_standing *ms_instant_find(const struct ms_instant *instant, uint64_t id);

static inline size_t ms_instant_count(const struct ms_instant *instant)
{
    return instant->standing.bytes / sizeof(struct ms_standing);
}

static inline struct ms_standing *ms_instant_at(const struct ms_instant *instant, size_t index)
{
    return (struct ms_standing *)instant->standing.at + index;
}

#endif
