/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of two runs, two ranks, or two moments of a run, compared call site by call site. */
#ifndef MEMSHIM_REPORT_MODEL_COMPARE_DIFF_H
#define MEMSHIM_REPORT_MODEL_COMPARE_DIFF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/compare/predict.h"
#include "report/model/compare/site_match.h"
#include "report/model/model.h"
#include "report/model/moment.h"

enum ms_diff_side_name { MS_DIFF_A, MS_DIFF_B, MS_DIFF_SIDES };

struct ms_diff_side {
    const char *path; /* as given */
    struct ms_moment_name moment;
    char program[MS_PROGRAM_BYTES];
    int32_t rank; /* -1: none, or several processes */
    size_t processes;
    uint64_t time_ns;    /* of the moment, on the first process's main device */
    uint64_t live_bytes; /* of all processes and devices */
    uint64_t charged_peak_bytes, live_peak_bytes, cap_bytes; /* of the last process's main device */
    bool incomplete; /* earlier records are gone: memory allocated then has no site */
    bool damaged;    /* parts of a trace could not be read */
};

struct ms_diff_row {
    size_t site;  /* of the match */
    uint8_t kind; /* enum ms_kind */
    uint64_t bytes[MS_DIFF_SIDES], count[MS_DIFF_SIDES];
    uint64_t most_bytes[MS_DIFF_SIDES]; /* the most that it ever held; 0 if both moments are
                                           peaks */
    uint64_t born_bytes, born_count;    /* of B: allocated since the moment of A */
    struct ms_fit fit;                  /* of most_bytes, if a prediction is wanted */
};

/* A line of code with all its sites: those of the forward, and of what backward computes again. */
struct ms_diff_line {
    size_t text;            /* in `lines` */
    uint8_t kind;           /* enum ms_kind: of its largest site */
    uint64_t largest_bytes; /* the bytes of that site */
    uint64_t bytes[MS_DIFF_SIDES], most_bytes[MS_DIFF_SIDES];
    struct ms_fit fit;
};

/* A site's memory at a moment other than the two peaks. */
struct ms_diff_holding {
    size_t site;   /* of the match */
    uint32_t turn; /* which moment, from 0 */
    uint64_t bytes;
};

struct ms_diff {
    struct ms_site_match match;
    struct ms_buffer rows; /* struct ms_diff_row, by the site's number; later sorted */
    struct ms_buffer turns[MS_DIFF_SIDES]; /* struct ms_diff_holding: see struct ms_turn */
    struct ms_strings line_texts;
    struct ms_buffer lines; /* struct ms_diff_line, once sorted; the largest difference first */
    struct ms_diff_side sides[MS_DIFF_SIDES];
    bool between; /* A and B are moments of one process, A the earlier: born_* are set */
    bool predicts;
    struct ms_prediction prediction;
};

/* Adds a process to a side; its stacks have names. until_ns and since_ns: by device; since_ns null:
 * skip the memory allocated since. False, with a sentence in `why`. */
bool ms_diff_add(struct ms_diff *diff, enum ms_diff_side_name side, const struct ms_model *model,
                 const uint64_t *since_ns, char *why, size_t why_bytes);

/* To be called at the end. Sorts by the largest difference; between two moments, by memory that was
 * allocated and stayed. */
void ms_diff_sort(struct ms_diff *diff);
void ms_diff_free(struct ms_diff *diff);

static inline size_t ms_diff_count(const struct ms_diff *diff)
{
    return diff->rows.bytes / sizeof(struct ms_diff_row);
}

static inline struct ms_diff_row *ms_diff_at(const struct ms_diff *diff, size_t index)
{
    return (struct ms_diff_row *)diff->rows.at + index;
}

static inline size_t ms_diff_line_count(const struct ms_diff *diff)
{
    return diff->lines.bytes / sizeof(struct ms_diff_line);
}

static inline const struct ms_diff_line *ms_diff_line_at(const struct ms_diff *diff, size_t index)
{
    return (const struct ms_diff_line *)diff->lines.at + index;
}

#endif
