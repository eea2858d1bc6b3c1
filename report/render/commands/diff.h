/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `memshim diff`: a difference (report/model/compare/diff.h) for people and for
 * programs. */
#ifndef MEMSHIM_REPORT_RENDER_COMMANDS_DIFF_H
#define MEMSHIM_REPORT_RENDER_COMMANDS_DIFF_H

#include "allocator/base/buffer.h"
#include "report/model/compare/diff.h"

void ms_diff_text(const struct ms_diff *diff, struct ms_buffer *out);
void ms_diff_json(const struct ms_diff *diff, struct ms_buffer *out);

#endif
