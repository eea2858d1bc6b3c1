/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a dry run's answer that have files of their own. */
#ifndef MEMSHIM_REPORT_RENDER_COMMANDS_DRY_RUN_PARTS_H
#define MEMSHIM_REPORT_RENDER_COMMANDS_DRY_RUN_PARTS_H

#include "allocator/base/json.h"
#include "report/render/commands/dry_run.h"

/* What the other schedule comes to; that there is none, where it was not run. */
void ms_dry_schedules_text(const struct ms_dry_answer *answer, struct ms_buffer *out);
void ms_dry_schedules_json(const struct ms_dry_answer *answer, struct ms_json *json);

/* Where the host read values that no kernel computed; nothing where it did not. */
void ms_dry_values_text(const struct ms_dry_answer *answer, struct ms_buffer *out);
void ms_dry_values_json(const struct ms_dry_answer *answer, struct ms_json *json);

/* With which card answers were compared, by which version of memshim: a line, and a member. */
void ms_dry_compared_text(const char *version, struct ms_buffer *out);
void ms_dry_compared_json(struct ms_json *json);

#endif
