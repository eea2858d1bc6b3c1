/* SPDX-License-Identifier: Apache-2.0 */
/* A survey's memory, and look-ups of its moments. report/model/survey/ fills it. */
#include "report/model/survey.h"

#include <stdlib.h>

#include "report/model/model.h"

void ms_survey_delete(struct ms_survey *survey)
{
    if (!survey) {
        return;
    }
    for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
        struct ms_survey_device *device = &survey->devices[i];

        free(device->buckets);
        free(device->segments);
        free(device->pins);
        for (size_t turn = 0; turn < device->turn_count; turn++) {
            ms_buffer_free(&device->turns[turn].holdings);
        }
        free(device->turns);
        ms_buffer_free(&device->moments);
        ms_buffer_free(&device->holdings);
    }
    ms_buffer_free(&survey->ooms);
    free(survey);
}

const struct ms_survey_moment *ms_survey_oom_moment(const struct ms_survey_device *device,
                                                    size_t oom)
{
    for (size_t i = 0; i < ms_survey_moment_count(device); i++) {
        const struct ms_survey_moment *moment = ms_survey_moment_at(device, i);

        if (moment->kind == MS_MOMENT_OOM && moment->oom == oom) {
            return moment;
        }
    }
    return NULL;
}

struct ms_emptied ms_survey_emptied(const struct ms_model *model, int device)
{
    const struct ms_survey_device *of = &model->survey->devices[device];
    const struct ms_aggregate *sums = &model->devices[device].sums;
    struct ms_emptied emptied = {0};
    uint64_t chunks = UINT64_MAX, calls = UINT64_MAX, all_calls = 0;
    for (int i = 0; i < MS_CALL_COUNT; i++) {
        all_calls += sums->driver_calls[i];
    }

    for (size_t i = 0; i < of->emptying_count; i++) {
        const struct ms_emptying *row = &of->emptyings[i];

        emptied.calls += row->calls;
        emptied.bytes += row->bytes;
        chunks = row->chunks_before < chunks ? row->chunks_before : chunks;
        calls = row->driver_calls_before < calls ? row->driver_calls_before : calls;
    }
    if (of->emptying_count > 0) {
        emptied.chunks_made = sums->driver_calls[MS_CALL_CREATE] - chunks;
        emptied.driver_calls = all_calls - calls;
    }
    return emptied;
}
