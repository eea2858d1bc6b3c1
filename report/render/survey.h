/* SPDX-License-Identifier: Apache-2.0 */
/* The survey (survey.h) as the page holds it. */
#ifndef MEMSHIM_REPORT_RENDER_SURVEY_H
#define MEMSHIM_REPORT_RENDER_SURVEY_H

#include <stddef.h>

#include "allocator/base/json.h"
#include "report/model/model.h"
#include "report/render/frame_table.h"

/* Members of a page's process: surveys, one a device (none where none was taken), and more_sites,
 * those that they name. One in `scale` of what there is room for otherwise;
 * none where that is too little to be of use. */
void ms_json_add_surveys(struct ms_json *json, const struct ms_model *model,
                         struct ms_frame_table *frames, size_t scale);

#endif
