/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay found, for people and for programs. */
#ifndef MEMSHIM_REPORT_RENDER_COMMANDS_REPLAY_H
#define MEMSHIM_REPORT_RENDER_COMMANDS_REPLAY_H

#include "report/replay/replay.h"

struct ms_replay_answer {
    const char *trace; /* as it was named */
    const struct ms_recording *recording;
    const struct ms_replay_config
        *config; /* cap_bytes: MS_REPLAY_AMPLE_BYTES where there is none */
    const struct ms_replay_result *result;
    bool searched;          /* the smallest cap was asked for */
    uint64_t min_cap_bytes; /* 0: none was found */
    unsigned replays;
};

void ms_replay_text(const struct ms_replay_answer *answer, struct ms_buffer *out);
void ms_replay_json(const struct ms_replay_answer *answer, struct ms_buffer *out);

#endif
