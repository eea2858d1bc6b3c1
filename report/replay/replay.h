/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded run once more, through the pool itself, on the dry device. */
#ifndef MEMSHIM_REPORT_REPLAY_REPLAY_H
#define MEMSHIM_REPORT_REPLAY_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/device/dry.h"
#include "allocator/pool.h"
#include "report/replay/recording.h"
#include "report/trace/verdict.h"

#define MS_REPLAY_GRANULE_BYTES (UINT64_C(2) << 20)

enum ms_replay_mode {
    MS_REPLAY_NATIVE, /* segments and pages as they were asked for, tensors where they lay in them
                       */
    MS_REPLAY_TENSOR  /* every tensor a block, which the pool places; no segments, no pages */
};

/* Which chunk is taken out of holes (allocator/backing/choice.h); ORACLE knows which is needed
 * last. */
enum ms_replay_policy {
    MS_POLICY_DEFAULT,
    MS_POLICY_HIGHEST,
    MS_POLICY_OLDEST,
    MS_POLICY_NEWEST,
    MS_POLICY_GAP,
    MS_POLICY_ORACLE,
    MS_POLICY_COUNT
};

extern const char *const ms_policy_names[MS_POLICY_COUNT];

/* What live memory is spilled first (allocator/spill/choice.h). */
enum ms_spill_policy { MS_SPILL_PREDICT, MS_SPILL_LRU, MS_SPILL_POLICY_COUNT };

extern const char *const ms_spill_policy_names[MS_SPILL_POLICY_COUNT];
extern const char *const ms_operation_names[MS_OPERATION_KIND_COUNT];

/* Calls that a driver would have got, by what they cost. */
enum ms_replay_call {
    MS_REPLAY_RESERVE,
    MS_REPLAY_RESERVE_FREE,
    MS_REPLAY_CREATE,
    MS_REPLAY_CREATE_HOST,
    MS_REPLAY_RELEASE,
    MS_REPLAY_MAP,
    MS_REPLAY_SET_ACCESS,
    MS_REPLAY_UNMAP,
    MS_REPLAY_FENCE_TAKE,
    MS_REPLAY_FENCE_QUERY,
    MS_REPLAY_FENCE_WAIT,
    MS_REPLAY_STREAM_WAIT,
    MS_REPLAY_HALT,
    MS_REPLAY_COPY_DOWN, /* of one MiB, device to host */
    MS_REPLAY_COPY_UP,
    MS_REPLAY_CALL_COUNT
};

extern const char *const ms_replay_call_names[MS_REPLAY_CALL_COUNT];

/* What one call costs: the row of the smallest size that is not below the call's, else of the
 * largest. A call without a row costs nothing. */
struct ms_call_cost {
    uint8_t call;   /* enum ms_replay_call */
    uint64_t bytes; /* of the chunk or range */
    uint64_t median_ns, p99_ns;
};

struct ms_call_costs {
    struct ms_buffer rows; /* struct ms_call_cost, by call and bytes */
};

/* The table of the dry device: kvcached's benchmark on an A100. */
bool ms_call_costs_default(struct ms_call_costs *costs);

/* A CSV with the header call,bytes,median_ns,p99_ns; # begins a comment. False and a sentence that
 * names file, line and field. */
bool ms_call_costs_read(struct ms_call_costs *costs, const char *path, char *why, size_t why_bytes);
/* The row that prices such a call; null: there is none, and it is free. */
const struct ms_call_cost *ms_call_cost_of(const struct ms_call_costs *costs,
                                           enum ms_replay_call call, uint64_t bytes);
void ms_call_costs_free(struct ms_call_costs *costs);

/* What the calls of a standstill cost, for chunks of a granule: what the dry device needs to know
 * of it, the rest free. */
void ms_call_costs_of_halts(const struct ms_call_costs *costs, struct ms_dry_costs *out);

