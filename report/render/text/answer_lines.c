/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: the answer, which comes first, and the ledger after it. */
#include <stdlib.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/site_rows.h"
#include "report/model/step_of.h"
#include "report/model/verdict/held_lines.h"
#include "report/model/verdict/verdict_report.h"
#include "report/model/verdict/what_if.h"
#include "report/read/batch.h"
#include "report/render/text/parts.h"

#define HOLDERS 3
#define NAMES   32

#define OTHERS_PARTS 64u /* growth of other lines is mentioned from 1/n on */

#define ALARMING_PPM 300000 /* fragmentation that a reader would ask about */

#define DECIMAL(value) ms_decimal_text((value), (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES)

static const struct ms_survey_device *surveyed(const struct ms_model *model, int device)
{
    return model->survey ? &model->survey->devices[device] : NULL;
}

/* ---- the ledger ---- */

/* Words for "other_processes" and the like. */
static const char *plain_name(const char *name, char text[NAMES])
{
    size_t i = 0;

    for (; name[i] && i + 1 < NAMES; i++) {
        text[i] = name[i];
        if (name[i] == '_') {
            text[i] = ' ';
        }
    }
    text[i] = '\0';
    return text;
}

/* Live bytes may exceed the whole, because they include memory on the host. */
static void add_row(const struct ms_model *model, int device, const struct ms_survey_moment *moment,
                    const struct ms_ledger_row *row, uint64_t whole_bytes, struct ms_buffer *out)
{
    struct ms_held_line line;
    char name[NAMES], bytes[MS_UNIT_TEXT_BYTES + 1] = "-";
    const bool of_kind = row->kind != MS_KIND_COUNT;

    ms_bytes_text(row->bytes, bytes + 1, MS_UNIT_TEXT_BYTES);
    ms_buffer_format(
        out, "  %s %11s  %7s  %-16s  ", row->estimated ? "~" : "=", bytes + !row->negative,
        row->negative || row->bytes > whole_bytes ? "" : MS_PERCENT(row->bytes, whole_bytes),
        of_kind ? ms_held_kind_name(model, (enum ms_kind)row->kind) : plain_name(row->name, name));
    if (of_kind && moment && ms_held_lines(model, device, moment, row->kind, &line, 1) == 1) {
        ms_buffer_add(out, line.text.at);
        if (line.bytes < row->bytes) {
            ms_buffer_format(out, " (%s of it)", MS_BYTES(line.bytes));
        }
        ms_held_lines_free(&line, 1);
    } else {
        ms_buffer_add(out, row->what);
    }
    ms_buffer_add(out, "\n");
}

/* Explains the names of kinds that are memshim's own. */
static void add_legend(const struct ms_model *model, const struct ms_ledger_row *rows, size_t count,
                       struct ms_buffer *out)
{
    for (size_t i = 0; i < count; i++) {
        const bool of_kind = rows[i].kind != MS_KIND_COUNT;
        const enum ms_kind kind = of_kind ? (enum ms_kind)rows[i].kind : MS_KIND_UNKNOWN;
        const char *name = of_kind ? ms_held_kind_name(model, kind) : NULL;

        if (of_kind && name != ms_kind_name(kind)) {
            ms_buffer_format(out, "    %s: the run ended too early to see whether it stays\n",
                             name);
        } else if (of_kind && ms_kind_meaning(kind)) {
            ms_buffer_format(out, "    %s: %s\n", name, ms_kind_meaning(kind));
        }
    }
}

/* Rows are parts of the device if it was sampled, else of the cap. */
static void add_rows(const struct ms_model *model, int device,
                     const struct ms_survey_moment *moment, const struct ms_ledger_row *rows,
                     size_t count, const struct ms_counters *counters, struct ms_buffer *out)
{
    const bool whole = count > 0 && rows[count - 1].part == MS_LEDGER_UNEXPLAINED;
    const uint64_t whole_bytes = whole ? counters->total_bytes : counters->cap_bytes;
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    const struct ms_moment peak = ms_aggregate_peak_live(&model->devices[device].sums);

    ms_buffer_format(out, "\nWhere the %s of %s were %s, after %s   (= exact, ~ estimated)\n",
                     MS_BYTES(whole_bytes), whole ? "the device" : "the cap",
                     fatal ? "when memory ran out" : "when live bytes peaked",
                     MS_DURATION(fatal ? fatal->time_ns : peak.time_ns));
    for (size_t i = 0; i < count; i++) {
        if (rows[i].part != MS_LEDGER_UNEXPLAINED || rows[i].bytes > 0) {
            add_row(model, device, moment, &rows[i], whole_bytes, out);
        }
    }
    add_legend(model, rows, count, out);
}

