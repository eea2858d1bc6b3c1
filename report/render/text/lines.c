/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: the lines of code that asked for memory, and those that hold most. */
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/site_rows.h"
#include "report/model/verdict/held_lines.h"
#include "report/model/verdict/held_way.h"
#include "report/render/text/parts.h"
#include "report/symbols/stacks_roles.h"

#define HOLDERS 3
#define CALLERS 3

/* ---- the largest holders ---- */

static void add_largest_rows(const struct ms_ledger_row *rows, size_t count, struct ms_buffer *out)
{
    bool shown[MS_LEDGER_ROWS] = {false};

    for (int place = 0; place < HOLDERS; place++) {
        size_t largest = count;

        for (size_t i = 0; i < count; i++) {
            const bool counts = rows[i].part == MS_LEDGER_LIVE || rows[i].part == MS_LEDGER_HOLES ||
                                rows[i].part == MS_LEDGER_DRIVER;

            if (!shown[i] && counts && (largest == count || rows[i].bytes > rows[largest].bytes)) {
                largest = i;
            }
        }
        if (largest == count) {
            break;
        }
        shown[largest] = true;
        ms_buffer_format(out, "%s%s %s", place ? ", " : "", MS_BYTES(rows[largest].bytes),
                         rows[largest].what);
    }
}

/* The line by way of which most of it was asked for, unless that comes first anyway. */
static bool add_way(const struct ms_model *model, int device, const struct ms_survey_moment *moment,
                    const char *first_line, struct ms_buffer *out)
{
    struct ms_held_way way;
    struct ms_buffer line = {0};
    bool added = false;

    if (ms_held_way(model, device, moment, &way)) {
        ms_frame_add_line(&way.frame, &line);
        ms_buffer_append(&line, "", 1);
        added = !line.failed && strcmp(line.at, first_line) != 0;
    }
    if (added) {
        ms_buffer_format(out, "%s (%s of live) in calls from %s; of all that is live:",
                         MS_BYTES(way.bytes), MS_PERCENT(way.bytes, moment->live_bytes), line.at);
    }
    ms_buffer_free(&line);
    return added;
}

void ms_text_add_holders(struct ms_buffer *out, const struct ms_model *model, int device,
                         const struct ms_survey_moment *moment, const struct ms_ledger_row *rows,
                         size_t row_count)
{
    struct ms_held_line lines[HOLDERS];
    const size_t count = moment && ms_definitions_site_count(model->definitions) > 0
                             ? ms_held_lines(model, device, moment, MS_KIND_COUNT, lines, HOLDERS)
                             : 0;
    bool has_way;

    ms_buffer_add(out, "  holds  ");
    has_way = count > 0 && add_way(model, device, moment, lines[0].text.at, out);

    for (size_t i = 0; i < count; i++) {
        ms_buffer_add(out, i || has_way ? "\n         " : "");
        ms_held_line_add(model, &lines[i], moment->live_bytes, out);
    }
    ms_held_lines_free(lines, count);
    if (count == 0) {
        add_largest_rows(rows, row_count, out);
    }
    ms_buffer_add(out, "\n");
}

/* The holders of pinned host memory. */
void ms_text_add_pinned(struct ms_buffer *out, const struct ms_model *model, int device)
{
    struct ms_buffer lines = {0};

    ms_pinned_lines(model, device, &lines);
    for (size_t i = 0; i < ms_pinned_line_count(&lines) && i < HOLDERS; i++) {
        const struct ms_pinned_line *line = (const struct ms_pinned_line *)lines.at + i;

        ms_buffer_format(out, "%s%s of pinned memory at most, asked for by ",
                         i ? "         " : "  holds  ", MS_BYTES(line->peak_bytes));
        ms_site_add_line(model, line->site, out);
        ms_buffer_add(out, "\n");
    }
    ms_buffer_free(&lines);
}

/* ---- the request ---- */

static bool is_users(const struct ms_frame *frame)
{
    return frame->language == MS_FRAME_PYTHON && frame->file &&
           !ms_is_library_script(frame->file, frame->function);
}

void ms_text_add_callers(struct ms_buffer *out, const struct ms_model *model, uint32_t site)
{
    const struct ms_frame *own = ms_site_frame(model, site);
    size_t count = 0, named = 0;

    if (!own || own->language != MS_FRAME_PYTHON) {
        return;
    }

    const struct ms_frame *frames = ms_stacks_frames(model->stacks, site, &count);

    for (const struct ms_frame *at = own + 1; at < frames + count && named < CALLERS; at++) {
        if (is_users(at)) {
            ms_buffer_add(out, named++ ? ", " : "         from ");
            ms_frame_add_line(at, out);
        }
    }
    ms_buffer_add(out, named ? "\n" : "");
}

void ms_text_add_asked(struct ms_buffer *out, const struct ms_model *model, uint32_t site,
                       const struct ms_survey_moment *moment)
{
    const struct ms_frame *own = ms_site_frame(model, site);
    const uint32_t backward = moment ? moment->backward_site : 0;

    if (!own) {
        return;
    }
    ms_buffer_add(out, "  asked  ");
    ms_site_add_line(model, site, out);
    if (!is_users(own) && strcmp(ms_site_thread(model, site), "backward") == 0 &&
        ms_site_frame(model, backward)) {
        ms_buffer_add(out, " called by ");
        ms_frame_add_line(ms_site_frame(model, backward), out);
        site = backward;
    }
    ms_buffer_add(out, "\n");
    ms_text_add_callers(out, model, site);
}
