/* SPDX-License-Identifier: Apache-2.0 */
/* The second reading of a trace (report/model/survey.h has its results). */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_TAKE_H
#define MEMSHIM_REPORT_MODEL_SURVEY_TAKE_H

#include "report/model/model.h"

enum ms_survey_depth {
    MS_SURVEY_SUMS,       /* without addresses: for text and JSON */
    MS_SURVEY_PREDICTING, /* the same, and turns */
    MS_SURVEY_WHOLE       /* addresses, and no turns */
};

/* Reads the trace at model->path again, after ms_model_name_sites; once. Sets model->survey; null:
 * there is no memory or the trace is no longer readable, and the forms leave its results out. Also
 * makes model->recording, if ms_what_if_expect asked for one. */
void ms_model_survey(struct ms_model *model, enum ms_survey_depth depth);

#endif
