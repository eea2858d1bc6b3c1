/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: call sites, kinds and steps. */
#include <stdlib.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/model/step_of.h"
#include "report/render/text/parts.h"

#define LISTED_LINES 12

/* A line of code with all its sites. */
struct line {
    struct ms_buffer text; /* ended by a zero byte */
    uint64_t at_peak_bytes, allocations, sites;
};

static bool is_same(const struct line *line, const struct ms_buffer *text)
{
    return line->text.bytes == text->bytes && memcmp(line->text.at, text->at, text->bytes) == 0;
}

static int by_peak(const void *a, const void *b)
{
    const struct line *left = a, *right = b;

    return left->at_peak_bytes > right->at_peak_bytes   ? -1
           : left->at_peak_bytes < right->at_peak_bytes ? 1
                                                        : strcmp(left->text.at, right->text.at);
}

static struct line *find_line(struct ms_buffer *lines, struct ms_buffer *text)
{
    struct line *all = (struct line *)lines->at;

    for (size_t i = 0; i < lines->bytes / sizeof(*all); i++) {
        if (is_same(&all[i], text)) {
            ms_buffer_free(text);
            return &all[i];
        }
    }

    struct line *line = ms_buffer_extend(lines, sizeof(*line));

    if (line) {
        line->text = *text;
    } else {
        ms_buffer_free(text);
    }
    return line;
}

/* Live at the peak, or served by the driver beside it. */
static uint64_t all_at_peak(const struct ms_buffer *rows)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < ms_site_row_count(rows); i++) {
        bytes += ms_site_row_at_peak(ms_site_row_at(rows, i));
    }
    return bytes;
}

/* Joins the largest sites by their line: one line may have a hundred stacks, and there are more
 * sites than are worth showing. */
static void collect(const struct ms_model *model, const struct ms_buffer *rows,
                    struct ms_buffer *lines)
{
    const size_t most = 1000;

    for (size_t i = 0; i < ms_site_row_count(rows) && i < most; i++) {
        const struct ms_site_row *row = ms_site_row_at(rows, i);
        struct ms_buffer text = {0};

        if (ms_site_row_at_peak(row) == 0) {
            break;
        }
        ms_site_add_line(model, row->site, &text);
        ms_buffer_append(&text, "", 1);

        struct line *line = text.failed ? NULL : find_line(lines, &text);

        if (line) {
            line->at_peak_bytes += ms_site_row_at_peak(row);
            line->allocations += row->sums.allocations;
            line->sites++;
        }
    }
    if (lines->bytes > 0) {
        qsort(lines->at, lines->bytes / sizeof(struct line), sizeof(struct line), by_peak);
    }
}

static void add_attribution(struct ms_buffer *out, const struct ms_model *model,
                            const struct ms_buffer *rows)
{
    const struct ms_attribution all = ms_attribute(model, rows);
    const uint64_t forward_bytes = all.live_bytes - all.backward_bytes;
    char share[MS_UNIT_TEXT_BYTES], python[MS_UNIT_TEXT_BYTES], mean[MS_UNIT_TEXT_BYTES];
    const uint64_t mean_bytes = ms_definitions_sampling_bytes(model->definitions);

    if (all.live_bytes > 0) {
        ms_buffer_format(
            out, "  %s of the live bytes have a stack",
            ms_percent_text(all.with_site_bytes, all.live_bytes, share, sizeof(share)));
    }
    if (forward_bytes > 0) {
        ms_buffer_format(
            out, "; of those outside backward, %s have a Python line",
            ms_percent_text(all.with_python_bytes, forward_bytes, python, sizeof(python)));
    }
    ms_buffer_add(out, all.live_bytes > 0 ? ".\n" : "");
    if (mean_bytes > 0) {
        ms_buffer_format(out,
                         "  Call sites were sampled, one per %s: these lines hold more than is "
                         "shown (report.json has an estimate).\n",
                         ms_bytes_text(mean_bytes, mean, sizeof(mean)));
    }
}

/* ---- steps ---- */

/* The step in which a run died has its passes counted as well. cut: its number; 0: unknown. */
static void add_passes(struct ms_buffer *out, const struct ms_recurrence *found, uint64_t steps,
                       bool died, uint64_t cut)
{
    char passes[MS_UNIT_TEXT_BYTES], step[MS_UNIT_TEXT_BYTES];

    if (!died && steps > 0 && found->passes > steps && found->passes % steps == 0) {
        ms_buffer_format(out, " of %s backward passes each",
                         ms_count_text(found->passes / steps, passes, sizeof(passes)));
    } else if (found->passes != steps) {
        ms_buffer_format(out, "; %s backward pass%s",
                         ms_count_text(found->passes, passes, sizeof(passes)),
                         found->passes == 1 ? "" : "es");
        if (cut > 0) {
            ms_buffer_format(out, ", step %s's included", ms_count_text(cut, step, sizeof(step)));
        }
    }
}

static void add_evaluations(struct ms_buffer *out, const struct ms_recurrence *found)
{
    char count[MS_UNIT_TEXT_BYTES], batches[MS_UNIT_TEXT_BYTES];

    if (found->evaluations_known && found->evaluations > 0) {
        ms_buffer_format(out, "; %s evaluation%s, %s batch%s",
                         ms_count_text(found->evaluations, count, sizeof(count)),
                         found->evaluations == 1 ? "" : "s",
                         ms_count_text(found->evaluation_batches, batches, sizeof(batches)),
                         found->evaluation_batches == 1 ? "" : "es");
    }
}

