/* SPDX-License-Identifier: Apache-2.0 */
/* Refines the verdict of an out-of-memory with results from the whole run. */
#include "report/model/verdict/verdict_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/site_rows.h"
#include "report/model/step_of.h"
#include "report/model/verdict/leaks.h"
#include "report/model/verdict/optimizer_state.h"
#include "report/trace/verdict_rule.h"

/* Limits for growth beside another reason, in parts. */
#define WORTH_OF_SHORT 4u
#define WORTH_OF_CAP   100u

#define MODEL_PARTS 9u /* the model fills the device: the batch has at most 1/n of its bytes */

#define LINE_PARTS 9u /* one line fills it: all else has at most 1/n of its bytes */

#define FEWEST_PARTS 2u /* of a block, before it is known to be made longer */

#define FEWEST_STEPS_BEFORE 3u /* to compare a step with them */
#define RISEN_PARTS         8u /* steps that rose need at least 1/n more */

#define MOST_ROWS 100 /* in which a line that asked for most is looked for */

/* ---- the one that is judged ---- */

size_t ms_judged_fatal(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);

    return fatal ? (size_t)(fatal - ms_model_oom_at(model, 0)) : SIZE_MAX;
}

/* ---- growth ---- */

/* The growth, if anything grows enough to be mentioned. */
static const struct ms_growth *growth_of(const struct ms_model *model, uint64_t device)
{
    const struct ms_growth *growth = model->survey ? &model->survey->devices[device].growth : NULL;

    return growth && growth->leak_count > 0 && !growth->leaks[0].negligible ? growth : NULL;
}

static double bytes_per_step(const struct ms_growth *growth)
{
    double bytes = 0;

    for (size_t i = 0; i < growth->leak_count; i++) {
        bytes +=
            growth->leaks[i].all.round == MS_ROUND_STEP ? growth->leaks[i].all.bytes_per_round : 0;
    }
    return bytes;
}

/* How many more steps there would have been without any cap. */
static uint64_t further(const struct ms_oom_state *state, uint64_t short_bytes,
                        double bytes_per_step)
{
    const uint64_t taken = state->other_process_bytes + state->cap_bytes;
    const uint64_t above =
        state->device_total_bytes > taken ? state->device_total_bytes - taken : 0;

    return above > short_bytes && bytes_per_step >= 1
               ? (uint64_t)((double)(above - short_bytes) / bytes_per_step)
               : 0;
}

/* "growth: train.py:143 in train (and 4 other call sites) has kept 80.0 MiB more every step" */
static void say_growth(const struct ms_model *model, const struct ms_leak *leak, char *text,
                       size_t text_bytes)
{
    const bool unseen = ms_model_hides_tensors(model);
    struct ms_buffer line = {0}, pace = {0};

    ms_leak_add_line(model, leak, &line);
    ms_buffer_append(&line, "", 1);
    ms_leak_add_pace(leak, unseen, &pace);
    ms_buffer_append(&pace, "", 1);
    (void)snprintf(text, text_bytes, "%sgrowth: %.300s %s%s",
                   leak->all.degree == MS_GROWTH_LIKELY ? "likely " : "",
                   line.failed ? "?" : line.at, pace.failed ? "keeps more and more" : pace.at,
                   unseen ? "; which line keeps what is in them is not known" : "");
    ms_buffer_free(&line);
    ms_buffer_free(&pace);
}

/* Whether the requesting site already holds similar memory, or is an optimizer's. */
static bool asks_for_model(const struct ms_model *model, const struct ms_model_oom *oom,
                           const struct ms_survey_moment *moment)
{
    const struct ms_survey_device *surveyed = &model->survey->devices[oom->device];

    if (ms_landmarks_of(model->landmarks, oom->record.state.site)->doing == MS_DOING_OPTIMIZER) {
        return true;
    }

    for (size_t i = 0; i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(surveyed, moment->first + i);

        if (holding->site == oom->record.state.site) {
            return ms_kind_is_of_model((enum ms_kind)holding->kind);
        }
    }
    return false;
}

/* Bytes that objects took when they were made, such as an average of the weights. */
static uint64_t sum_made(const struct ms_model *model, const struct ms_model_oom *oom,
                         const struct ms_survey_moment *moment)
{
    const struct ms_survey_device *surveyed = &model->survey->devices[oom->device];
    uint64_t bytes = 0;

    for (size_t i = 0; i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(surveyed, moment->first + i);
        const struct ms_doings *doings = ms_landmarks_of(model->landmarks, holding->site);

        if (holding->kind == MS_KIND_PERSISTENT && doings->doing == MS_DOING_OTHER &&
            (doings->passed & MS_PASSED_INIT)) {
            bytes += holding->bytes;
        }
    }
    return bytes;
}

