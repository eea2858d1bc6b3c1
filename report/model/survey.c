/* SPDX-License-Identifier: Apache-2.0 */
/* What a survey owns, and how its moments are found. report/model/survey/ fills it. */
#include "report/model/survey.h"

#include <stdlib.h>

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
