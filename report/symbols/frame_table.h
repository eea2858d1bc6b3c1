/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps every frame once, by number, for documents whose stacks share most of their frames. */
#ifndef MEMSHIM_REPORT_SYMBOLS_FRAME_TABLE_H
#define MEMSHIM_REPORT_SYMBOLS_FRAME_TABLE_H

#include <stddef.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/table.h"
#include "report/symbols/stacks.h"

struct ms_frame_table {
    struct ms_buffer
        frames; /* struct ms_frame, in the order of adding; their strings are not owned */
    struct ms_table numbers; /* by the frames' hashes */
};

/* The frame's number, the same for all frames that read the same. Without memory for one more: the
 * first one's. */
size_t ms_frame_table_add(struct ms_frame_table *table, const struct ms_frame *frame);

void ms_frame_table_free(struct ms_frame_table *table);

static inline size_t ms_frame_table_count(const struct ms_frame_table *table)
{
    return table->frames.bytes / sizeof(struct ms_frame);
}

static inline const struct ms_frame *ms_frame_table_at(const struct ms_frame_table *table,
                                                       size_t number)
{
    return (const struct ms_frame *)table->frames.at + number;
}

#endif