void ms_text_add_ledger(struct ms_buffer *out, const struct ms_model *model, int device)
{
    const size_t fatal = ms_judged_fatal(model);
    struct ms_ledger_row rows[MS_LEDGER_ROWS];

    if (fatal != SIZE_MAX) {
        add_rows(model, device, ms_ledger_oom_moment(model, fatal), rows,
                 ms_ledger_at_oom(model, fatal, rows),
                 &ms_model_oom_at(model, fatal)->record.counters, out);
    } else {
        add_rows(model, device, ms_ledger_peak_moment(model, device), rows,
                 ms_ledger_at_peak(model, device, rows),
                 ms_aggregate_at_peak(&model->devices[device].sums), out);
    }
}

/* ---- what would fit ---- */

static int64_t millionths(double value)
{
    return (int64_t)(value * 100 + 0.5) * 10000;
}

static void add_headroom(const struct ms_model *model, int device, struct ms_buffer *out)
{
    const struct ms_survey_device *survey = surveyed(model, device);
    const struct ms_headroom *headroom = survey ? &survey->headroom : NULL;

    if (headroom && headroom->flat) {
        ms_buffer_add(out, "  fits   the peak does not depend on the batch size (~)\n");
    }
    if (!headroom || !headroom->known || headroom->largest_factor <= 0) {
        return;
    }
    ms_buffer_add(out, "  fits   ");
    if (headroom->unbounded) {
        ms_buffer_add(out, "more than 32 times this batch");
    } else if (headroom->largest_batch > 0) {
        ms_buffer_format(out, "batch %s instead of %s", MS_COUNT(headroom->largest_batch),
                         MS_COUNT(headroom->batch));
    } else {
        ms_buffer_format(out, "%s times this batch", DECIMAL(millionths(headroom->largest_factor)));
    }
    /* This batch ran, with some of it on the host. */
    if (headroom->largest_factor < 1) {
        ms_buffer_add(out, " without memory on the host");
    }
    ms_buffer_format(out, " (~): %s do not depend on the batch, %s grow with it\n",
                     MS_BYTES(headroom->binding_persistent_bytes),
                     MS_BYTES(headroom->binding_per_step_bytes));
}

static int64_t ratio_of(uint64_t bytes, uint64_t of_bytes)
{
    return millionths((double)bytes / (double)of_bytes);
}

/* The least cap that would have been enough, by replays, beside PyTorch's need. */
static void add_overhead(const struct ms_model *model, int device, struct ms_buffer *out)
{
    const struct ms_overhead *found = &model->what_if.overhead;
    const uint64_t bytes = ms_what_if_alone_bytes(model, device);

    ms_buffer_format(
        out, "  least  %s would have been enough besides context and libraries (by a replay",
        MS_BYTES(found->min_cap_bytes));
    if (found->part_events > 0) {
        ms_buffer_format(out, " of the first %s events only", MS_COUNT(found->part_events));
    }
    ms_buffer_format(out, "): %s times the peak of live bytes",
                     DECIMAL(ratio_of(found->min_cap_bytes, found->peak_live_bytes)));
    if (bytes > 0) {
        ms_buffer_format(out, "; PyTorch alone would have needed at most %s (%s)", MS_BYTES(bytes),
                         DECIMAL(ratio_of(bytes, found->peak_live_bytes)));
    }
    ms_buffer_add(out, "\n");
}

static void add_torch(const struct ms_model *model, int device, struct ms_buffer *out)
{
    const uint64_t bytes = ms_what_if_torch_bytes(model, device);

    if (model->what_if.overhead.min_cap_bytes > 0 && model->what_if.overhead.device == device) {
        add_overhead(model, device, out);
    } else if (bytes > 0) {
        ms_buffer_format(out,
                         "  torch  PyTorch's memory_reserved, which includes its cache, was at "
                         "most %s: without memshim it would have needed no more than that\n",
                         MS_BYTES(bytes));
    }
}

