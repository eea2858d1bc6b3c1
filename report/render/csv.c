/* SPDX-License-Identifier: Apache-2.0 */
/* The CSV that `memshim replay` reads (report/replay/recording.h): one process and device, sites by
 * number and line of code. */
#include <inttypes.h>
#include <stdio.h>

#include "allocator/base/containers/numbers.h"
#include "report/model/site_rows.h"
#include "report/render/forms.h"
#include "report/replay/recording.h"

#define WHY_BYTES  (PATH_MAX + 512)
#define LINE_BYTES 200 /* of a site's name: a row of the form has 4,096 in all */

/* Does not cut inside a character. */
static size_t cut_length(const struct ms_buffer *text)
{
    size_t bytes = text->bytes < LINE_BYTES ? text->bytes : LINE_BYTES;

    while (bytes < text->bytes && bytes > 0 && (text->at[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    return bytes;
}

/* A site's name begins with its number, so that no two sites get the same name. */
static uint32_t name_site(struct ms_recording *recording, const struct ms_model *model,
                          uint32_t site, struct ms_buffer *name)
{
    name->bytes = 0;
    ms_buffer_format(name, "%" PRIu32, site);
    if (model->stacks && site <= ms_definitions_site_count(model->definitions) &&
        ms_stacks_own_frame(model->stacks, site)) {
        ms_buffer_add(name, " ");
        ms_site_add_line(model, site, name);
    }
    name->bytes = cut_length(name);
    return ms_recording_site(recording, name->at, name->bytes);
}

/* Names the sites of operations only: a damaged trace may claim any number of others. False: memory
 * ran out. */
static bool name_sites(struct ms_recording *recording, const struct ms_model *model)
{
    struct ms_operation *operations = (struct ms_operation *)recording->operations.at;
    struct ms_numbers *named = ms_numbers_new();
    struct ms_buffer name = {0};
    bool good;

    for (size_t i = 0; named && i < ms_recording_count(recording) && !name.failed; i++) {
        const uint32_t site = operations[i].site;
        uint32_t number = site != 0 ? ms_numbers_get(named, site) : 0;

        if (number == MS_NUMBER_NONE) {
            number = name_site(recording, model, site, &name);
            (void)ms_numbers_put(named, site, number);
        }
        operations[i].site = number;
    }
    good = named && !name.failed;
    ms_numbers_delete(named);
    ms_buffer_free(&name);
    return good;
}

/* Counts in *left_out what the records lack: events that are gone, or that end objects from before.
 * False, with a sentence in `why` that names the trace. */
static bool export(const struct ms_model *model, int device, struct ms_buffer *out,
                   uint64_t *left_out, char *why, size_t why_bytes)
{
    struct ms_recording recording;
    bool written = false;

    if (!ms_recording_begin(&recording)) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", model->path);
    } else if (ms_recording_read_trace(&recording, model->path, device, why, why_bytes)) {
        written = name_sites(&recording, model);
        ms_recording_format_csv(&recording, out);
        *left_out = recording.left_out + recording.recycled_events;
        written = written && !out->failed;
        if (!written) {
            (void)snprintf(why, why_bytes, "%s: no memory to write it as csv", model->path);
        }
    }
    ms_recording_free(&recording);
    return written;
}

void ms_form_csv(struct ms_forms *forms, const struct ms_model *model,
                 const struct ms_merged *merged)
{
    char why[WHY_BYTES] = "";
    uint64_t left_out = 0;

    (void)merged;
    if (!model) {
        return;
    }
    if (!export(model, forms->choice.device, &forms->out, &left_out, why, sizeof(why))) {
        ms_forms_complain(forms, "%s", why);
        forms->failed = true;
    } else if (left_out > 0) {
        ms_forms_complain(forms,
                          "%s: %" PRIu64 " events are not in the csv: they, or what they end, are "
                          "older than the records",
                          model->path, left_out);
    }
}
