/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a recorded run through the pool itself, on the dry device. */
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
    MS_REPLAY_NATIVE, /* segments and pages as requested, tensors at their places in them */
    MS_REPLAY_TENSOR  /* every tensor is a block, which the pool places; no segments, no pages */
};

/* Which chunk to take out of holes (allocator/backing/choice.h); ORACLE knows which is needed
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

/* Which live memory to spill first (allocator/spill/choice.h). */
enum ms_spill_policy { MS_SPILL_PREDICT, MS_SPILL_LRU, MS_SPILL_POLICY_COUNT };

extern const char *const ms_spill_policy_names[MS_SPILL_POLICY_COUNT];
extern const char *const ms_operation_names[MS_OPERATION_KIND_COUNT];

/* The calls that a driver would have got, by cost. */
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

/* The cost of one call: the row of the smallest size not below the call's, else of the largest. A
 * call without a row costs nothing. */
struct ms_call_cost {
    uint8_t call;   /* enum ms_replay_call */
    uint64_t bytes; /* of the chunk or range */
    uint64_t median_ns, p99_ns;
};

struct ms_call_costs {
    struct ms_buffer rows; /* struct ms_call_cost, by call and bytes */
};

/* The dry device's table: kvcached's benchmark on an A100. */
bool ms_call_costs_default(struct ms_call_costs *costs);

/* Reads a CSV with the header call,bytes,median_ns,p99_ns; # begins a comment. False, with a
 * sentence that names file, line and field. */
bool ms_call_costs_read(struct ms_call_costs *costs, const char *path, char *why, size_t why_bytes);
/* The row for such a call; null: there is none, and the call is free. */
const struct ms_call_cost *ms_call_cost_of(const struct ms_call_costs *costs,
                                           enum ms_replay_call call, uint64_t bytes);
void ms_call_costs_free(struct ms_call_costs *costs);

/* The costs of a standstill's calls, for chunks of a granule, as the dry device needs them; the
 * rest is free. */
void ms_call_costs_of_halts(const struct ms_call_costs *costs, struct ms_dry_costs *out);

struct ms_replay_config {
    uint64_t cap_bytes;
    uint64_t device_bytes;     /* of the dry device */
    uint64_t host_limit_bytes; /* most host memory for holes */
    uint64_t spill_bytes;      /* most live memory on the host at a time; 0: no spilling */
    enum ms_replay_mode mode;
    enum ms_replay_policy policy;
    enum ms_spill_policy spill_policy;
    uint64_t lag;         /* an operation's work ends this many operations later; 0: at once */
    uint64_t steps_every; /* a step has so many operations; 0: steps from the recording */
    bool views;           /* a chunk may be mapped at two addresses */
    bool charges;         /* include the driver's memory besides the pool */
    bool uses_untold;     /* the pool sees allocations and frees only, and no uses: as if no driver
                             reported kernels' parameters */
    bool timed;           /* measure the pool's own time */
    bool checked;         /* check that every live byte is backed, and that the pool is valid */
    const struct ms_call_costs *costs;
};

struct ms_replay_failure {
    bool happened;
    size_t operation;   /* index into the recording */
    ms_status_t status; /* the pool's */
    uint64_t charged_bytes, live_bytes, free_bytes, hole_bytes, pending_bytes, largest_free_bytes;
    struct ms_oom_state state; /* when memory ran out: for the verdict */
};

/* The cost of spilling in whole steps after the warm-up. */
struct ms_replay_moved {
    uint64_t down_bytes, up_bytes;
    uint64_t used_bytes;  /* used while on the host */
    uint64_t least_bytes; /* the bytes of each step over the cap, once down and once up */
    uint64_t halts, stall_ns;
    uint64_t steps; /* 0: the recording has too few, or has no steps */
};

struct ms_replay_result {
    bool host_memory; /* this machine ran out of memory: nothing below is valid */
    struct ms_replay_failure failure;
    uint64_t operations; /* replayed */
    /* Requests that the run did not get. They are tried here, and the memory is given back at once,
     * but counts in the peaks. If the request that ended the run fails here, the replay has failed;
     * a failure of the others belongs to the run. */
    uint64_t refused, refused_served;
    uint64_t peak_live_bytes, peak_reserved_bytes, peak_charged_bytes;
    uint64_t peak_host_backed_bytes;
    uint64_t calls[MS_REPLAY_CALL_COUNT];
    uint64_t modelled_ns, modelled_p99_ns;
    struct ms_pool_stats pool;   /* at the end */
    uint64_t used_on_host_bytes; /* on the host when used: see replay_uses.h; counted twice if also
                                    written */
    struct ms_replay_moved warm;
    uint64_t invalid_reports;     /* allocations over live tensors, frees of none */
    uint64_t driver_calls, moves; /* of the whole run: calls without fences; chunks that moved */
    uint64_t steps;               /* 0: unknown */
    uint64_t calls_after_second_step, moves_after_second_step;
    uint64_t pool_ns; /* for pool_operations, if measured */
    uint64_t pool_operations;
    uint64_t elapsed_ns; /* of the whole replay */
    char violation[256]; /* found by the dry device or the pool's own check */
};

/* Completed: every operation, and nothing on the host. */
static inline bool ms_replay_fits(const struct ms_replay_result *result)
{
    return !result->host_memory && !result->failure.happened && result->peak_host_backed_bytes == 0;
}

void ms_replay_run(const struct ms_recording *recording, const struct ms_replay_config *config,
                   struct ms_replay_result *result);

/* The smallest cap, in granules, with which it completes with nothing on the host; charges are left
 * out. Success is not monotone: the search also tries the caps below the smallest one found, as
 * many as `neighbours`. `result` has the replay at that cap; 0: it completes with none. replays:
 * how many it took. */
uint64_t ms_replay_min_cap(const struct ms_recording *recording,
                           const struct ms_replay_config *config, unsigned neighbours,
                           struct ms_replay_result *result, unsigned *replays);

/* Device memory that is enough for anything. */
#define MS_REPLAY_AMPLE_BYTES (UINT64_C(1) << 40)

#endif
