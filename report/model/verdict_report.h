/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict as the report has it: the sentence of the moment, refined by what only the whole run
 * tells: which site grew, who held most, what would have been enough. */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_REPORT_H
#define MEMSHIM_REPORT_MODEL_VERDICT_REPORT_H

#include "allocator/base/buffer.h"
#include "report/model/model.h"
#include "report/model/survey.h"

/* A line of code, and what its sites held at one moment. */
struct ms_held_line {
    struct ms_buffer text; /* ended by a zero byte */
    uint64_t bytes;
    uint64_t kind_bytes[MS_KIND_COUNT];
    uint8_t kind; /* enum ms_kind: the largest of them */
};

struct ms_judgement {
    enum ms_verdict verdict;
    uint64_t short_bytes;
    uint64_t step;                  /* in which it happened, from 1; 0: not known */
    char what[MS_SENTENCE_BYTES];   /* "asked for 2.00 GiB, 1.20 GiB short of the cap (...)" */
    char why[MS_SENTENCE_BYTES];    /* "demand: ..." */
    char beside[MS_SENTENCE_BYTES]; /* what grew though it is not the reason; empty: nothing */
    const struct ms_leak *leak;     /* what grew most, whether it is the reason or not; or null */
    uint64_t grown_bytes;           /* by all that grows */
    double fitting_factor;  /* of this batch that would have fitted, estimated; 0: not known */
    double most_factor;     /* of it, no more than that fits; 0: not known, or the other is */
    bool of_the_model;      /* nearly all that was live is what a model needs whatever its batch */
    uint64_t further_steps; /* MS_VERDICT_GROWTH: that the device would have lasted without a cap */
};

/* Growth is told only of an out-of-memory of the device that was not recovered from. It is the
 * reason where without it nothing would have been short, or, where bytes enough were free, the
 * request is no more than what grew; else it is told beside. */
void ms_judge(const struct ms_model *model, size_t oom, struct ms_judgement *judgement);

/* The index of ms_model_fatal_oom; SIZE_MAX where there is none. */
size_t ms_judged_fatal(const struct ms_model *model);

/* A site with pinned host memory: at the end, and at most. */
struct ms_pinned_line {
    uint32_t site;
    uint64_t bytes, peak_bytes;
};

/* Those with most of it first. Freed with ms_buffer_free. */
void ms_pinned_lines(const struct ms_model *model, int device, struct ms_buffer *lines);

static inline size_t ms_pinned_line_count(const struct ms_buffer *lines)
{
    return lines->bytes / sizeof(struct ms_pinned_line);
}

/* The number of the step at that time, from 1; 0 where steps are not known. */
uint64_t ms_step_at(const struct ms_model *model, uint64_t time_ns);

/* The lines of code that held most at the moment, the largest first, at most `room`. Returns their
 * number. Ended by ms_held_lines_free. kind: MS_KIND_COUNT for all, else what is of that kind. */
size_t ms_held_lines(const struct ms_model *model, int device,
                     const struct ms_survey_moment *moment, int kind, struct ms_held_line *lines,
                     size_t room);
void ms_held_lines_free(struct ms_held_line *lines, size_t count);

/* "BYTES (PART OF LIVE) LINE   KIND". */
void ms_held_line_add(const struct ms_model *model, const struct ms_held_line *line,
                      uint64_t live_bytes, struct ms_buffer *out);

/* A kind's name, as such lines have it. What would be other persistent memory is only known to be
 * kept so far, where the run was ended before its second backward pass. */
const char *ms_held_kind_name(const struct ms_model *model, enum ms_kind kind);

#endif
