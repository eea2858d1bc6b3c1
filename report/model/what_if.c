/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a run can be replayed for its report, and starts the search. */
#include "report/model/what_if.h"

#include "report/model/model.h"
#include "report/model/verdict_report.h"
#include "report/model/what_if_search.h"

#define MOST_DEVICES \
    4 /* a replay of more memory than these have takes its time, and helps nobody */

#define SEARCH 16 /* replays that the least memory is found with, or a few less */

static bool is_whole(const struct ms_model *model)
{
    return model->first_detail_ns == 0 && model->lost_events == 0 && model->sums_exact;
}

/* A clause; null where it can be tried. */
static const char *obstacle(const struct ms_model *model, const struct ms_model_oom *oom,
                            uint64_t most_operations)
{
    if (model->devices[oom->device].sums.now.total_bytes == 0) {
        return "the size of the device is not known";
    }
    if (!is_whole(model)) {
        return "not every event of the run is in the trace";
    }
    if (oom->record.state.requested_bytes / MOST_DEVICES >
        model->devices[oom->device].sums.now.total_bytes) {
        return "it asked for more than four such devices have";
    }
    if (model->events > most_operations / 4) {
        return "the run has too many events to be replayed for a report: memshim replay does it";
    }
    return NULL;
}

static void try_overhead(const struct ms_model *model, uint64_t most_operations,
                         struct ms_overhead *found)
{
    *found = (struct ms_overhead){.device = ms_model_main_device(model)};
    if (found->device < 0) {
        found->why = "no device was used";
    } else if (!is_whole(model)) {
        found->why = "not every event of the run is in the trace";
    } else if (model->events > most_operations / SEARCH) {
        found->why = "the run has too many events to be replayed for a report: memshim replay "
                     "--min-cap does it";
    } else if (!ms_overhead_search(model->path, found)) {
        found->why = "the trace could not be replayed";
    }
}

void ms_what_if_try(struct ms_model *model, uint64_t most_operations)
{
    const size_t index = ms_judged_fatal(model);
    struct ms_what_if *found = &model->what_if;

    if (index == SIZE_MAX) {
        try_overhead(model, most_operations, &found->overhead);
        return;
    }

    const struct ms_model_oom *oom = ms_model_oom_at(model, index);
    const struct ms_oom_state *state = &oom->record.state;
    const struct ms_what_if_case is = {.path = model->path, .device = oom->device, .state = state};

    *found = (struct ms_what_if){.why = obstacle(model, oom, most_operations),
                                 .oom = index,
                                 .device_bytes = model->devices[oom->device].sums.now.total_bytes,
                                 .request_bytes = state->refused_bytes > state->requested_bytes
                                                      ? state->refused_bytes
                                                      : state->requested_bytes};
    if (found->why) {
        return;
    }
    found->tried = ms_what_if_search(&is, most_operations, found);
    if (!found->tried) {
        found->why = "the trace could not be replayed";
    }
}

static const struct ms_counters *counters_of(const struct ms_model *model, int device)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);

    return fatal && (int)fatal->device == device
               ? &fatal->record.counters
               : ms_aggregate_at_peak(&model->devices[device].sums);
}

uint64_t ms_what_if_torch_bytes(const struct ms_model *model, int device)
{
    const struct ms_counters *counters = counters_of(model, device);

    return model->devices[device].sums.tensor_allocations > 0
               ? counters->arena_bytes + counters->proxy_bytes
               : 0;
}
