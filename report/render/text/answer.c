/* SPDX-License-Identifier: Apache-2.0 */
/* The answer, as lines of text and as JSON. The JSON is made from the text, so the two cannot
 * differ. */
#include "report/render/text/answer.h"

#include <string.h>

#include "report/render/text/parts.h"

#define INDENT 9 /* blanks and word before a line's text */

static bool has_several_devices(const struct ms_model *model)
{
    int used = 0;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        used += model->devices[i].used;
    }
    return used > 1;
}

void ms_answer_text(struct ms_buffer *out, const struct ms_model *model)
{
    const int main_device = ms_model_main_device(model);

    if (ms_model_fatal_oom(model)) {
        ms_text_add_oom_answer(out, model, has_several_devices(model));
    } else if (main_device >= 0) {
        ms_text_add_good_answer(out, model, main_device);
    } else {
        ms_buffer_add(out, model->sums_exact
                               ? "The trace shows no use of a device.\n"
                               : "Nothing that the trace says of a device could be read.\n");
    }
    ms_text_add_steps(out, model);
}

/* ---- as JSON ---- */

/* The length of the line's label; 0: it continues the line before. */
static size_t label_bytes(const char *line, size_t bytes)
{
    return bytes > INDENT && line[2] != ' ' ? strcspn(line + 2, " ") : 0;
}

static void add_line(struct ms_json *json, const char *line, size_t bytes, bool *open)
{
    const size_t label = label_bytes(line, bytes);

    if (label > 0 || !*open) {
        if (*open) {
            ms_json_close(json, ']');
            ms_json_close(json, '}');
        }
        ms_json_open(json, NULL, '{');
        ms_json_part(json, "label", line + 2, label);
        ms_json_open(json, "text", '[');
        *open = true;
    }
    const size_t skipped = bytes < INDENT ? strspn(line, " ") : INDENT;

    ms_json_part(json, NULL, line + skipped, bytes - skipped);
}

static void add_lines(struct ms_json *json, const char *text, const char *end)
{
    bool open = false;

    ms_json_open(json, "lines", '[');
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        const size_t bytes = (size_t)((line_end ? line_end : end) - text);

        add_line(json, text, bytes, &open);
        text += bytes + 1;
    }
    if (open) {
        ms_json_close(json, ']');
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

void ms_answer_json(struct ms_json *json, const struct ms_model *model)
{
    struct ms_buffer text = {0};

    ms_answer_text(&text, model);
    const char *first_end = text.bytes > 0 ? memchr(text.at, '\n', text.bytes) : NULL;
    const char *end = text.at + text.bytes;
    const char *headline_end = first_end ? first_end : end;

    ms_json_open(json, "answer", '{');
    ms_json_part(json, "headline", text.at ? text.at : "", (size_t)(headline_end - text.at));
    add_lines(json, first_end ? first_end + 1 : end, end);
    ms_json_close(json, '}');
    ms_buffer_free(&text);
}
