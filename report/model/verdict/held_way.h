/* SPDX-License-Identifier: Apache-2.0 */
/* The line of the program by way of which most live memory was asked for. Several lines of a model
 * may hold equally much; the line that called the model stands for all of them. */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_HELD_WAY_H
#define MEMSHIM_REPORT_MODEL_VERDICT_HELD_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "report/model/model.h"
#include "report/model/survey.h"

struct ms_held_way {
    struct ms_frame frame;
    uint64_t bytes; /* live at the moment, by way of that line */
};

/* The program's deepest line by way of which more than half of the live bytes were asked for;
 * requests of autograd's threads count where autograd was called. False: there is none; or it asked
 * itself; or all live memory came by way of it, which says nothing. */
bool ms_held_way(const struct ms_model *model, int device, const struct ms_survey_moment *moment,
                 struct ms_held_way *way);

#endif
