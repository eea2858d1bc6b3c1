/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of code whose memory moved to the host, and back. */
#ifndef MEMSHIM_REPORT_MODEL_MOVED_LINES_H
#define MEMSHIM_REPORT_MODEL_MOVED_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/model.h"

/* Memory of a line of code that moved to host memory, and back; its sites together. */
struct ms_moved_line {
    struct ms_buffer text; /* ended by a zero byte */
    uint64_t spilled_bytes, spilled_blocks, promoted_bytes;
};

/* The lines with the most of it first. Free with ms_moved_lines_free. */
void ms_moved_lines(const struct ms_model *model, int device, struct ms_buffer *lines);
void ms_moved_lines_free(struct ms_buffer *lines);

static inline size_t ms_moved_line_count(const struct ms_buffer *lines)
{
    return lines->bytes / sizeof(struct ms_moved_line);
}

#endif
