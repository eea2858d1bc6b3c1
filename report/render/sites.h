/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of forms that show call sites, tags and steps. */
#ifndef MEMSHIM_REPORT_RENDER_SITES_H
#define MEMSHIM_REPORT_RENDER_SITES_H

#include "allocator/base/json.h"
#include "report/model/model.h"
#include "report/render/formats.h"

/* Members of report.json: call_sites (the largest of each device, and the rest of them as one),
 * attribution, kinds, sampling, tags,
 * steps. */
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

/* Shown for a site without frames: "[no call site]". */
const char *ms_site_without_stack(const struct ms_model *model, uint32_t site);

/* report.txt: the answer, of the out-of-memory that ended the run, or of the device if none did;
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

/* report.txt: the line on training steps. */
void ms_text_add_steps(struct ms_buffer *out, const struct ms_model *model);

/* report.txt: live memory at the device's peak, by kind. */
void ms_text_add_kinds(struct ms_buffer *out, const struct ms_model *model, int device);

/* Memory of a line of code that moved to host memory, and back; its sites together. */
struct ms_moved_line {
    struct ms_buffer text; /* ended by a zero byte */
    uint64_t spilled_bytes, spilled_blocks, promoted_bytes;
};

/* The lines with the most of it first. Free with ms_moved_lines_free. */
void ms_moved_lines(const struct ms_model *model, int device, struct ms_buffer *lines);
void ms_moved_lines_free(struct ms_buffer *lines);

static inline size_t ms_moved_line_count(const struct ms_buffer *lines)
{
    return lines->bytes / sizeof(struct ms_moved_line);
}

/* report.txt: the device's moves to host memory and back, their cost, and their lines. */
void ms_text_add_spill(struct ms_buffer *out, const struct ms_model *model, int device);
void ms_text_add_host(struct ms_buffer *out, const struct ms_model *model, int device,
                      const struct ms_counters *counters); /* of the moment in question */

/* report.txt: the largest holders at the device's peak. */
void ms_text_add_sites(struct ms_buffer *out, const struct ms_model *model, int device);

#endif