struct ms_replay_config {
    uint64_t cap_bytes;
    uint64_t device_bytes;     /* of the dry device */
    uint64_t host_limit_bytes; /* most host memory behind holes */
    uint64_t spill_bytes;      /* most live memory on the host at a time; 0: none is spilled */
    enum ms_replay_mode mode;
    enum ms_replay_policy policy;
    enum ms_spill_policy spill_policy;
    uint64_t lag;         /* an operation's work is done so many operations later; 0: at once */
    uint64_t steps_every; /* a step is so many operations; 0: as the recording says */
    bool views;           /* a chunk may be mapped at two addresses */
    bool charges;         /* what the driver took beside the pool counts */
    bool uses_untold;     /* the pool learns of allocations and frees alone: what is used, it is not
                             told, as where no driver tells what a kernel's parameters are */
    bool timed;           /* the pool's own time is measured */
    bool checked;         /* every live byte is seen to be backed, and the pool to be valid */
    const struct ms_call_costs *costs;
};

struct ms_replay_failure {
    bool happened;
    size_t operation;   /* index into the recording */
    ms_status_t status; /* of the pool */
    uint64_t charged_bytes, live_bytes, free_bytes, hole_bytes, pending_bytes, largest_free_bytes;
    struct ms_oom_state state; /* where memory ran out: for the verdict */
};

/* What spilling cost in whole steps after the warm-up. */
struct ms_replay_moved {
    uint64_t down_bytes, up_bytes;
    uint64_t used_bytes;  /* where they lay on the host */
    uint64_t least_bytes; /* the bytes over the cap of each step, once down and once up */
    uint64_t halts, stall_ns;
    uint64_t steps; /* 0: the recording has too few, or does not tell of them */
};

struct ms_replay_result {
    bool host_memory; /* of this machine: it ran out, nothing below holds */
    struct ms_replay_failure failure;
    uint64_t operations; /* that were replayed */
    /* Requests that the run did not get: tried here, and of these got, which are given back at once
     * and stand in the peaks. Where the one that the run ended of is not got, this is a failure;
     * the others were part of the run as it was. */
    uint64_t refused, refused_served;
    uint64_t peak_live_bytes, peak_reserved_bytes, peak_charged_bytes;
    uint64_t peak_host_backed_bytes, host_backed_allocations;
    uint64_t calls[MS_REPLAY_CALL_COUNT];
    uint64_t modelled_ns, modelled_p99_ns;
    struct ms_pool_stats pool;   /* at the end */
    uint64_t used_on_host_bytes; /* that lay on the host when they were used: see replay_uses.h;
                                    twice where they were also written */
    struct ms_replay_moved warm;
    uint64_t invalid_reports;     /* allocations over live tensors, frees of none */
    uint64_t driver_calls, moves; /* of the whole run: calls except fences; chunks that moved */
    uint64_t steps;               /* 0: not known */
    uint64_t calls_after_second_step, moves_after_second_step;
    uint64_t pool_ns; /* of pool_operations, where it was timed */
    uint64_t pool_operations;
    uint64_t elapsed_ns; /* of the whole replay */
    char violation[256]; /* what the dry device or the pool's own check found */
};

/* What counts as completed: every operation, and nothing on the host. */
static inline bool ms_replay_fits(const struct ms_replay_result *result)
{
    return !result->host_memory && !result->failure.happened && result->peak_host_backed_bytes == 0;
}

void ms_replay_run(const struct ms_recording *recording, const struct ms_replay_config *config,
                   struct ms_replay_result *result);

/* The smallest cap, in granules, with which it completes with nothing on the host; charges are left
 * out. Success is not monotone: the caps below the smallest that was found are tried one by one, as
 * many as `neighbours`. Leaves the replay at that cap in `result`; 0 where it completes with none.
 * replays: how many it took. */
uint64_t ms_replay_min_cap(const struct ms_recording *recording,
                           const struct ms_replay_config *config, unsigned neighbours,
                           struct ms_replay_result *result, unsigned *replays);

/* Device memory that is enough for anything. */
#define MS_REPLAY_AMPLE_BYTES (UINT64_C(1) << 40)

#endif
