/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a loop that makes no backward pass (JAX, CuPy, inference): found by the order in which
 * lines of Python recur. A step begins at the line that comes once in each: what is asked for
 * between two of its turns is, line by line, what it was between two before.
 *
 * A loop all of whose memory is asked for by one line is not found: nothing tells its rounds. Where
 * modules are called (PyTorch), what a call asks for is its caller's, so that layers are no rounds;
 * and what came before the first call, parameters made one by one, is no loop of steps. */
#ifndef MEMSHIM_REPORT_MODEL_READING_LOOP_H
#define MEMSHIM_REPORT_MODEL_READING_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "report/fold/landmarks.h"
#include "report/fold/steps.h"
#include "report/trace/sites.h"

typedef struct ms_loop ms_loop_t;

/* definitions: complete; both outlive it. Null: no memory. */
ms_loop_t *ms_loop_new(const ms_definitions_t *definitions, const ms_landmarks_t *landmarks);
void ms_loop_delete(ms_loop_t *loop);

/* Memory is asked for, in the order of the trace. */
void ms_loop_allocation(ms_loop_t *loop, uint32_t site, uint64_t time_ns);

/* At the end. True: *found is known from here on, with its confidence. */
bool ms_loop_judge(const ms_loop_t *loop, struct ms_recurrence *found);

#endif
