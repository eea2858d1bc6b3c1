/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps, found from the order in which call sites recur.
 *
 * Backward passes are the beat: their memory is asked for on autograd's own threads. What lies
 * between two of them is a gap: optimizer, evaluation, forward. A step is what ends with a gap in
 * which the optimizer ran: seen by what it allocates, or, where it allocates nothing, by the
 * gradients that were dropped, so that the next backward made new ones. Gaps without either part
 * the micro-steps of gradient accumulation. The phase counts both: even in a gap, odd in a pass.
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

/* landmarks outlives it. Null: no host memory. */
ms_steps_t *ms_steps_new(const ms_landmarks_t *landmarks);
void ms_steps_delete(ms_steps_t *steps);

/* Other landmarks from here on: more sites have become known. */
void ms_steps_find(ms_steps_t *steps, const ms_landmarks_t *landmarks);

/* As ms_site_table_store and _load; landmarks are not among it. */
void ms_steps_store(const ms_steps_t *steps, struct ms_buffer *out);
bool ms_steps_load(ms_steps_t *steps, struct ms_words_in *in);

/* Memory is asked for, in the order of the trace. Returns the phase that it belongs to. */
uint32_t ms_steps_allocation(ms_steps_t *steps, uint32_t site, uint64_t time_ns);

/* What was found. */
struct ms_recurrence {
    bool known;        /* count is; else `why` says why not */
    const char *why;   /* a clause: "no backward pass was seen" */
    uint64_t count;    /* optimizer steps; of a loop without optimizer, turns that have begun */
    double confidence; /* of a loop without a backward pass: the part of what was asked for that
                          recurred in order; 0 elsewhere */
    uint64_t passes;   /* backward passes; no more than were seen where it is not whole */
    bool whole;        /* of every allocation its site was known */
    bool evaluations_known;
    uint64_t evaluations;        /* phases: rows of batches between two steps */
    uint64_t evaluation_batches; /* calls of a model in them */
    uint32_t site;               /* one of the optimizer's, called where steps are made; 0: none */
    uint64_t ended_ns; /* when the last one that was counted had ended, as far as memory tells */
    uint64_t every;    /* `begins` has the time of one step in so many */
    struct ms_buffer begins; /* uint64_t: when steps began, the first with the first call of a
                                model, others when the one before ended; the receiver's to free */
};

/* At the end of a trace, `table` being that of the same events. missing: a clause that says why
 * some allocations, or their sites, were not seen, so that nothing can be counted; null: all were.
 */
void ms_steps_judge(const ms_steps_t *steps, const ms_site_table_t *table, const char *missing,
                    struct ms_recurrence *found);

/* Whether what that site asks for may be for a backward pass: false in a call of a model, where
 * none ever came of calls from that line. */
bool ms_steps_trains(const ms_steps_t *steps, const ms_site_table_t *table,
                     const ms_definitions_t *definitions, uint32_t site);

/* Not so, and the run has trained for a while: it is an evaluation. found: of ms_steps_judge. */
bool ms_steps_evaluates(const ms_steps_t *steps, const ms_site_table_t *table,
                        const ms_definitions_t *definitions, const struct ms_recurrence *found,
                        uint32_t site);

#endif
