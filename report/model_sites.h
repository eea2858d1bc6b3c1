/* What the model takes of call sites, steps and tags while a trace is read. */
#ifndef MEMSHIM_REPORT_MODEL_SITES_H
#define MEMSHIM_REPORT_MODEL_SITES_H

#include "report/model.h"
#include "report/reader.h"

/* Reads every definition of the trace into the model. */
void ms_model_read_definitions(struct ms_model *model, struct ms_reader *reader);

#endif
