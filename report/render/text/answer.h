/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a report, made in one place: the first lines of report.txt, and a member of
 * report.json, which the page shows. */
#ifndef MEMSHIM_REPORT_RENDER_TEXT_ANSWER_H
#define MEMSHIM_REPORT_RENDER_TEXT_ANSWER_H

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/model.h"

/* The lines of report.txt between its head and its first empty line: a headline, then lines that
 * begin with two blanks, a word and two blanks; or with nine blanks if they continue the line
 * before. */
void ms_answer_text(struct ms_buffer *out, const struct ms_model *model);

/* The same lines as the member `answer` of report.json. */
void ms_answer_json(struct ms_json *json, const struct ms_model *model);

#endif