/* ---- it ran out ---- */

/* If tensors are not visible, a line is that of the request for a tensor's segment. */
static void add_unseen(const struct ms_model *model, const struct ms_oom_state *state,
                       struct ms_buffer *out)
{
    if (ms_tensors_unseen(model, state)) {
        ms_buffer_add(out,
                      "  unseen tensors: with MEMSHIM_TORCH=off memshim sees only PyTorch's "
                      "segments. A line below is the one that\n"
                      "         asked for a segment; another line may keep what lies in it. Run "
                      "without MEMSHIM_TORCH=off to see which\n");
    }
}

/* A loop that keeps its results, and one call that needs them all, ask for the same segments. */
static void add_repeated(const struct ms_model *model, const struct ms_repeated *repeated,
                         struct ms_buffer *out)
{
    if (repeated->segments == 0) {
        return;
    }
    ms_buffer_format(
        out, "  also   %s are in %s segments that were asked for one by one, over %s, at ",
        MS_BYTES(repeated->bytes), MS_COUNT(repeated->segments), MS_DURATION(repeated->over_ns));
    ms_site_add_line(model, repeated->site, out);
    ms_buffer_add(out, ".\n         It may be growth, or one call that needs them all: without "
                       "tensors this is not known\n");
}

static void add_steps_before(const struct ms_judgement *judgement, struct ms_buffer *out)
{
    if (judgement->rising_since_step > 0) {
        ms_buffer_format(
            out,
            "  before each of steps %s to %s needed more than all before it, from %s to %s; step "
            "%s needs at least %s: look for what grows in it, such as the length of a sequence, "
            "and "
            "limit that to what it was in step %s, which still fitted\n",
            MS_COUNT(judgement->rising_since_step), MS_COUNT(judgement->rising_to_step),
            MS_BYTES(judgement->rising_from_bytes), MS_BYTES(judgement->past_most_bytes),
            MS_COUNT(judgement->step), MS_BYTES(judgement->needed_bytes),
            MS_COUNT(judgement->rising_to_step));
    } else if (judgement->past_steps > 0) {
        ms_buffer_format(out,
                         "  before at most %s were live in any of steps 1 to %s; step %s needs at "
                         "least %s: look for what is different in it\n",
                         MS_BYTES(judgement->past_most_bytes), MS_COUNT(judgement->past_steps),
                         MS_COUNT(judgement->step), MS_BYTES(judgement->needed_bytes));
    }
}

/* A batch that fits even beside the state of an optimizer like Adam. */
static void add_least(const struct ms_judgement *judgement, uint32_t batch, struct ms_buffer *out)
{
    const uint64_t samples = (uint64_t)(judgement->least_factor * batch);

    if (samples > 0) {
        ms_buffer_format(out, " (~); batch %s", MS_COUNT(samples));
    } else if (batch > 0) {
        ms_buffer_add(out, " (~); none");
    } else {
        ms_buffer_format(out, " (~); %s of it", DECIMAL(millionths(judgement->least_factor)));
    }
    ms_buffer_add(out, " if the optimizer keeps two values of each parameter, as Adam does\n");
}

/* The batch of an evaluation may be another than that of a step. */
static void add_samples(uint64_t samples, uint32_t batch, struct ms_buffer *out)
{
    if (samples > 0) {
        ms_buffer_format(out, " (batch %s, if it has MEMSHIM_BATCH's %s samples)",
                         MS_COUNT(samples), MS_COUNT(batch));
    }
}

/* The requests after the failed one were never seen, so the bound is a batch that may not fit, and
 * half of it comes first: people would try the bound itself. */
static void add_start(const struct ms_model_oom *oom, const struct ms_judgement *judgement,
                      uint32_t batch, struct ms_buffer *out)
{
    const uint64_t samples = (uint64_t)(judgement->most_factor * batch);

    ms_buffer_add(out, "try ");
    if (samples > 1 && !oom->evaluating) {
        ms_buffer_format(out, "batch %s", MS_COUNT(samples / 2));
    } else {
        ms_buffer_format(out, "%s of this %sbatch",
                         DECIMAL((int64_t)(judgement->most_factor * 50) * 10000),
                         oom->evaluating ? "evaluation's " : "");
        add_samples(samples / 2, batch, out);
    }
    ms_buffer_add(out, " first (a start, not a measurement): ");
}

