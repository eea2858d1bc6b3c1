/* SPDX-License-Identifier: Apache-2.0 */
/* Reads call sites into the model. */
#ifndef MEMSHIM_REPORT_MODEL_READING_READ_SITES_H
#define MEMSHIM_REPORT_MODEL_READING_READ_SITES_H

#include "report/model/model.h"
#include "report/read/reader.h"

/* Reads the trace's definitions into the model: those that were not read yet. */
void ms_model_read_definitions(struct ms_model *model, struct ms_reader *reader);

/* Warns of damaged definitions. */
void ms_model_check_definitions(struct ms_model *model);

#endif
