/* SPDX-License-Identifier: Apache-2.0 */
/* What the model takes of call sites while a trace is read. */
#ifndef MEMSHIM_REPORT_MODEL_READING_READ_SITES_H
#define MEMSHIM_REPORT_MODEL_READING_READ_SITES_H

#include "report/model/model.h"
#include "report/read/reader.h"

/* Reads the definitions of the trace into the model: those that were not read yet. */
void ms_model_read_definitions(struct ms_model *model, struct ms_reader *reader);

/* Warns of those that were damaged. */
void ms_model_check_definitions(struct ms_model *model);

#endif