static void add_rest(const struct ms_model_oom *oom, struct ms_buffer *out)
{
    ms_buffer_add(out, oom->evaluating
                           ? " passes this request, and what comes after it may need more\n"
                           : " passes this request, and the rest of the step needs more\n");
}

static void add_most(const struct ms_model_oom *oom, const struct ms_judgement *judgement,
                     uint32_t batch, struct ms_buffer *out)
{
    if (judgement->most_factor <= 0) {
        return;
    }

    const uint64_t samples = (uint64_t)(judgement->most_factor * batch);

    ms_buffer_add(out, "  fits   ");
    if (judgement->least_factor <= 0) {
        add_start(oom, judgement, batch, out);
    }
    ms_buffer_add(out, "at most ");
    if (samples > 0 && !oom->evaluating) {
        ms_buffer_format(out, "batch %s instead of %s", MS_COUNT(samples), MS_COUNT(batch));
    } else {
        ms_buffer_format(out, "%s of this %sbatch",
                         DECIMAL(((int64_t)(judgement->most_factor * 100) + 1) * 10000),
                         oom->evaluating ? "evaluation's " : "");
    }
    if (judgement->least_factor > 0) {
        add_samples(oom->evaluating ? samples : 0, batch, out);
        add_least(judgement, batch, out);
    } else {
        add_rest(oom, out);
    }
}

/* The largest batch; without a known batch, the part of it. */
static void add_factor(const struct ms_model *model, const struct ms_judgement *judgement,
                       const struct ms_model_oom *oom, struct ms_buffer *out)
{
    const uint32_t batch = ms_batch_samples(model->header.options);

    if (judgement->fitting_factor <= 0) {
        add_most(oom, judgement, batch, out);
        return;
    }

    const uint64_t samples = (uint64_t)(judgement->fitting_factor * batch);

    ms_buffer_add(out, "  fits   ");
    if (samples > 0) {
        ms_buffer_format(out, "batch %s instead of %s, for the whole step (~)", MS_COUNT(samples),
                         MS_COUNT(batch));
    } else if (batch > 0) {
        ms_buffer_add(out, "not even a batch of one sample (~)");
    } else {
        /* Rounded down: the whole batch has failed. */
        ms_buffer_format(out, "%s of this batch, for the whole step (~)",
                         DECIMAL((int64_t)(judgement->fitting_factor * 100) * 10000));
    }
    ms_buffer_add(out, "\n");
}

/* Another line may grow as well. */
static void add_grown(const struct ms_judgement *judgement, struct ms_buffer *out)
{
    const uint64_t own = judgement->leak->all.grown_bytes;
    const uint64_t others = judgement->grown_bytes - own;

    ms_buffer_format(out, "  else   growth accounts for %s of the live bytes",
                     MS_BYTES(judgement->grown_bytes));
    if (others > judgement->grown_bytes / OTHERS_PARTS) {
        ms_buffer_format(out, " (%s of that line, %s of others: see Leaks in report.html)",
                         MS_BYTES(own), MS_BYTES(others));
    }
    ms_buffer_add(out, "; ");
}

/* Memory that no setting would have changed. */
static void add_else(const struct ms_model *model, const struct ms_judgement *judgement,
                     const struct ms_model_oom *oom, struct ms_buffer *out)
{
    if (judgement->verdict != MS_VERDICT_GROWTH) {
        add_factor(model, judgement, oom, out);
        return;
    }
    add_grown(judgement, out);
    if (judgement->leak->all.round == MS_ROUND_STEP && judgement->further_steps > 0) {
        ms_buffer_format(out, "without a cap the run would have lasted at most %s more steps\n",
                         MS_COUNT(judgement->further_steps));
    } else {
        ms_buffer_add(out, "more memory would only have delayed the end\n");
    }
}

/* The lines whose live tensors pin free memory, if the survey followed addresses. They are those of
 * the peak: if they pinned less than was short, the holes came later, beside other tensors. */
