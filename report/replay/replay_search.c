/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the smallest cap with which a recording fits. */
#include "report/replay/replay.h"

/* One replay at a cap of so many granules. */
static bool fits(const struct ms_recording *recording, const struct ms_replay_config *config,
                 uint64_t granules, struct ms_replay_result *result)
{
    struct ms_replay_config at = *config;

    at.cap_bytes = granules * MS_REPLAY_GRANULE_BYTES;
    at.device_bytes = at.cap_bytes;
    at.charges = false;
    at.timed = false;
    at.checked = false;
    ms_replay_run(recording, &at, result);
    return ms_replay_fits(result);
}

/* The smallest cap found between `low`, which fails, and `high`, which completes. */
static uint64_t bisect(const struct ms_recording *recording, const struct ms_replay_config *config,
                       uint64_t low, uint64_t high, unsigned *replays)
{
    struct ms_replay_result result;

    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;

        ++*replays;
        if (fits(recording, config, middle, &result)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

uint64_t ms_replay_min_cap(const struct ms_recording *recording,
                           const struct ms_replay_config *config, unsigned neighbours,
                           struct ms_replay_result *result, unsigned *replays)
{
    const uint64_t granule = MS_REPLAY_GRANULE_BYTES;
    /* Less than the peak of live bytes, or the request that ended the run, is never enough. */
    const uint64_t floor = (recording->peak_wanted_bytes + granule - 1) / granule;
    struct ms_replay_config at = *config;
    uint64_t best;

    *replays = 1;
    if (!fits(recording, config, MS_REPLAY_AMPLE_BYTES / granule, result)) {
        return 0;
    }
    best = (result->peak_charged_bytes + granule - 1) / granule;
    for (best = best > floor ? best : floor; ++*replays, !fits(recording, config, best, result);) {
        best += best / 8 + 1;
    }
    best = bisect(recording, config, floor > 0 ? floor - 1 : 0, best, replays);
    for (uint64_t below = best; neighbours > 0 && below > floor + 1 && best - below < neighbours;) {
        below--;
        ++*replays;
        if (fits(recording, config, below, result)) {
            best = below;
        }
    }
    at.cap_bytes = best * granule;
    at.device_bytes = at.cap_bytes;
    at.charges = false;
    ms_replay_run(recording, &at, result);
    return at.cap_bytes;
}
