/* SPDX-License-Identifier: Apache-2.0 */
/* Gives call sites of several runs the same number if their frames are the same. */
#include "report/model/compare/site_match.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/path.h"
#include "report/model/site_rows.h"

/* Makes names printable: no byte of them is a tab or the end of a line. */
static void add_frame(struct ms_buffer *text, const struct ms_frame *frame, bool path)
{
    ms_buffer_add(text, "\n");
    ms_buffer_add_plain(text, frame->function);
    ms_buffer_add(text, "\t");
    if (frame->file) {
        ms_buffer_add_plain(text, path ? frame->file : ms_base_name(frame->file));
    } else if (frame->module) {
        ms_buffer_add_plain(text, ms_base_name(frame->module));
    }
    ms_buffer_format(text, "\t%" PRIu32, frame->line);
}

static void add_site(struct ms_buffer *text, const struct ms_model *model, uint32_t site, bool path)
{
    size_t count = 0;
    const struct ms_frame *frames =
        model->stacks ? ms_stacks_frames(model->stacks, site, &count) : NULL;

    ms_site_add_line(model, count > 0 ? site : 0, text);
    for (size_t i = 0; i < count; i++) {
        add_frame(text, &frames[i], path);
    }
}

size_t ms_site_match_add(struct ms_site_match *match, const struct ms_model *model, uint32_t site)
{
    const size_t start = match->shown.bytes;
    bool added = false;

    match->text.bytes = 0;
    add_site(&match->text, model, site, false);

    const size_t number = ms_strings_add(&match->keys, match->text.at ? match->text.at : "",
                                         match->text.bytes, &added);

    if (added) {
        add_site(&match->shown, model, site, true);
        ms_buffer_append(&match->shown, "", 1);
        ms_buffer_append(&match->starts, (const char *)&start, sizeof(start));
    }
    return number;
}

/* The text to show. */
static const char *text_at(const struct ms_site_match *match, size_t number)
{
    const size_t *starts = (const size_t *)match->starts.at;

    return number < match->starts.bytes / sizeof(*starts) && !match->shown.failed
               ? match->shown.at + starts[number]
               : "";
}

void ms_site_match_add_line(const struct ms_site_match *match, size_t number, struct ms_buffer *out)
{
    const char *text = text_at(match, number);

    ms_buffer_append(out, text, strcspn(text, "\n"));
}

void ms_site_match_json(const struct ms_site_match *match, size_t number, struct ms_json *json)
{
    const char *at = text_at(match, number);
    size_t length = strcspn(at, "\n");

    ms_json_part(json, "line", at, length);
    ms_json_open(json, "frames", '[');
    for (at += length; *at == '\n'; at += length) {
        at++;
        length = strcspn(at, "\t");
        ms_json_open(json, NULL, '{');
        ms_json_part(json, "function", at, length);
        at += length + (at[length] == '\t');
        length = strcspn(at, "\t");
        ms_json_part(json, "file", at, length);
        at += length + (at[length] == '\t');
        length = strcspn(at, "\n");
        ms_json_count(json, "line", strtoull(at, NULL, 10));
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

void ms_site_match_free(struct ms_site_match *match)
{
    ms_strings_free(&match->keys);
    ms_buffer_free(&match->shown);
    ms_buffer_free(&match->starts);
    ms_buffer_free(&match->text);
}
