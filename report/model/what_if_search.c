/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the least cap with which a recorded run completes. */
#include "report/model/what_if_search.h"

#include "report/replay/recording.h"
#include "report/replay/replay.h"

#define PARTS 100 /* of the device: the grain of the caps that are tried */

struct search {
    const struct ms_recording *recording;
    struct ms_replay_config config;
    struct ms_what_if *found;
    uint64_t grain_bytes;
    uint64_t left; /* operations that may still be replayed */
};

static bool may_replay(const struct search *search)
{
    return search->left >= ms_recording_count(search->recording);
}

/* Whether it completes at a cap of so many bytes; host_bytes: of live memory there, at most. */
static bool completes(struct search *search, uint64_t cap_bytes, uint64_t *host_bytes)
{
    const bool spills = search->config.spill_bytes > 0;
    struct ms_replay_result result;

    search->config.cap_bytes = cap_bytes;
    search->config.device_bytes = cap_bytes;
    search->left -= ms_recording_count(search->recording);
    search->found->replays++;
    ms_replay_run(search->recording, &search->config, &result);
    *host_bytes = result.peak_host_backed_bytes;
    return spills ? !result.host_memory && !result.failure.happened : ms_replay_fits(&result);
}

/* Between `low` grains, which are too few, and `high`, which may be enough. */
static void find_least(struct search *search, uint64_t low, uint64_t high,
                       struct ms_what_if_cap *cap)
{
    uint64_t host_bytes;

    for (; may_replay(search); low = high, high += high / 8 + 1) {
        if (completes(search, high * search->grain_bytes, &host_bytes)) {
            cap->cap_bytes = high * search->grain_bytes;
            cap->host_bytes = host_bytes;
            break;
        }
        cap->too_small_bytes = high * search->grain_bytes;
    }
    while (cap->cap_bytes > 0 && high - low > 1 && may_replay(search)) {
        const uint64_t middle = low + (high - low) / 2;

        if (completes(search, middle * search->grain_bytes, &host_bytes)) {
            high = middle;
            cap->cap_bytes = high * search->grain_bytes;
            cap->host_bytes = host_bytes;
        } else {
            low = middle;
            cap->too_small_bytes = low * search->grain_bytes;
        }
    }
}

/* The least that could do: what was live and asked for, and stood beside it. */
static uint64_t need_bytes(const struct ms_oom_state *state, uint64_t request_bytes)
{
    return state->live_bytes + request_bytes + state->context_bytes + state->forwarded_bytes;
}

static void search_all(struct search *search, const struct ms_oom_state *state)
{
    struct ms_what_if *found = search->found;
    const uint64_t grains = need_bytes(state, found->request_bytes) / search->grain_bytes + 1;
    uint64_t host_bytes;

    find_least(search, 0, grains, &found->plain);
    search->config.spill_bytes = MS_REPLAY_AMPLE_BYTES;
    if (may_replay(search)) {
        found->own_cap_spilled = completes(search, state->cap_bytes, &host_bytes);
        found->own_cap_host_bytes = found->own_cap_spilled ? host_bytes : 0;
    }
    if (found->own_cap_spilled) {
        find_least(search, 0, state->cap_bytes / search->grain_bytes, &found->spilled);
    } else {
        find_least(search, state->cap_bytes / search->grain_bytes, grains, &found->spilled);
    }
}

/* Cuts what came after the request that the run ended of, and leaves out those that it went on
 * without: they are no part of what is asked. False where it ended of none. */
static bool end_at_fatal(struct ms_recording *recording)
{
    struct ms_operation *operations = (struct ms_operation *)recording->operations.at;
    size_t count = ms_recording_count(recording), kept = 0;

    while (count > 0 && operations[count - 1].kind != MS_OPERATION_FATAL) {
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        if (operations[i].kind != MS_OPERATION_REFUSED) {
            operations[kept++] = operations[i];
        }
    }
    recording->operations.bytes = kept * sizeof(*operations);
    return kept > 0;
}

bool ms_what_if_search(struct ms_recording *recording, const struct ms_oom_state *state,
                       uint64_t most_operations, struct ms_what_if *found)
{
    struct ms_call_costs costs = {0};

    if (ms_call_costs_default(&costs)) {
        struct search search = {
            .recording = recording,
            .config = {.host_limit_bytes = MS_REPLAY_AMPLE_BYTES, .charges = true, .costs = &costs},
            .found = found,
            .grain_bytes =
                found->device_bytes / PARTS / MS_REPLAY_GRANULE_BYTES * MS_REPLAY_GRANULE_BYTES,
            .left = most_operations};

        search.grain_bytes += search.grain_bytes == 0 ? MS_REPLAY_GRANULE_BYTES : 0;
        if (end_at_fatal(recording)) {
            search_all(&search, state);
        }
    }
    ms_call_costs_free(&costs);
    return found->replays > 0;
}

bool ms_overhead_search(const struct ms_recording *recording, struct ms_overhead *found)
{
    struct ms_call_costs costs = {0};
    const struct ms_replay_config config = {.host_limit_bytes = MS_REPLAY_AMPLE_BYTES,
                                            .costs = &costs};
    struct ms_replay_result result;

    if (ms_call_costs_default(&costs)) {
        found->peak_live_bytes = recording->peak_live_bytes;
        found->min_cap_bytes = ms_replay_min_cap(recording, &config, 0, &result, &found->replays);
    }
    ms_call_costs_free(&costs);
    return found->min_cap_bytes > 0 && found->peak_live_bytes > 0;
}
