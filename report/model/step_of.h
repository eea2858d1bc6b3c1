/* SPDX-License-Identifier: Apache-2.0 */
/* The step of a run in which something happened, and how many had ended by then. */
#ifndef MEMSHIM_REPORT_MODEL_STEP_OF_H
#define MEMSHIM_REPORT_MODEL_STEP_OF_H

#include "report/model/model.h"

/* The number of the step at that time, from 1; 0: steps are unknown. */
uint64_t ms_step_at(const struct ms_model *model, uint64_t time_ns);

/* The step in which it happened: where the optimizer asked, the step that this ends. */
uint64_t ms_step_of_oom(const struct ms_model *model, const struct ms_model_oom *oom);

/* How many steps had ended by then. UINT64_MAX: unknown, as of steps that the program numbers, or
 * of which only the beginnings are seen. */
uint64_t ms_steps_completed(const struct ms_model *model, const struct ms_model_oom *oom);

#endif
