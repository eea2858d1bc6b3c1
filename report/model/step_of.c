/* SPDX-License-Identifier: Apache-2.0 */
/* Finds steps by their times: those that the program told, or else those that were found. */
#include "report/model/step_of.h"

static uint64_t recorded_step_at(const struct ms_model_steps *steps, uint64_t time_ns)
{
    const struct ms_model_step *all = (const struct ms_model_step *)steps->times.at;
    const size_t count = steps->times.bytes / sizeof(*all);
    uint64_t number = 0;

    for (size_t i = 0; i < count && all[i].time_ns <= time_ns; i++) {
        number = all[i].number;
    }
    /* Only one step in `stride` was kept, so the number of others is unknown. */
    return steps->stride <= 1 || number == steps->number ? number : 0;
}

uint64_t ms_step_at(const struct ms_model *model, uint64_t time_ns)
{
    const struct ms_recurrence *found = &model->recurrence;
    const uint64_t *begins = (const uint64_t *)found->begins.at;
    const size_t count = found->begins.bytes / sizeof(*begins);
    size_t before = 0;

    if (model->steps.count > 0) {
        return recorded_step_at(&model->steps, time_ns);
    }
    if (!found->known || found->every > 1) {
        return 0;
    }
    while (before < count && begins[before] <= time_ns) {
        before++;
    }
    return before + (before > 0 && time_ns > found->ended_ns);
}

static bool is_optimizers(const struct ms_model *model, const struct ms_model_oom *oom)
{
    return ms_landmarks_is_optimizers(model->landmarks, oom->record.state.site);
}

/* An optimizer's requests belong to the step that it ends. */
uint64_t ms_step_of_oom(const struct ms_model *model, const struct ms_model_oom *oom)
{
    const uint64_t ended_ns = model->recurrence.ended_ns;

    return ms_step_at(model, is_optimizers(model, oom) && oom->time_ns > ended_ns ? ended_ns
                                                                                  : oom->time_ns);
}

uint64_t ms_steps_completed(const struct ms_model *model, const struct ms_model_oom *oom)
{
    const uint64_t step = ms_step_of_oom(model, oom);

    if (model->steps.count > 0 || step == 0 ||
        (step <= model->recurrence.count && !is_optimizers(model, oom))) {
        return UINT64_MAX;
    }
    return step - 1;
}
