/* SPDX-License-Identifier: Apache-2.0 */
/* What forms.def names is made by these: a model in, text out. */
#ifndef MEMSHIM_REPORT_RENDER_FORMATS_H
#define MEMSHIM_REPORT_RENDER_FORMATS_H

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/model.h"
#include "report/render/frame_table.h"

/* report.txt: its first five lines are the answer. */
void ms_format_text(const struct ms_model *model, struct ms_buffer *out);

/* report.json (report/render/schema.json). */
void ms_format_json(const struct ms_model *model, struct ms_buffer *out);

/* The same as a member of a larger document. folder: where the report lies, null for no such
 * member. */
void ms_format_json_member(const struct ms_model *model, struct ms_json *json, const char *folder);

/* The same as the member `key` (null: in an array), where it has to stay small: how many of each
 * are listed. Of the sites that are left out one row is made, of log entries the last ones are
 * kept. */
struct ms_json_limits {
    size_t sites; /* of each device */
    size_t ooms, thresholds, tags;
    struct ms_frame_table *frames; /* frames are numbers in this table; null: written out */
};

void ms_format_json_limited(const struct ms_model *model, struct ms_json *json, const char *key,
                            const char *folder, const struct ms_json_limits *limits);

/* Members that say which process it is: those of report.json and of memshim top. */
void ms_json_add_process(struct ms_json *json, const struct ms_file_header *header);

/* timeline.json: Chrome's trace-event form, for Perfetto. */
void ms_format_timeline(const struct ms_model *model, struct ms_buffer *out);

/* Several processes in one timeline: begin, each, end. start_unix_ns: time 0 of the whole. pid: one
 * number a process, since those of two hosts may be the same. */
void ms_timeline_begin(struct ms_json *json, uint64_t start_unix_ns, const char *what);
void ms_timeline_add(struct ms_json *json, const struct ms_model *model, uint64_t start_unix_ns,
                     int64_t pid);
void ms_timeline_end(struct ms_json *json);

/* The stacks of what was live at the peak of each device, collapsed: "outer;inner bytes" a line.
 * process: the outermost frame of each, where there are several processes; else empty. */
void ms_folded_add(struct ms_buffer *out, const struct ms_model *model, const char *process);

/* report.html, the page (page/): one or several processes: begin, each, end. It stays under
 * MS_PAGE_MOST_BYTES however long the run was. */
#define MS_PAGE_MOST_BYTES (UINT64_C(5) << 20)

struct ms_page {
    struct ms_json json;
    size_t share_bytes; /* that each process may take */
    size_t left_out;    /* processes that take more whatever is left out of them */
    bool no_source;     /* no lines of source in it */
};

struct ms_merged;

void ms_page_begin(struct ms_page *page, struct ms_buffer *out, size_t processes, bool no_source);
/* False where the process has no room: the page says how many have none. */
bool ms_page_add(struct ms_page *page, const struct ms_model *model);

/* merged: of the same processes. */
void ms_page_end(struct ms_page *page, const struct ms_merged *merged);

/* Names that several forms share. */
const char *ms_threshold_name(uint64_t state);
const char *ms_end_name(enum ms_process_end end);

#endif