/* Whether nine tenths of live memory or more are parameters, gradients, optimizer state and
 * communication buffers. What objects took when they were made counts, too, if it is less. */
static bool is_of_the_model(const struct ms_model *model, size_t oom)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, oom);
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    uint64_t bytes = 0;

    if (!moment) {
        return false;
    }
    for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
        bytes += ms_kind_is_of_model((enum ms_kind)kind) ? moment->kind_bytes[kind] : 0;
    }

    const uint64_t made = sum_made(model, at, moment);

    bytes += made < bytes ? made : 0;

    const uint64_t requested =
        asks_for_model(model, at, moment) ? 0 : at->record.state.requested_bytes;
    const uint64_t others = moment->live_bytes > bytes ? moment->live_bytes - bytes : 0;

    return bytes > 0 && others + requested <= bytes / MODEL_PARTS;
}

static bool has_computed(const struct ms_model *model, uint8_t device)
{
    const uint32_t end = ms_site_table_end(model->sites, device);

    for (uint32_t site = 1; site < end; site = ms_site_table_after(model->sites, device, site)) {
        const uint8_t doing = ms_landmarks_of(model->landmarks, site)->doing;
        struct ms_site_sums sums;

        if ((doing == MS_DOING_FORWARD || doing == MS_DOING_BACKWARD) &&
            ms_site_table_read(model->sites, device, site, &sums)) {
            return true;
        }
    }
    return false;
}

/* Whether one call site has nearly all live memory, by many requests, and freed none of them. */
static bool is_of_one_line(const struct ms_model *model, size_t oom)
{
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, oom);
    const struct ms_survey_device *surveyed = &model->survey->devices[at->device];
    struct ms_site_sums sums;

    for (size_t i = 0; moment && i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(surveyed, moment->first + i);

        if (holding->site > 0 &&
            moment->live_bytes - holding->bytes <= holding->bytes / LINE_PARTS &&
            ms_site_table_read(model->sites, (uint8_t)at->device, holding->site, &sums)) {
            return sums.allocations >= MS_GROWTH_FEWEST && sums.bytes == holding->bytes;
        }
    }
    return false;
}

/* Growth smaller than the shortage is mentioned if it is some part of that, or of all memory. */
static bool matters_beside(const struct ms_judgement *judgement, const struct ms_oom_state *state)
{
    return judgement->grown_bytes >= judgement->short_bytes / WORTH_OF_SHORT ||
           judgement->grown_bytes >= state->cap_bytes / WORTH_OF_CAP;
}

/* Sets what the steps before this one needed, if this one needs much more. */
static void compare_steps(const struct ms_model *model, const struct ms_model_oom *oom,
                          struct ms_judgement *judgement)
{
    const struct ms_survey_device *surveyed = &model->survey->devices[oom->device];
    const struct ms_growth_clock *clock = &surveyed->growth.clock;
    const uint64_t steps = clock->count > 0 ? clock->step[clock->count - 1] - 1 : 0;
    const uint64_t most_bytes = surveyed->most_in_past_steps_bytes;
    const uint64_t needed_bytes = oom->record.state.live_bytes + oom->record.state.requested_bytes;

    /* Of recycled records the most live bytes are unknown. */
    if (model->digest_events > 0 || clock->by_time || steps < FEWEST_STEPS_BEFORE ||
        judgement->step <= steps || needed_bytes <= most_bytes) {
        return;
    }
    judgement->past_most_bytes = most_bytes;
    judgement->needed_bytes = needed_bytes;
    if (surveyed->rising_samples > FEWEST_STEPS_BEFORE &&
        surveyed->rising_from_bytes <= most_bytes - most_bytes / RISEN_PARTS) {
        judgement->rising_since_step = clock->step[clock->count - 1 - surveyed->rising_samples];
        judgement->rising_to_step = steps;
        judgement->rising_from_bytes = surveyed->rising_from_bytes;
    } else if (needed_bytes >= most_bytes + most_bytes / 2) {
        judgement->past_steps = steps;
    }
}

/* The bytes that the verdict of the moment blames: those in holes, or of other processes. */
static uint64_t taken_otherwise(const struct ms_judgement *judgement,
                                const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);

    return judgement->verdict == MS_VERDICT_FRAGMENTATION   ? terms.hole_bytes + terms.pending_bytes
           : judgement->verdict == MS_VERDICT_OTHER_PROCESS ? state->other_process_bytes
                                                            : 0;
}

