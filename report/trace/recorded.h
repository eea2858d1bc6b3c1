/* SPDX-License-Identifier: Apache-2.0 */
/* Events that are not about memory itself: the program's steps and tags, moves of contents.
 * Bounded, whatever the trace holds; one caller at a time. */
#ifndef MEMSHIM_REPORT_TRACE_RECORDED_H
#define MEMSHIM_REPORT_TRACE_RECORDED_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/event.h"

struct ms_words_in;

/* Contents that moved to host memory, or back, in one standstill. */
struct ms_model_move {
    uint64_t time_ns, held_ns, bytes;
    uint8_t device;
    bool down;
};

/* Steps that the program recorded. */
struct ms_model_steps {
    struct ms_buffer times;  /* struct ms_model_step, in order: one in `stride` of those read */
    struct ms_buffer events; /* uint64_t, likewise: the numbers of their events, 0 if that is not
                                known; not stored */
    uint64_t count, stride;  /* read */
    uint64_t number;         /* of the last one: the records of earlier ones may be gone */
    bool by_source[MS_STEP_SOURCE_COUNT];
};

struct ms_model_step {
    uint64_t number, time_ns;
};

/* When a tag was on a thread's stack. */
struct ms_model_range {
    uint64_t begin_ns, end_ns; /* end_ns: UINT64_MAX if it did not end */
    uint64_t thread, tag;
};

struct ms_model_tags {
    struct ms_buffer ranges; /* struct ms_model_range, in the order of their beginning */
    struct ms_buffer open;   /* size_t: which of them have not ended */
    uint64_t left_out;       /* ranges that found no room */
};

/* Takes an event of no device: a step, a tag. number: how many events came before it. */
void ms_recorded_take(struct ms_model_steps *steps, struct ms_model_tags *tags,
                      const struct ms_event *event, uint64_t time_ns, uint64_t number);

/* Takes MS_EVENT_SPILL or MS_EVENT_PROMOTE. Events of one standstill, which follow each other
 * within its own time, become one move. moves: struct ms_model_move. */
void ms_recorded_move(struct ms_buffer *moves, const struct ms_event *event, uint64_t time_ns);

/* As ms_site_table_store and _load (site_sums.h). */
void ms_recorded_store(const struct ms_model_steps *steps, const struct ms_model_tags *tags,
                       const struct ms_buffer *moves, struct ms_buffer *out);
bool ms_recorded_load(struct ms_model_steps *steps, struct ms_model_tags *tags,
                      struct ms_buffer *moves, struct ms_words_in *in);

void ms_recorded_free(struct ms_model_steps *steps, struct ms_model_tags *tags,
                      struct ms_buffer *moves);

#endif
