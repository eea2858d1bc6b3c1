/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind forms.def: a model in, text out. */
#ifndef MEMSHIM_REPORT_RENDER_FORMATS_H
#define MEMSHIM_REPORT_RENDER_FORMATS_H

#include <limits.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/model.h"
#include "report/render/frame_table.h"

/* report.txt: its first five lines are the answer. */
void ms_format_text(const struct ms_model *model, struct ms_buffer *out);

/* report.json (report/render/schema.json). */
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

/* timeline.json: Chrome's trace-event form, for Perfetto. */
void ms_format_timeline(const struct ms_model *model, struct ms_buffer *out);

/* The stacks of the live memory at each device's peak, collapsed: "outer;inner bytes" a line.
 * process: the outermost frame of each, if there are several processes; else empty. */
void ms_folded_add(struct ms_buffer *out, const struct ms_model *model, const char *process);

/* report.html, the page (page/), for one or several processes: begin, each, end. It stays below
 * MS_PAGE_MOST_BYTES however long the run was. */
#define MS_PAGE_MOST_BYTES (UINT64_C(5) << 20)

/* In the folder of a run that was dry: the cards that it fits, for the pages of the run. Written by
 * memshim dry-run (ms_dry_cards_json), before them. */
#define MS_PAGE_CARDS "cards.json"

struct ms_page {
    struct ms_json json;
    char run_dir[PATH_MAX]; /* of the first process */
    size_t share_bytes;     /* the room of each process */
    size_t left_out;        /* processes that do not fit, whatever is left out */
    bool no_source;         /* without lines of source */
};

struct ms_merged;

void ms_page_begin(struct ms_page *page, struct ms_buffer *out, size_t processes, bool no_source);
/* False: there is no room for the process; the page says how many are missing. */
bool ms_page_add(struct ms_page *page, const struct ms_model *model);

/* merged: of the same processes. */
void ms_page_end(struct ms_page *page, const struct ms_merged *merged);

/* A name that several forms share. */
const char *ms_end_name(enum ms_process_end end);

#endif