/* Whether nothing would have been short without the growth. Growth that was seen over many steps
 * suffices: it is what changed from step to step. Growth that is only likely, or of PyTorch's
 * segments, must also be more than what the verdict of the moment blames. Segments grow, too, where
 * a cache falls to pieces; but then what grew lies in holes. */
static bool is_the_reason(const struct ms_model *model, const struct ms_judgement *judgement,
                          const struct ms_oom_state *state)
{
    const uint64_t lacking =
        judgement->short_bytes > 0 ? judgement->short_bytes : state->requested_bytes;

    return judgement->grown_bytes >= lacking &&
           ((judgement->leak->all.degree == MS_GROWTH_SEEN && !ms_tensors_unseen(model, state)) ||
            judgement->grown_bytes > taken_otherwise(judgement, state));
}

/* All of the live segments that the row's line asked for. */
static void sum_segments(const struct ms_model *model, const struct ms_buffer *rows,
                         const struct ms_site_row *line, struct ms_repeated *sum)
{
    uint64_t first_ns = UINT64_MAX, last_ns = 0;

    *sum = (struct ms_repeated){.site = line->site};
    for (size_t i = 0; i < ms_site_row_count(rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(rows, i);

        if (row->sums.live_bytes > 0 && ms_site_at_one_line(model, row->site, line->site)) {
            sum->segments += row->sums.allocations - row->sums.frees;
            sum->bytes += row->sums.live_bytes;
            first_ns = row->sums.first_ns < first_ns ? row->sums.first_ns : first_ns;
            last_ns = row->sums.last_ns > last_ns ? row->sums.last_ns : last_ns;
        }
    }
    sum->over_ns = last_ns > first_ns ? last_ns - first_ns : 0;
}

/* Finds the line whose segments, asked for one by one, have most of the live bytes; none if that
 * is less than lies in holes, or less than was short. */
static void find_repeated(const struct ms_model *model, const struct ms_model_oom *oom,
                          struct ms_judgement *judgement)
{
    const struct ms_oom_state *state = &oom->record.state;
    struct ms_buffer rows = {0};

    ms_site_rows(model, (int)oom->device, &rows);
    for (size_t i = 0;
         i < ms_site_row_count(&rows) && i < MOST_ROWS && judgement->repeated.segments == 0; i++) {
        struct ms_repeated sum;

        sum_segments(model, &rows, ms_site_row_at(&rows, i), &sum);
        if (sum.segments >= MS_GROWTH_FEWEST && sum.bytes > state->live_bytes / 2 &&
            sum.bytes >= judgement->short_bytes && sum.bytes > taken_otherwise(judgement, state)) {
            judgement->repeated = sum;
        }
    }
    ms_buffer_free(&rows);
}

/* Whether most of what is live waits for the first backward pass. */
static bool is_of_first_pass(const struct ms_model *model, size_t oom)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, oom);

    return model->recurrence.whole && model->recurrence.passes == 0 && moment &&
           moment->kind_bytes[MS_KIND_ACTIVATIONS] > moment->live_bytes / 2;
}

/* Whether more of the step was to come, of which nothing is known. */
static bool is_in_the_middle(const struct ms_model *model, size_t oom,
                             const struct ms_judgement *judgement)
{
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    const enum ms_doing doing =
        (enum ms_doing)ms_landmarks_of(model->landmarks, at->record.state.site)->doing;

    if (at->evaluating || judgement->of_the_model || judgement->fitting_factor > 0) {
        return false;
    }
    /* A loss is computed outside of models, as a rule. */
    return judgement->most_factor > 0 ||
           ((doing == MS_DOING_FORWARD || doing == MS_DOING_OTHER) && judgement->step == 0 &&
            is_of_first_pass(model, oom)) ||
           ((doing == MS_DOING_FORWARD || doing == MS_DOING_BACKWARD) && judgement->step == 1);
}

/* What smaller batch would have done. */
static void judge_batch(const struct ms_model *model, size_t oom, struct ms_judgement *judgement)
{
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    const struct ms_headroom *headroom = &model->survey->devices[at->device].headroom;

    judgement->of_the_model = at->training && is_of_the_model(model, oom);
    /* A line that asked for segments is not said to keep anything. */
    judgement->of_one_line = !judgement->of_the_model && is_of_one_line(model, oom) &&
                             !has_computed(model, (uint8_t)at->device) &&
                             !ms_tensors_unseen(model, &at->record.state);
    judgement->fitting_factor = at->training ? headroom->fitting_factor : 0;
    if (judgement->fitting_factor <= 0 && !judgement->of_the_model) {
        judgement->most_factor = headroom->most_factor;
        judgement->least_factor = headroom->least_factor;
    }
    judgement->rest_follows = is_in_the_middle(model, oom, judgement);
    judgement->state_to_come_bytes =
        ms_optimizer_state_to_come(model, at, ms_ledger_oom_moment(model, oom));
}

