/* SPDX-License-Identifier: Apache-2.0 */
/* One replay under way, shared by the files that make it up: replay.c sets it up, counts and
 * concludes, replay_play.c plays the operations. One thread. */
#ifndef MEMSHIM_REPORT_REPLAY_REPLAY_STATE_H
#define MEMSHIM_REPORT_REPLAY_REPLAY_STATE_H

#include "allocator/arenas/arena.h"
#include "report/replay/replay.h"
#include "report/replay/replay_oracle.h"

/* Tensors inside arenas, and calls without a stream, work on a stream of their own. */
#define MS_REPLAY_COMMON_STREAM (MS_RECORDED_STREAMS + 1)

struct ms_replay {
    const struct ms_recording *recording;
    const struct ms_replay_config *config;
    struct ms_replay_result *result;
    ms_dry_t *dry;
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
    struct ms_oracle *oracle; /* null: another choice */
    ms_addr_t *addr_of;       /* by object: of blocks */
    ms_addr_t *base_of;       /* by arena; 0: it is not there */
    bool *freezing;           /* by arena: its next allocation is that of a capture */
    uint64_t reserved_bytes, live_bytes, charged_beside;
    /* The stretch of pages that has no access yet: a framework gives it to all that it mapped. */
    ms_addr_t fresh_addr;
    uint64_t fresh_bytes;
    uint8_t *working; /* a ring of `lag` operations: the stream on which each one works; 0: none */
    ms_fence_t seen;  /* a fence of our own, by which the dry device learns what is done; 0: none */
    uint64_t own_fences, own_queries;        /* calls for it: not the pool's */
    bool over;                               /* what the pool does now is not the run's */
    uint64_t boundary_calls, boundary_moves; /* at the beginning of the third step */
    struct ms_buffer uses;                   /* of what persists; where live memory is spilled */
    struct ms_buffer optimizers;             /* a byte for each site: see ms_recorded_uses */
    size_t next_use;
    uint64_t step_peak_bytes;              /* live, and charged beside, in this step */
    struct ms_replay_moved boundary_moved; /* when the warm-up was over */
};

/* Plays every operation, up to the first that fails. */
void ms_replay_play(struct ms_replay *replay);

#endif
