/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a dry run's answer that have files of their own. */
#ifndef MEMSHIM_REPORT_RENDER_COMMANDS_DRY_RUN_PARTS_H
#define MEMSHIM_REPORT_RENDER_COMMANDS_DRY_RUN_PARTS_H

#include "allocator/base/json.h"
#include "report/render/commands/dry_run.h"

/* The result of the other schedule; or that there is none, because it was not run. */
void ms_dry_schedules_text(const struct ms_dry_answer *answer, struct ms_buffer *out);
void ms_dry_schedules_json(const struct ms_dry_answer *answer, struct ms_json *json);

/* The places where the host read values that no kernel computed; nothing if there are none. */
void ms_dry_values_text(const struct ms_dry_answer *answer, struct ms_buffer *out);
void ms_dry_values_json(const struct ms_dry_answer *answer, struct ms_json *json);

/* Whether it fits, and with slower convolutions only: two members. */
void ms_dry_fit_json(const struct ms_card_fit *fit, struct ms_json *json);

/* The card with which answers were compared, and that version of memshim: a line, and a member. */
void ms_dry_compared_text(const char *version, struct ms_buffer *out);
void ms_dry_compared_json(struct ms_json *json);

#endif
