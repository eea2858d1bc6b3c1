/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a run can be replayed for its report, and starts the search. */
#include "report/model/verdict/what_if.h"

#include "report/fit/what_if_search.h"
#include "report/model/model.h"
#include "report/model/verdict/verdict_report.h"
#include "report/replay/recording.h"
#include "report/trace/verdict_rule.h"

#define MOST_DEVICES 4 /* replaying more memory than this takes long, and helps nobody */

#define LEAST_LIVE_BYTES (UINT64_C(8) << 21) /* eight times the grain of the search */

#define NEAR_PEAK 10u /* at most 1/n below it */

#define SEARCH 16 /* replays to find the least memory, at most about this many */

static bool is_whole(const struct ms_model *model)
{
    return model->first_detail_ns == 0 && model->lost_events == 0 && model->sums_exact;
}

/* A reason that a larger cap would not have removed, and that a replay does not know. */
static const char *obstacle_beside(const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);
    const enum ms_verdict verdict = ms_verdict_rule(&terms);

    if (verdict == MS_VERDICT_CAP && terms.torch_refused) {
        return "PyTorch refused the request itself, without asking the driver";
    }
    if (verdict == MS_VERDICT_NOT_DEVICE) {
        return "what was missing is not device memory";
    }
    if (verdict == MS_VERDICT_FRAGMENTATION && state->pinned_by == MS_PINNED_BY_POOL_OFF) {
        return "the run did not use the pool, which a replay needs";
    }
    if (verdict == MS_VERDICT_FRAGMENTATION && state->pinned_by == MS_PINNED_BY_NO_HOST) {
        return "a replay uses host memory in place of holes, which this run did not have";
    }
    return NULL;
}

/* A clause; null: it can be tried. */
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
        return "the request was larger than four such devices";
    }
    if (model->events > most_operations / 4) {
        return "the run has too many events to be replayed for a report: memshim replay does it";
    }
    return obstacle_beside(&oom->record.state);
}

/* Likewise for the overhead of a run that no out-of-memory ended. */
static const char *overhead_obstacle(const struct ms_model *model, int device)
{
    if (device < 0) {
        return "no device was used";
    }
    if (!is_whole(model)) {
        return "not every event of the run is in the trace";
    }
    return NULL;
}

/* most_events: only the run's first ones; 0: all. */
static struct ms_recording *new_recording(unsigned device, uint64_t most_events)
{
    struct ms_recording *recording = ms_recording_new(device);

    if (recording) {
        recording->most_events = most_events;
    }
    return recording;
}

void ms_what_if_expect(struct ms_model *model, uint64_t most_operations)
{
    const size_t fatal = ms_judged_fatal(model);
    const int device = ms_model_main_device(model);
    const char *why = fatal == SIZE_MAX
                          ? overhead_obstacle(model, device)
                          : obstacle(model, ms_model_oom_at(model, fatal), most_operations);

    ms_recording_delete(model->recording);
    model->recording =
        why ? NULL
            : new_recording((unsigned)device, fatal == SIZE_MAX ? most_operations / SEARCH : 0);
}

/* The recording, which the caller owns: the survey's, else one that reads the trace once more.
 * Null: there is neither. */
static struct ms_recording *take_recording(struct ms_model *model, unsigned device,
                                           uint64_t most_events)
{
    struct ms_recording *recording = model->recording;
    char why[512];

    model->recording = NULL;
    if (recording && model->survey && model->survey->recorded && recording->device == device) {
        return recording;
    }
    ms_recording_delete(recording);
    recording = new_recording(device, most_events);
    if (recording &&
        !ms_recording_read_trace(recording, model->path, (int)device, why, sizeof(why))) {
        ms_recording_delete(recording);
        return NULL;
    }
    return recording;
}

/* If libraries hold the bytes, the grain alone would decide the result for the rest. */
static bool is_too_little(const struct ms_recording *recording)
{
    return recording->peak_live_bytes < LEAST_LIVE_BYTES;
}

/* Whether the recording does not represent the whole run: it is a part of it, or of its memory. */
static bool lacks_peak(const struct ms_model *model, const struct ms_recording *recording)
{
    const struct ms_aggregate *sums = &model->devices[recording->device].sums;
    const uint64_t peak_bytes = ms_aggregate_peak_live(sums).live_bytes;

    return recording->peak_live_bytes < peak_bytes - peak_bytes / NEAR_PEAK;
}

static void try_overhead(struct ms_model *model, uint64_t most_operations,
                         struct ms_overhead *found)
{
    const int device = ms_model_main_device(model);
    struct ms_recording *recording;

    *found = (struct ms_overhead){.device = device, .why = overhead_obstacle(model, device)};
    if (found->why) {
        return;
    }
    recording = take_recording(model, (unsigned)device, most_operations / SEARCH);
    if (recording && lacks_peak(model, recording)) {
        found->why = ms_recording_is_part(recording)
                         ? "the run has too many events to be replayed for a report, and its peak "
                           "comes late: memshim replay --min-cap does it"
                         : "the program mapped much of what was live at the peak itself, or opened "
                           "it from another process, and a replay cannot place that";
    } else if (recording && is_too_little(recording)) {
        found->why = "too little was live for a ratio: a replay finds the cap to 2 MiB only";
    } else if (!recording || !ms_overhead_search(recording, found)) {
        found->why = "the trace could not be replayed";
    } else if (ms_recording_is_part(recording)) {
        found->part_events = recording->most_events;
    }
    ms_recording_delete(recording);
}

void ms_what_if_try(struct ms_model *model, uint64_t most_operations)
{
    const size_t index = ms_judged_fatal(model);
    struct ms_what_if *found = &model->what_if;
    struct ms_recording *recording;

    if (index == SIZE_MAX) {
        try_overhead(model, most_operations, &found->overhead);
        return;
    }

    const struct ms_model_oom *oom = ms_model_oom_at(model, index);
    const struct ms_oom_state *state = &oom->record.state;

    *found = (struct ms_what_if){.why = obstacle(model, oom, most_operations),
                                 .oom = index,
                                 .device_bytes = model->devices[oom->device].sums.now.total_bytes,
                                 .request_bytes = state->refused_bytes > state->requested_bytes
                                                      ? state->refused_bytes
                                                      : state->requested_bytes};
    if (found->why) {
        return;
    }
    recording = take_recording(model, (unsigned)oom->device, 0);
    found->tried = recording && ms_what_if_search(recording, state, most_operations, found);
    if (!found->tried) {
        found->why = "the trace could not be replayed";
    }
    ms_recording_delete(recording);
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

    const uint64_t then = counters->arena_bytes + counters->proxy_bytes;
    const uint64_t most = model->survey ? model->survey->devices[device].most_torch_bytes : 0;

    if (model->devices[device].sums.tensor_allocations == 0) {
        return 0;
    }
    return most > then ? most : then;
}

uint64_t ms_what_if_alone_bytes(const struct ms_model *model, int device)
{
    const uint64_t torch_bytes = ms_what_if_torch_bytes(model, device);

    return torch_bytes > 0 ? torch_bytes + counters_of(model, device)->block_bytes : 0;
}
