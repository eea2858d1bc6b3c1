/* SPDX-License-Identifier: Apache-2.0 */
/* The state that an optimizer had still to make when memory ran out in its first step. It follows
 * from the state that is there: one of PyTorch's optimizers makes its values parameter by
 * parameter, each as large as the parameter. */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_OPTIMIZER_STATE_H
#define MEMSHIM_REPORT_MODEL_VERDICT_OPTIMIZER_STATE_H

#include <stdint.h>

#include "report/model/model.h"

/* Including the request that failed. 0: nothing, or it does not follow from what was seen. */
uint64_t ms_optimizer_state_to_come(const struct ms_model *model, const struct ms_model_oom *oom,
                                    const struct ms_survey_moment *moment);

#endif
