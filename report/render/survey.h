/* SPDX-License-Identifier: Apache-2.0 */
/* The survey (report/model/survey.h) in the page's data. */
#ifndef MEMSHIM_REPORT_RENDER_SURVEY_H
#define MEMSHIM_REPORT_RENDER_SURVEY_H

#include <stddef.h>

#include "allocator/base/json.h"
#include "report/model/model.h"
#include "report/symbols/frame_table.h"

/* Members of a page's process: surveys, one for each device (empty without a survey), and
 * more_sites, which they name. `scale`: write 1/scale of the usual amounts; none if that is too few
 * to be of use. */
void ms_json_add_surveys(struct ms_json *json, const struct ms_model *model,
                         struct ms_frame_table *frames, size_t scale);

#endif
