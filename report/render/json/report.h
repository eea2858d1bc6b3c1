/* SPDX-License-Identifier: Apache-2.0 */
/* report.json (report/render/schema.json). */
#ifndef MEMSHIM_REPORT_RENDER_JSON_REPORT_H
#define MEMSHIM_REPORT_RENDER_JSON_REPORT_H

#include <stddef.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/model.h"
#include "report/symbols/frame_table.h"

void ms_format_json(const struct ms_model *model, struct ms_buffer *out);

/* The same as a member of a larger document. folder: where the report lies; null: no such
 * member. */
void ms_format_json_member(const struct ms_model *model, struct ms_json *json, const char *folder);

/* The same as the member `key` (null: in an array), for documents that must stay small: the limits
 * of the lists. The sites left out make one row; of log entries the last ones are kept. */
struct ms_json_limits {
    size_t sites; /* of each device */
    size_t ooms, thresholds, tags;
    struct ms_frame_table *frames; /* frames are numbers in this table; null: written in full */
};

void ms_format_json_limited(const struct ms_model *model, struct ms_json *json, const char *key,
                            const char *folder, const struct ms_json_limits *limits);

/* Members that identify the process, shared by report.json and memshim top. */
void ms_json_add_process(struct ms_json *json, const struct ms_file_header *header);

#endif
