/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a larger batch would need; if this batch was too large, the part of it that would
 * have fitted. No result if the run's memory followed something other than its batch. */
#include <string.h>

#include "allocator/base/arithmetic.h"
#include "report/model/survey/state.h"
#include "report/read/batch.h"
#include "report/trace/verdict_rule.h"

#define QUARTERS 4u

/* Growth from step to step belongs to no batch. If it is more than 1/n of the peak, the peak's
 * composition says little about a larger batch. */
#define MOST_GROWN 100u

/* The first steps of a run that died: in a later step the batch had succeeded before. */
#define FIRST_STEPS 2u

/* More than 1/n of the peak that stays, and that training does not need, is a leak. */
#define MOST_KEPT 16u

/* A bound that is nearly the whole batch says nothing. */
#define MOST_TOLD 0.99

/* The largest ratio of the most to the least that is told as one figure, their middle. */
#define MOST_APART 1.08
#define LAST_PART  100u /* 1/n of the bound stays free: pages' rests (docs/report.md, row 7) */
#define STATES     2u   /* the most that an optimizer keeps of each parameter */

/* If less than 1/n of the constant part follows the batch, the estimate's error hides even 32 times
 * the batch. */
#define LEAST_FOLLOWING 1000u

static const uint32_t quarters[MS_HEADROOM_FACTORS] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128};

uint64_t ms_headroom_factor_ppm(size_t index)
{
    return index < MS_HEADROOM_FACTORS ? quarters[index] * UINT64_C(250000) : 0;
}

/* ---- while the records are read ---- */

/* Bytes that a step leaves behind, which stay live at every later moment. */
static uint64_t kept_bytes(const struct ms_sampler *sampler)
{
    return sampler->kind_bytes[MS_KIND_PARAMETERS] + sampler->kind_bytes[MS_KIND_OPTIMIZER] +
           sampler->kind_bytes[MS_KIND_PERSISTENT];
}

/* Notes the bytes that a part of the batch would have needed for its pass, beside kept memory. */
static void note_passing(struct ms_sampler *sampler, uint64_t fixed, uint64_t scaling)
{
    for (size_t i = 0; i < MS_HEADROOM_FACTORS; i++) {
        const uint64_t bytes = fixed + scaling / QUARTERS * quarters[i];

        if (bytes > sampler->passing_bytes[i]) {
            sampler->passing_bytes[i] = bytes;
        }
    }
}

void ms_sampler_note_headroom(struct ms_sampler *sampler)
{
    const uint64_t scaling = sampler->scaling_bytes;
    const uint64_t fixed = ms_less(sampler->live_bytes, scaling);
    struct ms_headroom *headroom = &sampler->to->headroom;

    sampler->risen = false;
    if (sampler->live_bytes > sampler->highest_ever) {
        sampler->highest_ever = sampler->live_bytes;
        headroom->persistent_bytes = fixed;
        headroom->per_step_bytes = scaling;
    }
    for (size_t i = 0; i < MS_HEADROOM_FACTORS; i++) {
        const uint64_t bytes = fixed + scaling / QUARTERS * quarters[i];

        if (bytes > headroom->peak_bytes[i]) {
            headroom->peak_bytes[i] = bytes;
            headroom->following_bytes[i] = scaling;
        }
    }
    note_passing(sampler, ms_less(fixed, kept_bytes(sampler)), scaling);
}

/* The failed request belongs to the pass: it counts as needed by the batch. */
void ms_sampler_note_fatal(struct ms_sampler *sampler, uint64_t requested_bytes)
{
    const uint64_t fixed = ms_less(sampler->live_bytes, sampler->scaling_bytes);

    memcpy(sampler->kinds_at_end, sampler->kind_bytes, sizeof(sampler->kinds_at_end));
    sampler->kept_at_end = kept_bytes(sampler);
    sampler->live_at_end = sampler->live_bytes;
    note_passing(sampler, ms_less(fixed, sampler->kept_at_end),
                 sampler->scaling_bytes + requested_bytes);
}

