/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt. */
#ifndef MEMSHIM_REPORT_RENDER_TEXT_REPORT_H
#define MEMSHIM_REPORT_RENDER_TEXT_REPORT_H

#include "allocator/base/buffer.h"
#include "report/model/model.h"

/* Its first five lines are the answer. */
void ms_format_text(const struct ms_model *model, struct ms_buffer *out);

#endif
