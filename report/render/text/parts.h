/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of report.txt: each adds lines to the text. */
#ifndef MEMSHIM_REPORT_RENDER_TEXT_PARTS_H
#define MEMSHIM_REPORT_RENDER_TEXT_PARTS_H

#include "allocator/base/buffer.h"
#include "report/model/model.h"

/* The answer, of the out-of-memory that ended the run, or of the device if none did;
 * and the ledger of the device at that moment, or at its peak. */
void ms_text_add_oom_answer(struct ms_buffer *out, const struct ms_model *model, bool name_device);
void ms_text_add_good_answer(struct ms_buffer *out, const struct ms_model *model, int device);
void ms_text_add_ledger(struct ms_buffer *out, const struct ms_model *model, int device);

/* The lines of code with the most memory at the moment; if they are unknown, the rows of the
 * ledger. */
struct ms_survey_moment;
struct ms_ledger_row;
void ms_text_add_holders(struct ms_buffer *out, const struct ms_model *model, int device,
                         const struct ms_survey_moment *moment, const struct ms_ledger_row *rows,
                         size_t row_count);

/* Who emptied the device's caches again and again, and the cost; nothing if nobody did. */
void ms_text_add_emptied(struct ms_buffer *out, const struct ms_model *model, int device);

/* The lines of code with the most pinned host memory; nothing if there is none. */
void ms_text_add_pinned(struct ms_buffer *out, const struct ms_model *model, int device);

/* The line whose request failed, and its callers; nothing if it is unknown. Autograd's threads have
 * no Python frames: for their requests it is the line that called autograd. */
void ms_text_add_asked(struct ms_buffer *out, const struct ms_model *model, uint32_t site,
                       const struct ms_survey_moment *moment);

/* The callers of that line, in the program's own Python: for a function that training and
 * evaluation share they show which it was. Nothing if there are none. */
void ms_text_add_callers(struct ms_buffer *out, const struct ms_model *model, uint32_t site);

/* What helps: the line `next`, and those below it that continue it. */
struct ms_judgement;
void ms_text_add_next(struct ms_buffer *out, const struct ms_model *model,
                      const struct ms_judgement *judgement, const struct ms_model_oom *oom);

/* Lines below the one on growth: who called it, and where most of the memory was asked for. */
struct ms_leak;
void ms_text_add_leak(struct ms_buffer *out, const struct ms_model *model,
                      const struct ms_leak *leak);

/* For a run that growth did not end: the growth, if it matters. */
void ms_text_add_growth(struct ms_buffer *out, const struct ms_model *model, int device);

/* A clause. */
void ms_text_add_fragmentation(struct ms_buffer *out, const struct ms_aggregate *sums);

/* The line on training steps. */
void ms_text_add_steps(struct ms_buffer *out, const struct ms_model *model);

/* Live memory at the device's peak, by kind. */
void ms_text_add_kinds(struct ms_buffer *out, const struct ms_model *model, int device);

/* The device's moves to host memory and back, their cost, and their lines. */
void ms_text_add_spill(struct ms_buffer *out, const struct ms_model *model, int device);
void ms_text_add_host(struct ms_buffer *out, const struct ms_model *model, int device,
                      const struct ms_counters *counters); /* of the moment in question */

/* The largest holders at the device's peak. */
void ms_text_add_sites(struct ms_buffer *out, const struct ms_model *model, int device);

/* What-if (report/model/verdict/what_if.h): the lines that end an out-of-memory's answer.
 * rest_follows: of the judgement. */
void ms_what_if_text(struct ms_buffer *out, const struct ms_model *model, bool rest_follows);

#endif
