/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of report.json: each adds one or more members to the open object or array. If memory runs
 * out, the document's buffer is marked (allocator/base/buffer.h). No locks. */
#ifndef MEMSHIM_REPORT_RENDER_JSON_PARTS_H
#define MEMSHIM_REPORT_RENDER_JSON_PARTS_H

#include <stddef.h>

#include "allocator/base/json.h"
#include "report/model/ledger.h"
#include "report/model/model.h"
#include "report/render/json/report.h"

/* ---- report.c ---- */

/* A text; null if it is empty. */
void ms_json_add_optional(struct ms_json *json, const char *key, const char *text);

/* The member `ledger`: the holders of memory at one moment. */
void ms_json_add_ledger(struct ms_json *json, const struct ms_ledger_row *rows, size_t count);

/* ---- device.c: the row of a device in `devices`. index: its CUDA ordinal. */
void ms_json_add_device(struct ms_json *json, const struct ms_model *model, int index);

/* ---- ooms.c: the member `oom_events`, the last `most` of them. */
void ms_json_add_ooms(struct ms_json *json, const struct ms_model *model, size_t most);

/* ---- survey.c: results of the survey (report/model/survey); null: there is none. */

/* Of a device: slope, growth, headroom, histogram, temporary. */
void ms_json_add_survey(struct ms_json *json, const struct ms_model *model, int device);

/* Of the out-of-memory of that index: kinds. */
void ms_json_add_oom_kinds(struct ms_json *json, const struct ms_model *model, size_t index);

/* ---- sites.c ---- */

/* Members: call_sites (the largest of each device, and the rest of them as one), attribution,
 * kinds, sampling, tags, steps. */
void ms_json_add_sites(struct ms_json *json, const struct ms_model *model,
                       const struct ms_json_limits *limits);

/* A list of frames, in the order of their numbers. */
void ms_json_add_frame_table(struct ms_json *json, const char *key,
                             const struct ms_frame_table *table);

/* A member that names the line of code; null: unknown. */
void ms_json_add_site_line(struct ms_json *json, const char *key, const struct ms_model *model,
                           uint32_t site);

/* Members that identify a site: id, device, kind, kind_reason, tags, line, frames (numbers in the
 * table). */
void ms_json_add_site_name(struct ms_json *json, const struct ms_model *model, int device,
                           uint32_t site, struct ms_frame_table *table);

/* ---- what_if.c: results of what-if (report/model/verdict/what_if.h) ---- */

/* The member what_if. */
void ms_what_if_json(struct ms_json *json, const struct ms_model *model);

/* The member overhead of a device. */
void ms_overhead_json(struct ms_json *json, const struct ms_model *model, int device);

#endif
