/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of code that hold memory at one moment: those of live memory, and of pinned host
 * memory. */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_HELD_LINES_H
#define MEMSHIM_REPORT_MODEL_VERDICT_HELD_LINES_H

#include "allocator/base/buffer.h"
#include "report/model/model.h"
#include "report/model/survey.h"

/* A line of code, and the memory of its sites at one moment. */
struct ms_held_line {
    struct ms_buffer text; /* ended by a zero byte */
    uint64_t bytes;
    uint64_t kind_bytes[MS_KIND_COUNT];
    uint8_t kind; /* enum ms_kind: of the largest of them */
};

/* The lines of code with the most memory at the moment, the largest first, at most `room`. Returns
 * their number. Free with ms_held_lines_free. kind: only memory of that kind; MS_KIND_COUNT:
 * all. */
size_t ms_held_lines(const struct ms_model *model, int device,
                     const struct ms_survey_moment *moment, int kind, struct ms_held_line *lines,
                     size_t room);
void ms_held_lines_free(struct ms_held_line *lines, size_t count);

/* "BYTES (PART OF LIVE) LINE   KIND"; in place of the kind "segments", if only these are seen. */
void ms_held_line_add(const struct ms_model *model, const struct ms_held_line *line,
                      uint64_t live_bytes, struct ms_buffer *out);

/* A kind's name in such lines. If the run ended before its second backward pass, other persistent
 * memory is only known to be kept so far. */
const char *ms_held_kind_name(const struct ms_model *model, enum ms_kind kind);

/* A site with pinned host memory: at the end, and at most. */
struct ms_pinned_line {
    uint32_t site;
    uint64_t bytes, peak_bytes;
};

/* The sites with the most of it first. Free with ms_buffer_free. */
void ms_pinned_lines(const struct ms_model *model, int device, struct ms_buffer *lines);

static inline size_t ms_pinned_line_count(const struct ms_buffer *lines)
{
    return lines->bytes / sizeof(struct ms_pinned_line);
}

#endif