void ms_text_add_steps(struct ms_buffer *out, const struct ms_model *model)
{
    const struct ms_recurrence *found = &model->recurrence;
    const bool recorded = model->steps.count > 0;
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    const uint64_t completed = fatal ? ms_steps_completed(model, fatal) : UINT64_MAX;
    const bool cut = completed < UINT64_MAX;
    const uint64_t steps = recorded ? model->steps.number : cut ? completed : found->count;
    char count[MS_UNIT_TEXT_BYTES];

    if (!recorded && !found->known && found->passes == 0) {
        return;
    }
    ms_buffer_add(out, "  steps  ");
    if (!recorded && !found->known) {
        ms_buffer_format(out, "unknown: %s", found->why);
    } else {
        ms_buffer_format(out, "%s%s", ms_count_text(steps, count, sizeof(count)),
                         cut                                                      ? " completed"
                         : fatal && !recorded && ms_step_of_oom(model, fatal) > 0 ? " begun"
                                                                                  : "");
        if (found->whole && found->confidence == 0) {
            add_passes(out, found, steps, fatal != NULL, cut ? completed + 1 : 0);
        }
    }
    add_evaluations(out, found);
    if (recorded) {
        ms_buffer_format(out, "   (from %s)",
                         model->steps.by_source[MS_STEP_CALLED] ? "memshim_step" : "NVTX ranges");
    } else if (found->confidence > 0) {
        ms_buffer_format(out, "   (found from the order of call sites, %.0f %% of which recurs)",
                         100 * found->confidence);
    } else if (found->known) {
        ms_buffer_add(out, ms_model_hides_tensors(model)
                               ? "   (found from call sites that recur; without tensors, there may "
                                 "have been more)"
                               : "   (found from call sites that recur)");
    }
    ms_buffer_add(out, "\n");
}

/* ---- kinds ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct ms_kind_row *left = a, *right = b;

    return left->at_peak_bytes > right->at_peak_bytes   ? -1
           : left->at_peak_bytes < right->at_peak_bytes ? 1
                                                        : strcmp(left->name, right->name);
}

void ms_text_add_kinds(struct ms_buffer *out, const struct ms_model *model, int device)
{
    const struct ms_moment peak = ms_aggregate_peak_live(&model->devices[device].sums);
    struct ms_kind_row all[MS_KIND_ROWS];
    struct ms_buffer rows = {0};
    char bytes[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES];

    if (ms_definitions_site_count(model->definitions) == 0 || peak.live_bytes == 0) {
        return;
    }
    ms_site_rows(model, device, &rows);
    ms_kind_rows(model, device, &rows, all);
    ms_buffer_free(&rows);
    qsort(all, MS_KIND_ROWS, sizeof(*all), by_bytes);
    ms_buffer_format(
        out,
        "\nWhat was live when live bytes peaked, after %s, and the line that held most of each\n",
        ms_duration_text(peak.time_ns, bytes, sizeof(bytes)));
    for (int i = 0; i < MS_KIND_ROWS && all[i].at_peak_bytes > 0; i++) {
        ms_buffer_format(
            out, "  %11s  %7s  %-16s  ", ms_bytes_text(all[i].at_peak_bytes, bytes, sizeof(bytes)),
            ms_percent_text(all[i].at_peak_bytes, peak.live_bytes, share, sizeof(share)),
            all[i].name);
        ms_site_add_line(model, all[i].largest_site, out);
        ms_buffer_add(out, "\n");
    }
}

/* ---- lines ---- */

void ms_text_add_sites(struct ms_buffer *out, const struct ms_model *model, int device)
{
    struct ms_buffer rows = {0}, lines = {0};
    char bytes[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES], count[MS_UNIT_TEXT_BYTES];
    char whole[MS_UNIT_TEXT_BYTES];

    if (ms_definitions_site_count(model->definitions) == 0) {
        return;
    }
    ms_site_rows(model, device, &rows);
    if (all_at_peak(&rows) == 0) {
        ms_buffer_free(&rows);
        return;
    }
    collect(model, &rows, &lines);

    const struct ms_moment peak = ms_aggregate_peak_live(&model->devices[device].sums);
    const uint64_t live_bytes = peak.live_bytes;
    const uint64_t all_bytes = all_at_peak(&rows);
    struct line *all = (struct line *)lines.at;
    const size_t kept = lines.bytes / sizeof(*all);

    ms_buffer_format(out,
                     "\nWho asked for what was live when live bytes peaked, after %s%s   (parts of "
                     "%s; allocations of the whole run)\n",
                     ms_duration_text(peak.time_ns, bytes, sizeof(bytes)),
                     all_bytes > live_bytes ? ", and for what the driver served beside it" : "",
                     ms_bytes_text(all_bytes, whole, sizeof(whole)));
    for (size_t i = 0; i < kept && i < LISTED_LINES; i++) {
        ms_buffer_format(out, "  %11s  %7s  ",
                         ms_bytes_text(all[i].at_peak_bytes, bytes, sizeof(bytes)),
                         ms_percent_text(all[i].at_peak_bytes, all_bytes, share, sizeof(share)));
        ms_buffer_add(out, all[i].text.at);
        ms_buffer_format(out, "   %s allocation%s",
                         ms_count_text(all[i].allocations, count, sizeof(count)),
                         all[i].allocations == 1 ? "" : "s");
        if (all[i].sites > 1) {
            ms_buffer_format(out, ", %s stacks", ms_count_text(all[i].sites, count, sizeof(count)));
        }
        ms_buffer_add(out, "\n");
    }
    add_attribution(out, model, &rows);
    for (size_t i = 0; i < kept; i++) {
        ms_buffer_free(&all[i].text);
    }
    ms_buffer_free(&lines);
    ms_buffer_free(&rows);
}
