/* SPDX-License-Identifier: Apache-2.0 */
/* Forms that stand in one file each: a model in, text out. */
#ifndef MEMSHIM_REPORT_RENDER_FORMATS_H
#define MEMSHIM_REPORT_RENDER_FORMATS_H

#include <limits.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/model.h"

/* timeline.json: Chrome's trace-event form, for Perfetto. */
void ms_format_timeline(const struct ms_model *model, struct ms_buffer *out);

/* The stacks of the live memory at each device's peak, collapsed: "outer;inner bytes" a line.
 * process: the outermost frame of each, if there are several processes; else empty. */
void ms_folded_add(struct ms_buffer *out, const struct ms_model *model, const char *process);

/* Shown for a site without frames: "[no call site]". */
const char *ms_site_without_stack(const struct ms_model *model, uint32_t site);

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

#endif
