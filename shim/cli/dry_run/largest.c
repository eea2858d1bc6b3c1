/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the largest tensor of a run: each call site's first, and of these the largest whose kind
 * can follow the data. */
#include "shim/cli/dry_run/largest.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/clock.h"
#include "report/model/site_rows.h"
#include "report/model/step_of.h"

struct site_largest {
    uint64_t bytes, time_us;
};

static bool is_tensor(const struct ms_operation *operation)
{
    return operation->kind == MS_OPERATION_TENSOR_ALLOC ||
           (operation->kind == MS_OPERATION_ALLOC && operation->arena == MS_RECORDED_NONE);
}

static void take_each(const struct ms_recording *recording, struct site_largest *sites)
{
    for (size_t i = 0; i < ms_recording_count(recording); i++) {
        const struct ms_operation *operation = ms_recording_at(recording, i);
        struct site_largest *site = &sites[operation->site];

        if (is_tensor(operation) && operation->bytes > site->bytes) {
            *site = (struct site_largest){operation->bytes, operation->time_us};
        }
    }
}

/* Whether its size may follow the data, as those of the model and of libraries do not. */
static bool may_follow_data(const struct ms_model *model, uint32_t site, enum ms_kind kind)
{
    return !ms_kind_is_of_model(kind) && kind != MS_KIND_WORKSPACE && kind != MS_KIND_GRAPHS &&
           !ms_landmarks_is_optimizers(model->landmarks, site);
}

/* A step may begin within the same microsecond. */
static uint64_t step_of(const struct ms_model *model, uint64_t time_us)
{
    return ms_step_at(model, time_us * MS_NS_PER_US + MS_NS_PER_US - 1);
}

static void name_line(const struct ms_model *model, uint32_t site, struct ms_dry_tensor *largest)
{
    struct ms_buffer line = {0};

    ms_site_add_line(model, site, &line);
    ms_site_add_user(model, site, &line);
    ms_buffer_append(&line, "", 1);
    if (!line.failed) {
        (void)snprintf(largest->line, sizeof(largest->line), "%s", line.at);
    }
    ms_buffer_free(&line);
}

/* A program's own numbers do not say whether the last step ended. */
static bool ended(const struct ms_model *model, uint64_t step)
{
    return model->steps.count == 0 && step <= model->recurrence.count;
}

static void take_step(uint64_t step, uint64_t bytes, struct ms_dry_tensor *largest)
{
    if (step > 0 && (largest->least_bytes == 0 || bytes < largest->least_bytes)) {
        largest->least_bytes = bytes;
        largest->least_step = step;
    }
}

static void take_least(const struct ms_model *model, const struct ms_recording *recording,
                       uint32_t site, struct ms_dry_tensor *largest)
{
    uint64_t step = 0, bytes = 0;

    for (size_t i = 0; i < ms_recording_count(recording); i++) {
        const struct ms_operation *operation = ms_recording_at(recording, i);

        if (operation->site == site && is_tensor(operation)) {
            const uint64_t now = step_of(model, operation->time_us);

            if (now != step) {
                take_step(step, bytes, largest);
                bytes = 0;
            }
            step = now;
            bytes = operation->bytes > bytes ? operation->bytes : bytes;
        }
    }
    if (ended(model, step)) {
        take_step(step, bytes, largest);
    }
}

void ms_dry_largest_take(const struct ms_model *model, int device,
                         const struct ms_recording *recording, struct ms_dry_tensor *largest)
{
    const uint32_t last = ms_recording_last_site(recording);
    struct site_largest *sites = calloc((size_t)last + 1, sizeof(*sites));
    struct site_largest most = {0};
    struct ms_site_kinds kinds;
    uint32_t found = 0;

    if (!sites) {
        return;
    }
    take_each(recording, sites);
    /* Memory without a site (0) has neither a line nor a kind. */
    for (uint32_t site = 1; site <= last; site++) {
        if (sites[site].bytes < most.bytes || sites[site].bytes == 0 ||
            (sites[site].bytes == most.bytes && sites[site].time_us >= most.time_us)) {
            continue;
        }
        ms_site_kinds(model, device, site, &kinds);
        if (may_follow_data(model, site, (enum ms_kind)kinds.kind)) {
            most = sites[site];
            found = site;
            largest->kind = (enum ms_kind)kinds.kind;
        }
    }
    free(sites);
    if (found > 0) {
        largest->bytes = most.bytes;
        largest->step = step_of(model, most.time_us);
        take_least(model, recording, found, largest);
        name_line(model, found, largest);
    }
}
