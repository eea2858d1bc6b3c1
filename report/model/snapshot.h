/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a snapshot of PyTorch's allocator, from a trace: the segments of each device at
 * one moment, their live memory, and the newest events before it. Events agree with the segments:
 * undoing them from the last to the first gives the state before them. */
#ifndef MEMSHIM_REPORT_MODEL_SNAPSHOT_H
#define MEMSHIM_REPORT_MODEL_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/model/model.h"
#include "report/model/moment.h"
#include "report/read/containers.h"
#include "report/read/instant.h"

#define MS_SNAPSHOT_ENTRIES 50000u /* the newest events to keep of each device */

/* Named as PyTorch names them. */
enum ms_snapshot_action {
    MS_ACTION_NONE, /* withdrawn */
    MS_ACTION_ALLOC,
    MS_ACTION_FREE, /* requested, and completed at once */
    MS_ACTION_SEGMENT_ALLOC,
    MS_ACTION_SEGMENT_FREE,
    MS_ACTION_SEGMENT_MAP,
    MS_ACTION_SEGMENT_UNMAP,
    MS_ACTION_OOM
};

struct ms_snapshot_entry {
    uint8_t action; /* enum ms_snapshot_action */
    uint32_t site;
    uint64_t time_ns;
    uint64_t addr;  /* OOM: free bytes */
    uint64_t bytes; /* OOM: requested bytes */
    uint64_t stream;
};

struct ms_snapshot_device {
    bool used;
    uint64_t until_ns;   /* the moment */
    uint64_t peak_bytes; /* of live memory, if the moment is the peak; otherwise 0 */
    bool passed;         /* the peak was reached; later events may have the same time */
    struct ms_containers segments;
    struct ms_buffer entries; /* struct ms_snapshot_entry, oldest first */
    uint64_t dropped;         /* older ones */
};

struct ms_snapshot {
    const struct ms_model *model;
    struct ms_instant instant;
    struct ms_snapshot_device devices[MS_DEVICE_COUNT];
    size_t next_oom; /* of the model's */
    bool gone;       /* the records begin after the moment */
    bool failed;     /* memory ran out */
};

/* False, with a sentence in `why` that names the trace. Free it either way. */
bool ms_snapshot_take(struct ms_snapshot *snapshot, const struct ms_model *model,
                      const struct ms_moment_name *moment, char *why, size_t why_bytes);
void ms_snapshot_free(struct ms_snapshot *snapshot);

static inline size_t ms_snapshot_entry_count(const struct ms_snapshot_device *device)
{
    return device->entries.bytes / sizeof(struct ms_snapshot_entry);
}

static inline struct ms_snapshot_entry *
ms_snapshot_entry_at(const struct ms_snapshot_device *device, size_t index)
{
    return (struct ms_snapshot_entry *)device->entries.at + index;
}

#endif
