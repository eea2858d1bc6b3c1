/* SPDX-License-Identifier: Apache-2.0 */
/* Collapsed stacks, which flame-graph tools read: a line for each stack, "outermost;...;innermost
 * bytes". */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/model/site_rows.h"
#include "report/render/formats.h"
#include "report/render/forms.h"

/* One printable line without separators. */
static void add_name(struct ms_buffer *out, const char *name)
{
    while (*name) {
        const size_t plain = strcspn(name, ";");
        char part[256];
        size_t bytes = plain < sizeof(part) - 4 ? plain : sizeof(part) - 4;

        /* Do not cut inside a character. */
        while (bytes < plain && bytes > sizeof(part) - 8 && (name[bytes] & 0xc0) == 0x80) {
            bytes--;
        }
        memcpy(part, name, bytes);
        part[bytes] = '\0';
        ms_buffer_add_plain(out, part);
        name += bytes;
        if (*name == ';') {
            ms_buffer_add(out, "\\x3b");
            name++;
        }
    }
}

static void add_frame(struct ms_buffer *out, const struct ms_frame *frame)
{
    add_name(out, frame->function);
    if (frame->language == MS_FRAME_PYTHON && frame->file) {
        ms_buffer_add(out, " (");
        add_name(out, frame->file);
        ms_buffer_format(out, ":%" PRIu32 ")", frame->line);
    }
}

const char *ms_site_without_stack(const struct ms_model *model, uint32_t id)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    return site && (site->flags & MS_SITE_SAMPLED_OUT) ? "[passed over by sampling]"
                                                       : "[no call site]";
}

static void add_row(struct ms_buffer *out, const struct ms_model *model, const char *root,
                    const struct ms_site_row *row)
{
    size_t count = 0;
    const struct ms_frame *frames =
        model->stacks ? ms_stacks_frames(model->stacks, row->site, &count) : NULL;

    if (root[0]) {
        add_name(out, root);
        ms_buffer_add(out, ";");
    }
    if (count == 0) {
        ms_buffer_add(out, ms_site_without_stack(model, row->site));
    }
    for (size_t i = count; i-- > 0;) {
        add_frame(out, &frames[i]);
        ms_buffer_add(out, i > 0 ? ";" : "");
    }
    ms_buffer_format(out, " %" PRIu64 "\n", ms_site_row_at_peak(row));
}

void ms_folded_add(struct ms_buffer *out, const struct ms_model *model, const char *process)
{
    int devices = 0;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        devices += model->devices[i].used;
    }
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        struct ms_buffer rows = {0};
        char root[MS_PROGRAM_BYTES + 64];

        if (!model->devices[i].used) {
            continue;
        }
        if (devices > 1) {
            snprintf(root, sizeof(root), "%s%sdevice %d", process, process[0] ? ", " : "", i);
        } else {
            snprintf(root, sizeof(root), "%s", process);
        }
        ms_site_rows(model, i, &rows);
        for (size_t k = 0; k < ms_site_row_count(&rows); k++) {
            if (ms_site_row_at_peak(ms_site_row_at(&rows, k)) > 0) {
                add_row(out, model, root, ms_site_row_at(&rows, k));
            }
        }
        ms_buffer_free(&rows);
    }
}

void ms_form_folded(struct ms_forms *forms, const struct ms_model *model,
                    const struct ms_merged *merged)
{
    char name[MS_PROGRAM_BYTES + MS_HOST_BYTES + 64] = "";

    (void)merged;
    if (!model) {
        return;
    }
    if (forms->expected > 1 && model->header.rank >= 0) {
        (void)snprintf(name, sizeof(name), "rank %d", (int)model->header.rank);
    } else if (forms->expected > 1) {
        (void)snprintf(name, sizeof(name), "%s pid %d on %s", model->header.program,
                       (int)model->header.pid, model->header.host);
    }
    ms_folded_add(&forms->out, model, name);
}