static void add_pins(const struct ms_model *model, int device, uint64_t short_bytes,
                     struct ms_buffer *out)
{
    const struct ms_survey_device *survey = surveyed(model, device);
    const struct ms_survey_pins *pins = survey ? survey->pins : NULL;
    uint64_t pinned_bytes = 0;

    for (size_t i = 0; pins && i < pins->site_count; i++) {
        pinned_bytes += pins->sites[i].pinned_bytes;
    }
    for (size_t i = 0; pins && pinned_bytes >= short_bytes && i < pins->site_count && i < HOLDERS;
         i++) {
        ms_buffer_format(out, "%s%s free, beside %s of live memory from ",
                         i ? "         " : "  pins   ", MS_BYTES(pins->sites[i].pinned_bytes),
                         MS_BYTES(pins->sites[i].live_bytes));
        ms_site_add_line(model, pins->sites[i].site, out);
        ms_buffer_add(out, i ? "\n" : "   (when live bytes peaked)\n");
    }
}

/* With grad mode on, an evaluation keeps what nobody needs. With grad mode off, a model's call may
 * belong to an evaluation that is not known as one yet. */
static void add_evaluation(const struct ms_model *model, const struct ms_model_oom *oom,
                           struct ms_buffer *out)
{
    static const char *const modes[] = {
        [MS_GRAD_UNKNOWN] = "",
        [MS_GRAD_OFF] = " (grad mode off)",
        [MS_GRAD_ON] = " (grad mode on)",
    };
    const uint64_t mode = oom->record.state.grad_mode;

    if (oom->evaluating) {
        ms_buffer_format(out, "in an evaluation%s, ", mode <= MS_GRAD_ON ? modes[mode] : "");
    } else if (mode == MS_GRAD_OFF &&
               ms_landmarks_of(model->landmarks, oom->record.state.site)->doing ==
                   MS_DOING_FORWARD) {
        ms_buffer_add(out, "with grad mode off, ");
    }
}

static void add_step(const struct ms_model *model, const struct ms_model_oom *oom, uint64_t step,
                     struct ms_buffer *out)
{
    const uint64_t completed = ms_steps_completed(model, oom);

    if (step > 0) {
        ms_buffer_format(out, "in step %s", MS_COUNT(step));
        if (completed < UINT64_MAX) {
            ms_buffer_format(out, " (%s completed)", MS_COUNT(completed));
        }
        ms_buffer_add(out, ", ");
    }
}

void ms_text_add_oom_answer(struct ms_buffer *out, const struct ms_model *model, bool name_device)
{
    const size_t index = ms_judged_fatal(model);
    const struct ms_model_oom *oom = ms_model_oom_at(model, index);
    const int device = (int)oom->device;
    struct ms_ledger_row rows[MS_LEDGER_ROWS];
    struct ms_judgement judgement;
    char sum[MS_SENTENCE_BYTES / 2];

    ms_judge(model, index, &judgement);
    ms_buffer_add(out, "OUT OF MEMORY ");
    add_evaluation(model, oom, out);
    add_step(model, oom, judgement.step, out);
    ms_buffer_format(out, "after %s", MS_DURATION(oom->time_ns));
    if (name_device) {
        ms_buffer_format(out, " on device %d", device);
    }
    ms_buffer_format(out, ": %s.\n", judgement.what);
    add_unseen(model, &oom->record.state, out);
    ms_text_add_asked(out, model, oom->record.state.site, ms_ledger_oom_moment(model, index));
    ms_buffer_format(out, "  why    %s.\n", judgement.why);
    if (judgement.verdict == MS_VERDICT_GROWTH) {
        ms_text_add_leak(out, model, judgement.leak);
    } else if (judgement.beside[0]) {
        ms_buffer_format(out, "  also   %s; %s.\n", judgement.beside,
                         judgement.grown_bytes < judgement.short_bytes
                             ? "the request would have failed without this growth, too"
                         : judgement.verdict == MS_VERDICT_OTHER_PROCESS
                             ? "other processes hold more than that"
                             : "the holes are more than that");
        ms_text_add_leak(out, model, judgement.leak);
    }
    add_repeated(model, &judgement.repeated, out);
    add_steps_before(&judgement, out);
    if (oom->record.state.source == MS_OOM_HOST) {
        ms_text_add_pinned(out, model, device);
    } else {
        ms_text_add_holders(out, model, device, ms_ledger_oom_moment(model, index), rows,
                            ms_ledger_at_oom(model, index, rows));
    }
    ms_text_add_host(out, model, device, &oom->record.counters);
    ms_text_add_next(out, model, &judgement, oom);
    ms_verdict_sum_text(&oom->record.state, sum, sizeof(sum));
    if (sum[0]) {
        ms_buffer_format(out, "  short  %s\n", sum);
    }
    if (judgement.verdict == MS_VERDICT_FRAGMENTATION) {
        add_pins(model, device, judgement.short_bytes, out);
    }
    add_else(model, &judgement, oom, out);
    /* More memory only delays growth, so the memory that would have served this one request does
     * not matter. */
    if (judgement.verdict != MS_VERDICT_GROWTH) {
        ms_what_if_text(out, model, judgement.rest_follows);
    }
    ms_text_add_emptied(out, model, device);
}