/* ---- whether a result is possible ---- */

static bool has_grown(const struct ms_sampler *sampler)
{
    const struct ms_growth *growth = &sampler->to->growth;
    uint64_t grown = 0;

    for (size_t i = 0; growth->known && i < growth->count; i++) {
        grown += growth->sites[i].grown_bytes;
    }
    return grown > 0 && grown >= sampler->highest_ever / MOST_GROWN;
}

static bool has_recovered(const struct ms_sampler *sampler)
{
    for (size_t i = 0; i < ms_model_oom_count(sampler->model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(sampler->model, i);

        if (oom->device == sampler->device && oom->recovered) {
            return true;
        }
    }
    return false;
}

/* Null: no out-of-memory ended the run on this device. */
static const struct ms_model_oom *fatal_of(const struct ms_sampler *sampler)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(sampler->model);

    return fatal && fatal->device == sampler->device ? fatal : NULL;
}

static const char *why_unknown(const struct ms_sampler *sampler)
{
    const struct ms_model *model = sampler->model;

    if (model->first_detail_ns != 0) {
        return "the trace's beginning is gone";
    }
    if (ms_definitions_sampling_bytes(model->definitions) > 0) {
        return "sampled: most allocations have no call site";
    }
    if (ms_model_hides_tensors(model)) {
        return "with MEMSHIM_TORCH=off only segments are seen, no tensors";
    }
    if (model->recurrence.passes == 0) {
        return "no backward pass was seen";
    }
    if (sampler->to->headroom.per_step_bytes == 0) {
        return "nothing that grows with the batch was live at the peak";
    }
    if (has_grown(sampler)) {
        return "memory grew from step to step, so the need does not depend on the batch alone";
    }
    if (has_recovered(sampler)) {
        return "it ran out of memory and continued, so its batches may differ";
    }
    return NULL;
}

/* ---- the largest that fits ---- */

/* Between two known factors the peak lies below the line from one to the other. Returns the index
 * of the first factor that does not fit. */
static size_t find_largest(const uint64_t bytes[MS_HEADROOM_FACTORS], uint64_t room_bytes,
                           double *largest)
{
    size_t i = 0;

    while (i < MS_HEADROOM_FACTORS && bytes[i] <= room_bytes) {
        i++;
    }
    *largest = 0;
    if (i > 0) {
        *largest = (double)quarters[i - 1] / QUARTERS;
    }
    if (i > 0 && i < MS_HEADROOM_FACTORS) {
        const double part = (double)(room_bytes - bytes[i - 1]) / (double)(bytes[i] - bytes[i - 1]);

        *largest += part * ((double)quarters[i] / QUARTERS - *largest);
    }
    return i;
}

double ms_headroom_largest(const struct ms_headroom *headroom, uint64_t room_bytes, bool *unbounded)
{
    double largest;

    *unbounded = find_largest(headroom->peak_bytes, room_bytes, &largest) == MS_HEADROOM_FACTORS;
    return largest;
}

/* Whether no live memory moved to the host. */
static bool moved_nothing(const struct ms_sampler *sampler)
{
    return sampler->model->devices[sampler->device].sums.spilled_bytes == 0;
}

/* Checks afterwards whether the result holds. */
static void doubt(const struct ms_sampler *sampler, struct ms_headroom *headroom)
{
    headroom->flat =
        headroom->binding_per_step_bytes < headroom->binding_persistent_bytes / LEAST_FOLLOWING;
    if (headroom->flat) {
        headroom->why = "the peak does not depend on the batch size";
    } else if (headroom->largest_factor < 1 && moved_nothing(sampler)) {
        headroom->why = "more was live than the cap allows, although nothing was moved to the host";
    }
    headroom->known = !headroom->why;
}

