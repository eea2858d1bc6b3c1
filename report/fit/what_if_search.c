/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the least cap with which a recorded run completes. */
#include "report/fit/what_if_search.h"

#include "report/replay/recording.h"
#include "report/replay/replay.h"
#include "report/trace/verdict_rule.h"

#define PARTS 100 /* of the run's room: the grain of the caps to try */

struct what_if_search {
    const struct ms_recording *recording;
    struct ms_replay_config config;
    struct ms_what_if *found;
    uint64_t grain_bytes;
    uint64_t left; /* operations that may still be replayed */
};

static bool may_replay(const struct what_if_search *search)
{
    return search->left >= ms_recording_count(search->recording);
}

/* Whether it completes with a cap of so many bytes; host_bytes: the most live memory on the
 * host. */
static bool completes(struct what_if_search *search, uint64_t cap_bytes, uint64_t *host_bytes)
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

/* Searches between `low` grains, which are too few, and `high`, which may be enough. */
static void find_least(struct what_if_search *search, uint64_t low, uint64_t high,
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

/* The run itself was one try: its memory was too small, whatever a replay finds; and too small by
 * the missing bytes, if no other placement would have helped. */
static uint64_t too_small_bytes(const struct ms_oom_state *state, uint64_t room_bytes)
{
    uint64_t short_bytes = 0;
    const enum ms_verdict verdict = ms_verdict_parts(state, &short_bytes, NULL, 0, NULL, 0);
    const bool placed = verdict != MS_VERDICT_FRAGMENTATION && verdict != MS_VERDICT_NOT_DEVICE;

    return placed && short_bytes > 0 && short_bytes <= UINT64_MAX - room_bytes
               ? room_bytes + short_bytes - 1
               : room_bytes;
}

/* Whether the run would have needed more room on the host than it had. */
static bool spilling_is_news(const struct ms_oom_state *state, uint64_t host_bytes)
{
    return host_bytes > state->spill_limit_bytes;
}

static void search_all(struct what_if_search *search, const struct ms_oom_state *state)
{
    struct ms_what_if *found = search->found;
    const struct ms_verdict_terms terms = ms_verdict_terms(state);
    const uint64_t room = found->room_bytes;
    const uint64_t low = too_small_bytes(state, room) / search->grain_bytes;
    const uint64_t need = terms.fixed_bytes + state->live_bytes + found->request_bytes;
    const uint64_t least = need / search->grain_bytes + (need % search->grain_bytes > 0 ? 1 : 0);
    uint64_t host_bytes;

    found->plain.too_small_bytes = room;
    find_least(search, low, least > low ? least : low + 1, &found->plain);
    if (state->unspilled_by == MS_UNSPILLED_NO_ACCESS) {
        return;
    }
    search->config.spill_bytes = MS_REPLAY_AMPLE_BYTES;
    if (may_replay(search) && completes(search, room, &host_bytes) &&
        spilling_is_news(state, host_bytes)) {
        found->own_cap_spilled = true;
        found->own_cap_host_bytes = host_bytes;
        find_least(search, 0, room / search->grain_bytes, &found->spilled);
    } else {
        found->spilled.too_small_bytes = room;
        find_least(search, room / search->grain_bytes, least > low ? least : low + 1,
                   &found->spilled);
    }
}

/* Cuts off all after the request that ended the run, and drops failed requests that it survived:
 * they do not belong to the question. False: no request ended it. */
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
    const struct ms_verdict_terms terms = ms_verdict_terms(state);
    struct ms_call_costs costs = {0};

    found->room_bytes = ms_verdict_room_bytes(&terms);
    if (ms_call_costs_default(&costs)) {
        struct what_if_search search = {
            .recording = recording,
            .config = {.host_limit_bytes = MS_REPLAY_AMPLE_BYTES, .charges = true, .costs = &costs},
            .found = found,
            .grain_bytes =
                found->room_bytes / PARTS / MS_REPLAY_GRANULE_BYTES * MS_REPLAY_GRANULE_BYTES,
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
