/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one replay, for its files: replay.c sets it up, counts and concludes, replay_play.c
 * plays the operations, replay_work.c does the program's work. One thread. */
#ifndef MEMSHIM_REPORT_REPLAY_REPLAY_STATE_H
#define MEMSHIM_REPORT_REPLAY_REPLAY_STATE_H

#include "allocator/arenas/arena.h"
#include "report/replay/replay.h"
#include "report/replay/replay_oracle.h"

/* The stream of tensors in arenas, and of calls without a stream. */
#define MS_REPLAY_COMMON_STREAM (MS_RECORDED_STREAMS + 1)

struct ms_replay {
    const struct ms_recording *recording;
    const struct ms_replay_config *config;
    struct ms_replay_result *result;
    ms_dry_t *dry;
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
    struct ms_oracle *oracle; /* null: another choice is in use */
    ms_addr_t *addr_of;       /* by object: of blocks */
    ms_addr_t *base_of;       /* by arena; 0: not present */
    bool *freezing;           /* by arena: its next allocation belongs to a capture */
    uint64_t reserved_bytes, live_bytes, charged_beside;
    /* The pages without access so far: a framework sets access for all that it mapped. */
    ms_addr_t fresh_addr;
    uint64_t fresh_bytes;
    uint8_t *working; /* a ring of `lag` operations: each one's stream; 0: none */
    ms_fence_t seen;  /* the replay's own fence, by which the dry device learns what is done; 0:
                         none */
    uint64_t own_fences, own_queries;        /* calls for that fence: not the pool's */
    bool over;                               /* the pool's calls from now on do not belong to the
                                                run */
    uint64_t boundary_calls, boundary_moves; /* at the beginning of the third step */
    struct ms_buffer uses;                   /* of long-lived memory; if live memory is spilled */
    struct ms_buffer optimizers;             /* a byte for each site: see ms_recorded_uses */
    size_t next_use;
    uint64_t step_peak_bytes;              /* live, and charged beside, in this step */
    struct ms_replay_moved boundary_moved; /* at the end of the warm-up */
};

/* Plays every operation, up to the first failure. */
void ms_replay_play(struct ms_replay *replay);

/* The stream of an operation on the dry device. */
ms_stream_t ms_replay_stream_of(const struct ms_operation *operation);
/* Queues work on an operation's live range: when it is allocated, and before it is freed. */
void ms_replay_work(struct ms_replay *replay, const struct ms_operation *operation, ms_addr_t addr);
/* The program reads the range, and writes it if `written`: reports that to the pool. */
void ms_replay_use(struct ms_replay *replay, ms_addr_t addr, uint64_t bytes, bool written);
/* Uses long-lived memory, up to that operation, as the recording's uses say. */
void ms_replay_use_kept(struct ms_replay *replay, size_t operation);
/* Completes all queued work, and lets the host know, as a framework does before it unmaps pages. */
void ms_replay_see_all_done(struct ms_replay *replay);
/* Ends the work that was queued `lag` operations ago. */
void ms_replay_finish_work(struct ms_replay *replay);

#endif