static void judge_run(struct ms_headroom *headroom)
{
    const size_t first =
        find_largest(headroom->peak_bytes, headroom->cap_bytes - headroom->beside_bytes,
                     &headroom->largest_factor);
    const size_t binding = first < MS_HEADROOM_FACTORS ? first : MS_HEADROOM_FACTORS - 1;

    headroom->unbounded = first == MS_HEADROOM_FACTORS;
    headroom->largest_batch = (uint64_t)(headroom->largest_factor * (double)headroom->batch);
    headroom->binding_per_step_bytes = headroom->following_bytes[binding];
    headroom->binding_persistent_bytes =
        headroom->peak_bytes[binding] -
        headroom->following_bytes[binding] / QUARTERS * quarters[binding];
}

/* ---- for a batch that was too large ---- */

/* Whether an optimizer is known to have made its state. */
static bool has_state(const struct ms_sampler *sampler, const struct ms_model_oom *fatal)
{
    const struct ms_recurrence *steps = &sampler->model->recurrence;

    return steps->known &&
           !ms_landmarks_is_optimizers(sampler->model->landmarks, fatal->record.state.site) &&
           (steps->count >= FIRST_STEPS || (steps->count > 0 && steps->site > 0));
}

/* Whether memory besides the model's and the batch's came in these few steps: most likely a leak.
 * In the first pass it may also be an input. */
static bool has_kept_more(const struct ms_sampler *sampler)
{
    return sampler->model->recurrence.passes > 1 &&
           sampler->kinds_at_end[MS_KIND_PERSISTENT] > sampler->highest_ever / MOST_KEPT;
}

/* The largest part of the batch, given the need of its pass, the bytes that stay and those that
 * follow the batch. */
static double largest_with(const struct ms_sampler *sampler, uint64_t room, uint64_t fixed_bytes,
                           uint64_t following_bytes)
{
    uint64_t bytes[MS_HEADROOM_FACTORS];
    double largest;

    for (size_t i = 0; i < MS_HEADROOM_FACTORS; i++) {
        bytes[i] = sampler->passing_bytes[i] + following_bytes / QUARTERS * quarters[i];
    }
    (void)find_largest(bytes, ms_less(room, fixed_bytes), &largest);
    return largest;
}

/* Room on the device beside memory that no batch changes. */
static uint64_t room_at(const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);

    return ms_less(ms_verdict_room_bytes(&terms), terms.fixed_bytes);
}

/* The same for a batch that is to run: the last part of a device is never filled. */
static uint64_t usable_at(const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);
    const uint64_t room = ms_verdict_room_bytes(&terms);

    return ms_less(room - room / LAST_PART, terms.fixed_bytes);
}

/* Whether no step may have ended yet in which this batch fitted beside all that stays. */
static bool is_in_first_steps(const struct ms_recurrence *steps)
{
    return steps->passes <= FIRST_STEPS || (steps->known && steps->count < FIRST_STEPS);
}

/* The part of this batch that would have fitted. The first pass must be known completely, so a
 * backward pass must have begun. What stays after it may not be known yet: then it is a range. */
static void find_fitting(const struct ms_sampler *sampler, const struct ms_model_oom *fatal,
                         struct ms_headroom *headroom)
{
    const struct ms_oom_state *state = &fatal->record.state;
    const uint64_t room = usable_at(state);
    const uint64_t *kinds = sampler->kinds_at_end;
    const uint64_t kept = sampler->kept_at_end, others = kinds[MS_KIND_PERSISTENT];
    const uint64_t states = has_state(sampler, fatal) ? 0
                                                      : ms_less(STATES * kinds[MS_KIND_PARAMETERS],
                                                                kinds[MS_KIND_OPTIMIZER]);
    double least, most;

