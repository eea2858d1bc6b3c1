/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of report.json: each adds one or more members to the open object or array. If memory runs
 * out, the document's buffer is marked (allocator/base/buffer.h). No locks. */
#ifndef MEMSHIM_REPORT_RENDER_JSON_PARTS_H
#define MEMSHIM_REPORT_RENDER_JSON_PARTS_H

#include <stddef.h>

#include "allocator/base/json.h"
#include "report/model/ledger.h"
#include "report/model/model.h"

/* ---- json.c ---- */

/* A text; null if it is empty. */
void ms_json_add_optional(struct ms_json *json, const char *key, const char *text);

/* The member `ledger`: the holders of memory at one moment. */
void ms_json_add_ledger(struct ms_json *json, const struct ms_ledger_row *rows, size_t count);

/* ---- json_device.c: the row of a device in `devices`. index: its CUDA ordinal. */
void ms_json_add_device(struct ms_json *json, const struct ms_model *model, int index);

/* ---- json_ooms.c: the member `oom_events`, the last `most` of them. */
void ms_json_add_ooms(struct ms_json *json, const struct ms_model *model, size_t most);

/* ---- json_survey.c: results of the survey (report/model/survey); null: there is none. */

/* Of a device: slope, growth, headroom, histogram, temporary. */
void ms_json_add_survey(struct ms_json *json, const struct ms_model *model, int device);

/* Of the out-of-memory of that index: kinds. */
void ms_json_add_oom_kinds(struct ms_json *json, const struct ms_model *model, size_t index);

#endif
