/* SPDX-License-Identifier: Apache-2.0 */
/* The second reading of a trace (report/model/survey.h says what it finds). */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_TAKE_H
#define MEMSHIM_REPORT_MODEL_SURVEY_TAKE_H

#include "report/model/model.h"

enum ms_survey_depth {
    MS_SURVEY_SUMS,       /* without addresses: what text and JSON show */
    MS_SURVEY_PREDICTING, /* the same, and turns */
    MS_SURVEY_WHOLE       /* addresses, and no turns */
};

/* Reads the trace at model->path again, after ms_model_name_sites; once. model->survey is what was
 * found, null where there is no memory or the trace cannot be read any more: the forms leave out
 * what it tells then. Makes model->recording too, where somebody asks for one
 * (ms_what_if_expect). */
void ms_model_survey(struct ms_model *model, enum ms_survey_depth depth);

#endif
