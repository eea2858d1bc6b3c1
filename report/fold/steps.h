/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps, found from the order in which call sites recur.
 *
 * Backward passes set the rhythm: autograd's own threads ask for their memory. The time between two
 * of them is a gap: optimizer, evaluation, forward. A step ends with a gap in which the optimizer
 * ran. The optimizer's allocations show that; if it allocates nothing, dropped gradients do,
 * because the next backward made new ones. Gaps with neither separate the micro-steps of gradient
 * accumulation. The phase counts both: even in a gap, odd in a pass.
 *
 * One caller at a time, constant time an event. */
#ifndef MEMSHIM_REPORT_FOLD_STEPS_H
#define MEMSHIM_REPORT_FOLD_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fold/landmarks.h"
#include "report/fold/site_sums.h"

typedef struct ms_steps ms_steps_t;
struct ms_words_in;

/* landmarks must outlive it. Null: no host memory. */
ms_steps_t *ms_steps_new(const ms_landmarks_t *landmarks);
void ms_steps_delete(ms_steps_t *steps);

/* Replaces the landmarks: more sites are known now. */
void ms_steps_find(ms_steps_t *steps, const ms_landmarks_t *landmarks);

/* As ms_site_table_store and _load, without the landmarks. */
void ms_steps_store(const ms_steps_t *steps, struct ms_buffer *out);
bool ms_steps_load(ms_steps_t *steps, struct ms_words_in *in);

/* Takes an allocation, in the order of the trace. number: of its event. Returns its phase. */
uint32_t ms_steps_allocation(ms_steps_t *steps, uint32_t site, uint64_t time_ns, uint64_t number);

/* The times of something recurrent: all of them, or one in `every`. Part of the digest. */
struct ms_begins {
    struct ms_buffer at; /* uint64_t; the caller frees it */
    uint64_t count, every;
};

/* Counts one, and keeps its time and its event's number (events: uint64_t, for the caller to free),
 * or drops every second one of what is kept once these are `most`. Events of several threads may
 * have the same time: only the numbers tell their order. A number is 0 if it is not known, because
 * the digest does not store it, and the event's record is gone. */
void ms_begins_note(struct ms_begins *begins, struct ms_buffer *events, size_t most,
                    uint64_t time_ns, uint64_t number);

/* The steps that were found. */
struct ms_recurrence {
    bool known;        /* `count` is known; else `why` says why not */
    const char *why;   /* a clause: "no backward pass was seen" */
    uint64_t count;    /* optimizer steps; in a loop without optimizer, turns that have begun */
    uint64_t rarest;   /* steps of the optimizer with the fewest, of those that recur; 0: unknown */
    double confidence; /* of a loop without a backward pass: the part of the requests that recurred
                          in order; 0 elsewhere */
    uint64_t passes;   /* backward passes; if not whole, those that were seen */
    bool whole;        /* every allocation's site was known */
    bool evaluations_known;
    uint64_t evaluations;          /* phases: rows of batches between two steps */
    uint64_t evaluation_batches;   /* calls of a model in these */
    uint64_t evaluations_ended;    /* of these, between two backward passes */
    uint32_t site;                 /* one of the optimizer's, called where steps end; 0: none */
    uint32_t optimizer_site;       /* likewise, also where dropped gradients were counted */
    uint64_t ended_ns;             /* when the last counted one had ended, as far as memory shows */
    uint64_t every;                /* `begins` has the time of one step in so many */
    struct ms_buffer begins;       /* uint64_t: when steps began; the first with the first call of a
                                      model, others when the one before ended */
    struct ms_buffer begin_events; /* uint64_t: the numbers of the events then, or 0. The caller
                                      frees both */
};

/* Requests that ran out of memory, in the order of time. If one was of a call of a model, that call
 * did not reach its end, so it does not show whether a backward pass was to follow. */
struct ms_steps_failure {
    uint32_t site;
    uint64_t time_ns;
};
struct ms_steps_failures {
    const struct ms_steps_failure *at;
    size_t count;
};

/* Judges at the end of a trace; `table` and `failures` must be of the same events. missing: a
 * clause that says why some allocations, or their sites, were not seen, so that nothing can be
 * counted; null: all were seen. */
void ms_steps_judge(const ms_steps_t *steps, const ms_site_table_t *table,
                    const struct ms_steps_failures *failures, const char *missing,
                    struct ms_recurrence *found);

/* Whether memory of that site may be for a backward pass. False: it is asked for in a call of a
 * model, on a line whose calls never led to one. */
bool ms_steps_trains(const ms_steps_t *steps, const ms_site_table_t *table,
                     const ms_definitions_t *definitions, uint32_t site);

/* Whether that is false of the request that failed, and the run has trained for a while: it is an
 * evaluation. But not if the program tries again, on a line of which no call succeeded, since
 * another request failed after the newest backward pass. found: from ms_steps_judge. failure: an
 * index. */
bool ms_steps_evaluates(const ms_steps_t *steps, const ms_site_table_t *table,
                        const ms_definitions_t *definitions, const struct ms_recurrence *found,
                        const struct ms_steps_failures *failures, size_t failure);

#endif
