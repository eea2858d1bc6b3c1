/* SPDX-License-Identifier: Apache-2.0 */
/* Joins call sites whose memory moved to lines of code. */
#include "report/model/moved_lines.h"

#include <stdlib.h>
#include <string.h>

#include "report/model/site_rows.h"

static int by_moved(const void *a, const void *b)
{
    const struct ms_moved_line *left = a, *right = b;

    if (left->spilled_bytes != right->spilled_bytes) {
        return left->spilled_bytes > right->spilled_bytes ? -1 : 1;
    }
    return strcmp(left->text.at, right->text.at);
}

static struct ms_moved_line *find_line(struct ms_buffer *lines, struct ms_buffer *text)
{
    struct ms_moved_line *all = (struct ms_moved_line *)lines->at;

    for (size_t i = 0; i < ms_moved_line_count(lines); i++) {
        if (strcmp(all[i].text.at, text->at) == 0) {
            ms_buffer_free(text);
            return &all[i];
        }
    }

    struct ms_moved_line *line = ms_buffer_extend(lines, sizeof(*line));

    if (line) {
        line->text = *text;
    } else {
        ms_buffer_free(text);
    }
    return line;
}

void ms_moved_lines(const struct ms_model *model, int device, struct ms_buffer *lines)
{
    struct ms_buffer rows = {0};

    ms_site_rows(model, device, &rows);
    for (size_t i = 0; i < ms_site_row_count(&rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(&rows, i);
        struct ms_buffer text = {0};

        if (row->sums.spilled_bytes + row->sums.promoted_bytes == 0) {
            continue;
        }
        ms_site_add_line(model, row->site, &text);
        ms_buffer_append(&text, "", 1);

        struct ms_moved_line *line = text.failed ? NULL : find_line(lines, &text);

        if (line) {
            line->spilled_bytes += row->sums.spilled_bytes;
            line->spilled_blocks += row->sums.spilled_blocks;
            line->promoted_bytes += row->sums.promoted_bytes;
        }
    }
    ms_buffer_free(&rows);
    if (lines->bytes > 0) {
        qsort(lines->at, ms_moved_line_count(lines), sizeof(struct ms_moved_line), by_moved);
    }
}

void ms_moved_lines_free(struct ms_buffer *lines)
{
    for (size_t i = 0; i < ms_moved_line_count(lines); i++) {
        ms_buffer_free(&((struct ms_moved_line *)lines->at)[i].text);
    }
    ms_buffer_free(lines);
}
