/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a replay, for people and for programs. */
#ifndef MEMSHIM_REPORT_RENDER_COMMANDS_REPLAY_H
#define MEMSHIM_REPORT_RENDER_COMMANDS_REPLAY_H

#include "report/replay/replay.h"

struct ms_replay_answer {
    const char *trace; /* as given */
    const struct ms_recording *recording;
    const struct ms_replay_config *config; /* cap_bytes: MS_REPLAY_AMPLE_BYTES: no cap */
    const struct ms_replay_result *result;
    bool searched;          /* with a search for the smallest cap */
    uint64_t min_cap_bytes; /* 0: none found */
    unsigned replays;
};

void ms_replay_text(const struct ms_replay_answer *answer, struct ms_buffer *out);
void ms_replay_json(const struct ms_replay_answer *answer, struct ms_buffer *out);

#endif
