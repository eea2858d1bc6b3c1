/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a loop that makes no backward pass (JAX, CuPy, inference): found by the order in which
 * lines of Python recur. A step begins at a line that comes once in each step: the requests between
 * two of its turns are, line by line, those between two earlier ones.
 *
 * A loop with a single requesting line is not found, since its rounds cannot be distinguished,
 * unless the line calls a compiled function: then each call is a round (Keras's fit). If modules
 * are called (PyTorch), a call's requests count for its caller, so that layers are no rounds; and
 * the time before the first call, when parameters are made one by one, is no loop of steps.
 *
 * Where a loop lies in another, what it makes tells which is the steps. Layers hand on values from
 * one to the next, and so do tokens; what the last one made is gone when the first one comes again.
 * What steps hand on, the state, is there in the next epoch, too. */
#ifndef MEMSHIM_REPORT_MODEL_READING_LOOP_H
#define MEMSHIM_REPORT_MODEL_READING_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "report/fold/landmarks.h"
#include "report/fold/steps.h"
#include "report/trace/sites.h"

typedef struct ms_loop ms_loop_t;

/* definitions: complete; both must outlive it. Null: no memory. */
ms_loop_t *ms_loop_new(const ms_definitions_t *definitions, const ms_landmarks_t *landmarks);
void ms_loop_delete(ms_loop_t *loop);

/* Takes an allocation, in the order of the trace. number: of its event. */
void ms_loop_allocation(ms_loop_t *loop, const struct ms_event *event, uint64_t time_ns,
                        uint64_t number);

/* A block or tensor is no longer live; unknown ids do not matter. */
void ms_loop_free(ms_loop_t *loop, uint64_t id);

/* A call of a compiled function begins there (MS_EVENT_CALL): what the line asks for next is a turn
 * of its own. line: a node of Python. */
void ms_loop_call(ms_loop_t *loop, uint64_t line);

#define MS_LOOP_FEWEST_STEPS 8u

/* Judges at the end. fewest: the steps that make a loop. True: *found is known, with its
 * confidence. */
bool ms_loop_judge(const ms_loop_t *loop, uint64_t fewest, struct ms_recurrence *found);

#endif
