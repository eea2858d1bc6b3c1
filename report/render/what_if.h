/* SPDX-License-Identifier: Apache-2.0 */
/* What-if results (report/model/verdict/what_if.h) in report.json and report.txt: the memory that
 * would have been enough. */
#ifndef MEMSHIM_REPORT_RENDER_WHAT_IF_H
#define MEMSHIM_REPORT_RENDER_WHAT_IF_H

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/model.h"

/* The member what_if of report.json. */
void ms_what_if_json(struct ms_json *json, const struct ms_model *model);

/* The member overhead of a device in report.json. */
void ms_overhead_json(struct ms_json *json, const struct ms_model *model, int device);

/* report.txt: the lines that end an out-of-memory's answer. rest_follows: of the judgement. */
void ms_what_if_text(struct ms_buffer *out, const struct ms_model *model, bool rest_follows);

#endif