/* ---- it ran ---- */

void ms_text_add_fragmentation(struct ms_buffer *out, const struct ms_aggregate *sums)
{
    const int64_t ppm = ms_aggregate_fragmentation_ppm(sums);

    if (ppm < 0) {
        ms_buffer_add(out, "nothing was reserved");
    } else {
        ms_buffer_format(out, "fragmentation %s when reserved bytes peaked",
                         MS_PERCENT((uint64_t)ppm, 1000000));
    }
}

/* Loading a checkpoint may need as much as training does. */
static void add_loading(const struct ms_model *model, int device, struct ms_buffer *out)
{
    const struct ms_survey_device *survey = surveyed(model, device);
    const uint64_t before = survey ? survey->most_before_steps_bytes : 0;
    const uint64_t during = survey ? survey->most_in_steps_bytes : 0;

    if (during > 0 && before > during / 2) {
        ms_buffer_format(out, "  loads  at most %s live before the first step, %s since\n",
                         MS_BYTES(before), MS_BYTES(during));
    }
}

static void add_ooms(const struct ms_model *model, struct ms_buffer *out)
{
    const size_t count = ms_model_ooms_of_program(model);

    if (count == 0) {
        ms_buffer_format(out, "  ooms   no out-of-memory%s\n",
                         model->end == MS_PROCESS_RUNNING ? " so far" : "");
    } else {
        ms_buffer_format(out, "  ooms   %s; the run recovered from each\n", MS_COUNT(count));
    }
}

void ms_text_add_good_answer(struct ms_buffer *out, const struct ms_model *model, int device)
{
    const struct ms_aggregate *sums = &model->devices[device].sums;
    const struct ms_moment *peak = &sums->peak_charged;
    const uint64_t step = ms_step_at(model, peak->time_ns);
    struct ms_ledger_row rows[MS_LEDGER_ROWS];

    ms_buffer_format(out, "Peak %s of %s (%s) charged on device %d, after %s",
                     MS_BYTES(peak->charged_bytes), MS_BYTES(peak->cap_bytes),
                     MS_PERCENT(peak->charged_bytes, peak->cap_bytes), device,
                     MS_DURATION(peak->time_ns));
    if (step > 0) {
        ms_buffer_format(out, ", in step %s", MS_COUNT(step));
    }
    ms_buffer_format(out, ".\n  live   at most %s, reserved at most %s; ",
                     MS_BYTES(ms_aggregate_peak_live(sums).live_bytes),
                     MS_BYTES(sums->peak_reserved.reserved_bytes));
    ms_text_add_fragmentation(out, sums);
    ms_buffer_add(out, ms_aggregate_fragmentation_ppm(sums) > ALARMING_PPM &&
                               sums->tensor_allocations > 0
                           ? "\n         (the rest is PyTorch's cache; memshim takes it back when "
                             "memory is short)\n"
                           : "\n");
    add_ooms(model, out);
    ms_text_add_holders(out, model, device, ms_ledger_peak_moment(model, device), rows,
                        ms_ledger_at_peak(model, device, rows));
    ms_text_add_host(out, model, device, ms_aggregate_at_peak(sums));
    add_loading(model, device, out);
    add_headroom(model, device, out);
    add_torch(model, device, out);
    ms_text_add_emptied(out, model, device);
    ms_text_add_growth(out, model, device);
}
