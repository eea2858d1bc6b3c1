/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: growth, the line that keeps the memory, and the way to it. */
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/model/verdict/leaks.h"
#include "report/render/text/parts.h"
#include "report/symbols/stacks_roles.h"

#define CALLERS 3

/* The user's frames that led to a line, innermost first. */
static void add_frames(const struct ms_frame *frames, size_t count, struct ms_buffer *out)
{
    for (size_t i = 0; i < count; i++) {
        ms_buffer_add(out, i ? ", " : "from ");
        ms_frame_add_line(&frames[i], out);
    }
}

static bool is_same_frame(const struct ms_frame *a, const struct ms_frame *b)
{
    return a->line == b->line && a->file && b->file && strcmp(a->file, b->file) == 0 &&
           strcmp(a->function, b->function) == 0;
}

/* The user's frames that led to the site's own frame, from the innermost out to `to`. */
static void add_way(const struct ms_model *model, uint32_t site, const struct ms_frame *to,
                    struct ms_buffer *out)
{
    const struct ms_frame *own = ms_site_frame(model, site);
    struct ms_frame way[CALLERS];
    size_t count = 0, used = 0;
    const struct ms_frame *frames = ms_stacks_frames(model->stacks, site, &count);

    for (const struct ms_frame *at = own + 1; at < frames + count && used < CALLERS; at++) {
        if (at->language == MS_FRAME_PYTHON && at->file && is_same_frame(at, to)) {
            break;
        }
        if (at->language == MS_FRAME_PYTHON && at->file &&
            !ms_is_library_script(at->file, at->function)) {
            way[used++] = *at;
        }
    }
    if (used > 0) {
        ms_buffer_add(out, "         ");
        add_frames(way, used, out);
        ms_buffer_add(out, "\n");
    }
}

/* The callers of the line that keeps memory, and where most of it was asked for. */
void ms_text_add_leak(struct ms_buffer *out, const struct ms_model *model,
                      const struct ms_leak *leak)
{
    const struct ms_frame *own = ms_site_frame(model, leak->all.site);

    if (leak->caller_count > 0) {
        ms_buffer_add(out, "         ");
        add_frames(leak->callers, leak->caller_count, out);
        ms_buffer_add(out, "\n");
    }
    if (!leak->has_culprit || !own || is_same_frame(own, &leak->culprit)) {
        return;
    }
    ms_buffer_add(out, "         ");
    if (leak->largest_bytes < leak->all.grown_bytes) {
        ms_buffer_format(out, "%s of the ", MS_BYTES(leak->largest_bytes));
    } else {
        ms_buffer_add(out, "all ");
    }
    ms_buffer_format(out, "%s kept were asked for at ", MS_BYTES(leak->all.grown_bytes));
    ms_site_add_line(model, leak->all.site, out);
    if (leak->all.round != MS_ROUND_TIME && !ms_leak_is_each_time(leak)) {
        ms_buffer_add(out, ", ");
        ms_leak_add_rate(&leak->all, leak->largest_bytes_per_round, out);
    }
    ms_buffer_add(out, "\n");
    add_way(model, leak->all.site, &leak->culprit, out);
}

static void add_alarm(const struct ms_model *model, const struct ms_growth *growth,
                      const struct ms_leak *leak, struct ms_buffer *out)
{
    ms_buffer_add(out, "  GROWS  ");
    ms_leak_add_line(model, leak, out);
    if (leak->all.round == MS_ROUND_TIME) {
        ms_buffer_format(out, ": %s more every hour (~)\n",
                         MS_BYTES((uint64_t)leak->all.bytes_per_hour));
    } else {
        ms_buffer_add(out, ": ");
        ms_leak_add_every(&leak->all, "", out);
        ms_buffer_format(out, " since step %s, %s by now", MS_COUNT(leak->all.since_step),
                         MS_BYTES(leak->all.grown_bytes));
        if (leak->all.cap_at_step > 0) {
            ms_buffer_format(out, "; it hits the cap at step %s (~)",
                             MS_COUNT(leak->all.cap_at_step));
        } else if (growth->past_cap) {
            ms_buffer_add(out, "; more is live than the cap allows, the rest lies in host memory");
        }
        ms_buffer_add(out, "\n");
    }
    if (ms_model_hides_tensors(model)) {
        ms_buffer_add(out, "         (this line only asked for the segments: with "
                           "MEMSHIM_TORCH=off it is not known which line keeps what is in "
                           "them)\n");
    }
    ms_text_add_leak(out, model, leak);
}

void ms_text_add_growth(struct ms_buffer *out, const struct ms_model *model, int device)
{
    const struct ms_survey_device *survey = model->survey ? &model->survey->devices[device] : NULL;
    const struct ms_growth *growth = survey ? &survey->growth : NULL;
    size_t listed = 0;

    if (!growth || !growth->known) {
        return;
    }
    for (size_t i = 0; i < growth->leak_count; i++) {
        if (!growth->leaks[i].negligible) {
            add_alarm(model, growth, &growth->leaks[i], out);
            listed++;
        }
    }
    if (listed > 0) {
        return;
    }
    if (growth->clock.by_time) {
        ms_buffer_add(out, "  grows  nothing, judged over time (steps are not known)\n");
    } else {
        const double slope = growth->whole.bytes_per_step;

        ms_buffer_format(out, "  grows  nothing%s (slope %s%s +- %s a step over %s steps)\n",
                         growth->leak_count > 0 ? " that matters" : "", slope <= -0.5 ? "-" : "",
                         MS_BYTES((uint64_t)(slope < 0 ? -slope + 0.5 : slope + 0.5)),
                         MS_BYTES((uint64_t)(growth->whole.error + 0.5)),
                         MS_COUNT(growth->clock.step[growth->clock.count - 1]));
    }
}
