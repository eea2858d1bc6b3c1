/* SPDX-License-Identifier: Apache-2.0 */
/* By way of which of the program's lines most of what is live was asked for. Several lines of a
 * model may hold as much as each other; the line that called it stands for all of them. */
#ifndef MEMSHIM_REPORT_MODEL_HELD_WAY_H
#define MEMSHIM_REPORT_MODEL_HELD_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "report/model/model.h"
#include "report/model/survey.h"

struct ms_held_way {
    struct ms_frame frame;
    uint64_t bytes; /* live at the moment, asked for by way of it */
};

/* The deepest line of the program's by way of which more than half of the live bytes were asked
 * for; what autograd's threads asked for counts where autograd was called. False: there is none, it
 * is the line that asked itself, or all that was live came by way of it, so that it tells nothing.
 */
bool ms_held_way(const struct ms_model *model, int device, const struct ms_survey_moment *moment,
                 struct ms_held_way *way);

#endif
