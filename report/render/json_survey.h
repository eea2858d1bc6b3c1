/* SPDX-License-Identifier: Apache-2.0 */
/* What the survey (survey.h) tells, as members of report.json; null where there is none. */
#ifndef MEMSHIM_REPORT_RENDER_JSON_SURVEY_H
#define MEMSHIM_REPORT_RENDER_JSON_SURVEY_H

#include <stddef.h>

#include "allocator/base/json.h"
#include "report/model/model.h"

/* Of a device: slope, growth, headroom, histogram, temporary. */
void ms_json_add_survey(struct ms_json *json, const struct ms_model *model, int device);

/* Of the out-of-memory of that index: kinds. */
void ms_json_add_oom_kinds(struct ms_json *json, const struct ms_model *model, size_t index);

#endif