    if (!is_in_first_steps(&sampler->model->recurrence) || has_kept_more(sampler)) {
        return;
    }
    least = largest_with(sampler, room, kept + states, 0);
    most = largest_with(sampler, room, kept - others, others);
    if (least <= 0 || most >= 1) {
        return;
    }
    if (most <= least * MOST_APART) {
        headroom->fitting_factor = (least + most) / 2;
    } else if (states > 0) {
        headroom->least_factor = least;
        headroom->most_factor = most;
    }
}

/* Assumes that all but the model follows the batch: if something does not, less room is left. So
 * with a larger part of the batch the same request would have failed, too. Where tensors are not
 * seen, what is free in segments counts neither for the model nor for the batch. */
static double most_that_passes(const struct ms_sampler *sampler, const struct ms_model_oom *fatal)
{
    const uint64_t *kinds = sampler->kinds_at_end;
    const uint64_t model_bytes = kinds[MS_KIND_PARAMETERS] + kinds[MS_KIND_GRADIENTS] +
                                 kinds[MS_KIND_OPTIMIZER] + kinds[MS_KIND_COMMUNICATION];
    const uint64_t free_bytes = ms_model_hides_tensors(sampler->model)
                                    ? ms_verdict_terms(&fatal->record.state).hole_bytes
                                    : 0;
    const uint64_t following = ms_less(sampler->live_at_end + fatal->record.state.requested_bytes,
                                       model_bytes + free_bytes);
    const double most =
        following > 0 ? (double)ms_less(room_at(&fatal->record.state) + free_bytes, model_bytes) /
                            (double)following
                      : 0;

    return most < MOST_TOLD ? most : 0;
}

/* Whether the batch may be the cause: in a model's call during an evaluation, or in the first
 * steps. */
static bool is_of_a_batch(const struct ms_sampler *sampler, const struct ms_model_oom *fatal)
{
    const struct ms_model *model = sampler->model;
    const enum ms_doing doing =
        (enum ms_doing)ms_landmarks_of(model->landmarks, fatal->record.state.site)->doing;

    if (model->first_detail_ns != 0 || ms_definitions_sampling_bytes(model->definitions) > 0 ||
        has_grown(sampler) || has_recovered(sampler) || !moved_nothing(sampler)) {
        return false;
    }
    return fatal->evaluating ? doing == MS_DOING_FORWARD
                             : (doing == MS_DOING_FORWARD || doing == MS_DOING_BACKWARD) &&
                                   is_in_first_steps(&model->recurrence) && !has_kept_more(sampler);
}

static void judge_dead(const struct ms_sampler *sampler, const struct ms_model_oom *fatal,
                       struct ms_headroom *headroom)
{
    if (headroom->known) {
        headroom->known = false;
        headroom->why = "it ran out of memory";
        if (!fatal->evaluating) {
            find_fitting(sampler, fatal, headroom);
        }
    }
    if (headroom->fitting_factor <= 0 && headroom->least_factor <= 0 &&
        is_of_a_batch(sampler, fatal)) {
        headroom->most_factor = most_that_passes(sampler, fatal);
    }
}

void ms_survey_judge_headroom(struct ms_sampler *sampler)
{
    const struct ms_aggregate *sums = &sampler->model->devices[sampler->device].sums;
    const struct ms_counters *at_peak = ms_aggregate_at_peak(sums);
    const uint64_t charged = ms_counters_charged(at_peak), reserved = ms_counters_reserved(at_peak);
    const struct ms_model_oom *fatal = fatal_of(sampler);
    struct ms_headroom *headroom = &sampler->to->headroom;

    headroom->why = why_unknown(sampler);
    headroom->known = !headroom->why;
    headroom->batch = ms_batch_samples(sampler->model->header.options);
    headroom->beside_bytes = ms_less(charged, reserved);
    headroom->cap_bytes = sums->now.cap_bytes;
    if (fatal) {
        judge_dead(sampler, fatal, headroom);
    } else if (headroom->known && headroom->cap_bytes > headroom->beside_bytes) {
        judge_run(headroom);
        doubt(sampler, headroom);
    }
}
