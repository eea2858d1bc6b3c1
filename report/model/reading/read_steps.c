/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, passes and lifetimes: begins with the digest, and judges at the end. */

#include "report/model/kinds.h"
#include "report/model/reading/reading.h"

#define MORE_THAN_LAYERS 64u

bool ms_reading_start_steps(struct ms_reading *reading)
{
    struct ms_model *model = reading->model;

    model->landmarks = ms_landmarks_new(model->definitions);
    reading->digest =
        (struct ms_digest){.sites = model->sites,
                           .steps = model->landmarks ? ms_steps_new(model->landmarks) : NULL,
                           .steps_recorded = &model->steps,
                           .tags = &model->tags,
                           .moves = &model->moves,
                           .moments = &model->digest_moments};
    if (model->landmarks) {
        reading->loop = ms_loop_new(model->definitions, model->landmarks);
    }
    return reading->digest.steps != NULL;
}

/* Begins with the digest of the events whose records are gone. False: there is no memory. */
bool ms_reading_take_digest(struct ms_reading *reading)
{
    struct ms_model *model = reading->model;
    struct ms_buffer bytes = {0};
    const bool found = ms_reader_digest(reading->reader, &bytes);
    const bool loaded = found && ms_digest_load(&reading->digest, bytes.at, bytes.bytes);

    ms_buffer_free(&bytes);
    if (loaded) {
        model->digest_events = reading->digest.end_event;
        reading->next_event = reading->digest.end_event;
        reading->from_digest = true;
        ms_site_table_copy_live(model->sites, &model->digest_live);
        return true;
    }
    if (!found) {
        return true;
    }
    ms_model_warn(model, "what the oldest events came to is damaged; it was left out");
    ms_steps_delete(reading->digest.steps);
    ms_site_table_delete(model->sites);
    ms_recorded_free(&model->steps, &model->tags, &model->moves);
    ms_digest_moments_free(&model->digest_moments);
    model->steps = (struct ms_model_steps){0};
    model->tags = (struct ms_model_tags){0};
    model->sites = reading->digest.sites = ms_site_table_new();
    reading->digest.steps = ms_steps_new(model->landmarks);
    return model->sites && reading->digest.steps;
}

/* Why steps cannot be counted; null: they can. */
static const char *missing_of(const struct ms_model *model)
{
    if (model->beginning_lost) {
        return "the trace's beginning is gone";
    }
    if (model->header.lost_events > 0) {
        return "the disk had no room for some of the trace";
    }
    if (ms_definitions_sampling_bytes(model->definitions) > 0) {
        return "sampled: most allocations have no call site";
    }
    return NULL;
}

/* If no out-of-memory ended the run, nothing else is known of its end. */
static struct ms_run_end end_of(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    const uint32_t site = fatal ? fatal->record.state.site : 0;

    return (struct ms_run_end){.landmarks = model->landmarks,
                               .ran_out_ns = fatal ? fatal->time_ns : UINT64_MAX,
                               .in_pass = ms_landmarks_of(model->landmarks, site)->doing ==
                                          MS_DOING_BACKWARD};
}

/* How often a loop must have come round. If PyTorch reports tensors and no module was called, what
 * recurs may be the layers of a model that is written by hand, or their parameters. So it must have
 * come more often than models have layers. */
static uint64_t fewest_steps(const struct ms_model *model)
{
    const bool calls_models = ms_landmarks_first_call(model->landmarks) != UINT32_MAX;

    return !calls_models && ms_model_has_tensors(model) ? MORE_THAN_LAYERS : MS_LOOP_FEWEST_STEPS;
}

/* Whether the run may be such a loop. One that called a model and ran out of memory may have died
 * in its first forward: that calls the model's parts one by one, and is no loop. */
static bool may_loop(const struct ms_model *model)
{
    return ms_landmarks_first_call(model->landmarks) == UINT32_MAX || !ms_model_fatal_oom(model);
}

static void find_loop(struct ms_reading *reading)
{
    struct ms_model *model = reading->model;
    struct ms_recurrence *found = &model->recurrence;

    /* No result if records were recycled: the loop was not seen from its beginning. */
    if (reading->loop && !found->known && found->passes == 0 && !missing_of(model) &&
        model->digest_events == 0 && model->steps.count == 0 && may_loop(model)) {
        (void)ms_loop_judge(reading->loop, fewest_steps(model), found);
    }
}

/* One for each request of the program that failed: not for calls of the driver behind it. */
static void gather_failures(const struct ms_model *model, struct ms_buffer *failures)
{
    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(model, i);
        struct ms_steps_failure *failure =
            ms_model_oom_is_behind(model, i) ? NULL : ms_buffer_extend(failures, sizeof(*failure));

        if (failure) {
            *failure = (struct ms_steps_failure){oom->record.state.site, oom->time_ns};
        }
    }
}

static void judge_steps(struct ms_reading *reading)
{
    const ms_steps_t *steps = reading->digest.steps;
    struct ms_model *model = reading->model;
    struct ms_buffer all = {0};

    gather_failures(model, &all);

    const struct ms_steps_failures failures = {(const struct ms_steps_failure *)all.at,
                                               all.bytes / sizeof(struct ms_steps_failure)};
    size_t failure = 0;

    ms_steps_judge(steps, model->sites, &failures, missing_of(model), &model->recurrence);
    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        struct ms_model_oom *oom = ms_model_oom_at(model, i);

        oom->training =
            ms_steps_trains(steps, model->sites, model->definitions, oom->record.state.site);
        if (!ms_model_oom_is_behind(model, i) && failure < failures.count) {
            oom->evaluating = ms_steps_evaluates(steps, model->sites, model->definitions,
                                                 &model->recurrence, &failures, failure++);
        }
    }
    ms_buffer_free(&all);
}

void ms_reading_finish_steps(struct ms_reading *reading)
{
    struct ms_model *model = reading->model;
    const struct ms_run_end end = end_of(model);

    ms_site_table_finish(model->sites, &end);
    judge_steps(reading);
    find_loop(reading);
    ms_steps_delete(reading->digest.steps);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        model->made_state_bytes[i] =
            ms_kinds_made_state(model->landmarks, model->sites, (uint8_t)i);
    }
}
