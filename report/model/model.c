/* SPDX-License-Identifier: Apache-2.0 */
/* Accessors of a model, and its end. report/model/reading/ makes one. */
#include "report/model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/replay/recording.h"

void ms_model_warn(struct ms_model *model, const char *format, ...)
{
    char text[512];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    ms_buffer_add(&model->warnings, text);
    if (ms_buffer_extend(&model->warnings, 1)) {
        model->warning_count++;
    }
}

const struct ms_series *ms_model_series(const struct ms_model_device *device)
{
    return &device->series->copy[device->series->current & 1];
}

bool ms_model_hides_tensors(const struct ms_model *model)
{
    return !ms_model_has_tensors(model) && strcmp(model->header.torch_mode, "off") == 0;
}

bool ms_tensors_unseen(const struct ms_model *model, const struct ms_oom_state *state)
{
    return state->source == MS_OOM_TORCH && ms_model_hides_tensors(model);
}

const char *ms_end_name(enum ms_process_end end)
{
    switch (end) {
    case MS_PROCESS_RUNNING:
        return "running";
    case MS_PROCESS_ENDED:
        return "ended";
    case MS_PROCESS_EXITED:
        return "exited";
    default:
        return "killed";
    }
}

void ms_model_delete(struct ms_model *model)
{
    ms_survey_delete(model->survey);
    ms_recording_delete(model->recording);
    ms_stacks_delete(model->stacks);
    ms_site_table_delete(model->sites);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        free(model->devices[i].series);
    }
    ms_landmarks_delete(model->landmarks);
    ms_definitions_delete(model->definitions);
    ms_buffer_free(&model->recurrence.begins);
    ms_buffer_free(&model->recurrence.begin_events);
    ms_buffer_free(&model->steps.times);
    ms_buffer_free(&model->steps.events);
    ms_buffer_free(&model->tags.ranges);
    ms_buffer_free(&model->tags.open);
    ms_buffer_free(&model->ooms);
    ms_buffer_free(&model->thresholds);
    ms_buffer_free(&model->windows);
    ms_digest_moments_free(&model->digest_moments);
    ms_buffer_free(&model->digest_live);
    ms_buffer_free(&model->moves);
    ms_buffer_free(&model->address_ranges.all);
    ms_buffer_free(&model->notes);
    ms_buffer_free(&model->warnings);
    free(model);
}

void ms_model_name_sites(struct ms_model *model, enum ms_stacks_effort effort,
                         const char *modules_dir)
{
    ms_stacks_delete(model->stacks);
    model->stacks = ms_stacks_new(model->definitions, effort, modules_dir);
}

const struct ms_model_oom *ms_model_fatal_oom(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = NULL;

    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(model, i);

        if (!oom->recovered) {
            fatal = oom;
        }
    }
    return fatal;
}

bool ms_model_oom_is_behind(const struct ms_model *model, size_t index)
{
    const struct ms_model_oom *oom = ms_model_oom_at(model, index);
    const uint64_t bytes = oom->record.state.requested_bytes;

    if (oom->record.state.source != MS_OOM_DRIVER) {
        return false;
    }
    for (size_t i = index + 1; i < ms_model_oom_count(model); i++) {
        const struct ms_model_oom *later = ms_model_oom_at(model, i);

        if (later->device != oom->device || later->record.state.source == MS_OOM_HOST) {
            continue;
        }
        if (later->record.state.source == MS_OOM_TORCH) {
            /* What it got before that refusal counts as refused, too. */
            return later->record.state.refused_bytes >= bytes;
        }
        if (later->record.state.requested_bytes != bytes) {
            return false;
        }
    }
    return false;
}

size_t ms_model_ooms_of_program(const struct ms_model *model)
{
    size_t count = 0;

    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        count += ms_model_oom_is_behind(model, i) ? 0 : 1;
    }
    return count;
}

const char *ms_model_oom_outcome(const struct ms_model *model, size_t index)
{
    if (ms_model_oom_is_behind(model, index)) {
        return "a try to serve PyTorch's request";
    }
    if (ms_model_oom_at(model, index)->recovered) {
        return "the run went on";
    }
    for (size_t i = index + 1; i < ms_model_oom_count(model); i++) {
        if (!ms_model_oom_is_behind(model, i)) {
            return "the run went on to another request";
        }
    }
    return "the run did not go on";
}

int ms_model_main_device(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    unsigned __int128 best = 0;
    int device = -1;

    if (fatal) {
        return (int)fatal->device;
    }
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        const struct ms_aggregate *sums = &model->devices[i].sums;
        const uint64_t cap = sums->now.cap_bytes ? sums->now.cap_bytes : UINT64_MAX;
        const unsigned __int128 share =
            ((unsigned __int128)sums->peak_charged.charged_bytes << 32) / cap;

        if (model->devices[i].used && (device < 0 || share > best)) {
            best = share;
            device = i;
        }
    }
    return device;
}