/* What the line of that site holds at the out-of-memory. */
static uint64_t held_at_line(const struct ms_model *model, size_t oom, uint32_t site)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, oom);
    const struct ms_survey_device *surveyed =
        &model->survey->devices[ms_model_oom_at(model, oom)->device];
    uint64_t bytes = 0;

    for (size_t i = 0; moment && i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(surveyed, moment->first + i);

        bytes += ms_site_at_one_line(model, holding->site, site) ? holding->bytes : 0;
    }
    return bytes;
}

/* Finds whether the line that keeps more and more makes one block anew each time: whether it asked
 * for as much as it keeps, and for one time's growth beyond that. */
static void find_lengthened(const struct ms_model *model, size_t oom,
                            struct ms_judgement *judgement)
{
    const struct ms_oom_state *state = &ms_model_oom_at(model, oom)->record.state;
    const struct ms_leak *leak = judgement->leak;
    const uint64_t pace =
        (uint64_t)(leak->largest_bytes_per_round * (leak->all.every > 1 ? leak->all.every : 1));
    const uint64_t held = ms_site_at_one_line(model, leak->all.site, state->site)
                              ? held_at_line(model, oom, state->site)
                              : 0;

    if (held >= FEWEST_PARTS * pace && state->requested_bytes >= held + pace / 2 &&
        state->requested_bytes <= held + pace + pace / 2) {
        judgement->lengthened_bytes = held;
        judgement->lengthened_by_bytes = state->requested_bytes - held;
        /* The old block and the new one are there at once: each has to be shorter by half of what
         * was short. */
        judgement->longest_bytes =
            ms_least(held, ms_less(state->requested_bytes, judgement->short_bytes / 2));
    }
}

void ms_judge(const struct ms_model *model, size_t oom, struct ms_judgement *judgement)
{
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    const struct ms_growth *growth = growth_of(model, at->device);

    *judgement = (struct ms_judgement){.step = ms_step_of_oom(model, at)};
    judgement->verdict =
        ms_verdict_parts(&at->record.state, &judgement->short_bytes, judgement->what,
                         sizeof(judgement->what), judgement->why, sizeof(judgement->why));
    if (model->survey && at == ms_model_fatal_oom(model) &&
        (judgement->verdict == MS_VERDICT_DEMAND || judgement->verdict == MS_VERDICT_CAP)) {
        judge_batch(model, oom, judgement);
        compare_steps(model, at, judgement);
    }
    if (ms_tensors_unseen(model, &at->record.state) && !at->recovered &&
        (judgement->verdict == MS_VERDICT_FRAGMENTATION ||
         judgement->verdict == MS_VERDICT_DEMAND || judgement->verdict == MS_VERDICT_CAP)) {
        find_repeated(model, at, judgement);
    }
    if (!growth || at->recovered || at->record.state.source == MS_OOM_HOST ||
        (growth->leaks[0].all.round == MS_ROUND_TIME && at->time_ns < MS_GROWTH_TIME_NS)) {
        return;
    }
    judgement->leak = &growth->leaks[0];
    judgement->grown_bytes = ms_leaks_bytes(growth);
    if (!is_the_reason(model, judgement, &at->record.state)) {
        if (!matters_beside(judgement, &at->record.state)) {
            judgement->leak = NULL;
            return;
        }
        judgement->repeated.segments = 0;
        judgement->rising_since_step = 0;
        say_growth(model, judgement->leak, judgement->beside, sizeof(judgement->beside));
        return;
    }
    judgement->repeated.segments = 0;
    judgement->verdict = MS_VERDICT_GROWTH;
    judgement->fitting_factor = judgement->most_factor = judgement->least_factor = 0;
    judgement->past_steps = judgement->rising_since_step = 0;
    judgement->rest_follows = false;
    judgement->state_to_come_bytes = 0;
    /* Found by the amount alone, it is of steps that were not seen. */
    if (judgement->leak->all.rounds > 0 && judgement->leak->all.every <= 0 &&
        ms_tensors_unseen(model, &at->record.state)) {
        judgement->step = 0;
    }
    if (judgement->leak->all.round == MS_ROUND_STEP) {
        judgement->further_steps =
            further(&at->record.state, judgement->short_bytes, bytes_per_step(growth));
    }
    find_lengthened(model, oom, judgement);
    say_growth(model, judgement->leak, judgement->why, sizeof(judgement->why));
}
