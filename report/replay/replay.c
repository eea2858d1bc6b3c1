/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a recording through the pool on the dry device, and sums up the cost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "report/replay/replay_state.h"
#include "report/replay/replay_uses.h"

#define WAIT_LIMIT_NS MS_NS_PER_S /* of the dry device's time */
#define PAGE_BYTES    4096u       /* the page size of most hosts */

const char *const ms_policy_names[MS_POLICY_COUNT] = {
    [MS_POLICY_DEFAULT] = "default", [MS_POLICY_HIGHEST] = "highest", [MS_POLICY_OLDEST] = "oldest",
    [MS_POLICY_NEWEST] = "newest",   [MS_POLICY_GAP] = "gap",         [MS_POLICY_ORACLE] = "oracle",
};

const char *const ms_spill_policy_names[MS_SPILL_POLICY_COUNT] = {
    [MS_SPILL_PREDICT] = "predict", [MS_SPILL_LRU] = "lru"};

const char *const ms_operation_names[MS_OPERATION_KIND_COUNT] = {
    [MS_OPERATION_ALLOC] = "alloc",       [MS_OPERATION_FREE] = "free",
    [MS_OPERATION_TENSOR_ALLOC] = "born", [MS_OPERATION_TENSOR_FREE] = "died",
    [MS_OPERATION_RESERVE] = "reserve",   [MS_OPERATION_UNRESERVE] = "unreserve",
    [MS_OPERATION_MAP] = "map",           [MS_OPERATION_UNMAP] = "unmap",
    [MS_OPERATION_CACHED] = "cached",     [MS_OPERATION_FREEZE] = "freeze",
    [MS_OPERATION_CHARGE] = "charge",     [MS_OPERATION_DISCHARGE] = "discharge",
    [MS_OPERATION_STEP] = "step",         [MS_OPERATION_REFUSED] = "refused",
    [MS_OPERATION_FATAL] = "fatal",
};

/* ---- driver calls, from the pool's counters ---- */

static void price(struct ms_replay *replay, enum ms_replay_call call, uint64_t bytes)
{
    const struct ms_call_cost *found = ms_call_cost_of(replay->config->costs, call, bytes);

    if (found) {
        replay->result->modelled_ns += found->median_ns;
        replay->result->modelled_p99_ns += found->p99_ns;
    }
}

static void count(struct ms_replay *replay, enum ms_replay_call call, uint64_t bytes)
{
    replay->result->calls[call]++;
    replay->result->driver_calls++;
    price(replay, call, bytes);
}

static void note_event(void *ctx, const struct ms_event *event)
{
    struct ms_replay *replay = ctx;
    const bool host = event->aux == MS_LOCATION_HOST;

    if (replay->over) {
        return;
    }
    switch (event->kind) {
    case MS_EVENT_CHUNK_CREATE:
        count(replay, host ? MS_REPLAY_CREATE_HOST : MS_REPLAY_CREATE, event->bytes);
        replay->reserved_bytes += host ? 0 : event->bytes;
        if (replay->reserved_bytes > replay->result->peak_reserved_bytes) {
            replay->result->peak_reserved_bytes = replay->reserved_bytes;
        }
        break;
    case MS_EVENT_CHUNK_RELEASE:
        count(replay, MS_REPLAY_RELEASE, event->bytes);
        replay->reserved_bytes -= host ? 0 : event->bytes;
        break;
    case MS_EVENT_MAP:
        count(replay, MS_REPLAY_MAP, event->bytes);
        break;
    case MS_EVENT_UNMAP:
        count(replay, MS_REPLAY_UNMAP, event->bytes);
        break;
    case MS_EVENT_SET_ACCESS:
        count(replay, MS_REPLAY_SET_ACCESS, event->bytes);
        break;
    case MS_EVENT_RANGE_RESERVE:
        count(replay, MS_REPLAY_RESERVE, event->bytes);
        break;
    case MS_EVENT_RANGE_FREE:
        count(replay, MS_REPLAY_RESERVE_FREE, event->bytes);
        break;
    default:
        break;
    }
}
static uint64_t newest_rank(void *ctx, const struct ms_candidate *candidate)
{
    (void)ctx;
    return candidate->free_since;
}

static const struct ms_choice newest = {.rank = newest_rank};

static const struct ms_choice *choice_of(const struct ms_replay *replay)
{
    switch (replay->config->policy) {
    case MS_POLICY_HIGHEST:
        return &ms_choice_highest;
    case MS_POLICY_OLDEST:
        return &ms_choice_oldest;
    case MS_POLICY_NEWEST:
        return &newest;
    case MS_POLICY_GAP:
        return &ms_choice_gap;
    case MS_POLICY_ORACLE:
        return ms_oracle_choice(replay->oracle);
    default:
        return NULL;
    }
}

static bool is_optimizers(void *ctx, uint32_t site)
{
    const struct ms_buffer *optimizers = ctx;

    return site < optimizers->bytes && optimizers->at[site];
}

static bool set_up_tables(struct ms_replay *replay)
{
    const struct ms_recording *recording = replay->recording;
    const size_t arenas = ms_recording_arenas(recording) + 1;

    replay->addr_of = calloc((size_t)recording->objects + 1, sizeof(*replay->addr_of));
    replay->base_of = calloc(arenas, sizeof(*replay->base_of));
    replay->freezing = calloc(arenas, sizeof(*replay->freezing));
    replay->working = calloc(replay->config->lag + 1, sizeof(*replay->working));
    if (replay->config->policy == MS_POLICY_ORACLE) {
        replay->oracle = ms_oracle_new(recording);
        if (!replay->oracle) {
            return false;
        }
    }
    if (replay->config->spill_bytes > 0 &&
        !ms_recorded_uses(recording, &replay->uses, &replay->optimizers)) {
        return false;
    }
    return replay->addr_of && replay->base_of && replay->freezing && replay->working;
}

static bool set_up_device(struct ms_replay *replay)
{
    const struct ms_replay_config *config = replay->config;
    const struct ms_event_sink sink = {.emit = note_event, .ctx = replay};
    struct ms_dry_costs costs;
    const struct ms_dry_config device = {.granule_bytes = MS_REPLAY_GRANULE_BYTES,
                                         .total_bytes = config->device_bytes,
                                         .uses_untold = config->uses_untold,
                                         .costs = config->spill_bytes > 0 ? &costs : NULL};

    ms_call_costs_of_halts(config->costs, &costs);

    if (ms_dry_create(&device, &replay->dry) != MS_OK) {
        return false;
    }
    for (ms_stream_t stream = 1; stream <= MS_REPLAY_COMMON_STREAM; stream++) {
        if ((stream <= replay->recording->streams || stream == MS_REPLAY_COMMON_STREAM) &&
            ms_dry_stream_create(replay->dry, stream) != MS_OK) {
            return false;
        }
    }
    ms_budget_init(&replay->budget, config->cap_bytes);

    const struct ms_pool_config pool = {.ops = ms_dry_ops(replay->dry),
                                        .budget = &replay->budget,
                                        .sink = sink,
                                        .wait_limit_ns = WAIT_LIMIT_NS,
                                        .host_limit_bytes = config->host_limit_bytes,
                                        .spill_limit_bytes = config->spill_bytes,
                                        .halt_limit_ns = WAIT_LIMIT_NS,
                                        .spill_choice = config->spill_policy == MS_SPILL_LRU
                                                            ? &ms_spill_choice_lru
                                                            : &ms_spill_choice_predict,
                                        .choice = choice_of(replay),
                                        .is_optimizers = is_optimizers,
                                        .sites = &replay->optimizers,
                                        .views = config->views,
                                        .page_bytes = PAGE_BYTES};

    return ms_pool_create(&pool, &replay->pool) == MS_OK &&
           ms_arenas_create(0, replay->pool, sink, &replay->arenas) == MS_OK;
}

static void count_fences(struct ms_replay *replay)
{
    static const struct {
        enum ms_replay_call call;
        enum ms_dry_op op;
    } fences[] = {{MS_REPLAY_FENCE_TAKE, MS_DRY_FENCE_TAKE},
                  {MS_REPLAY_FENCE_QUERY, MS_DRY_FENCE_QUERY},
                  {MS_REPLAY_FENCE_WAIT, MS_DRY_FENCE_WAIT},
                  {MS_REPLAY_STREAM_WAIT, MS_DRY_STREAM_WAIT}};

    for (size_t i = 0; i < sizeof(fences) / sizeof(fences[0]); i++) {
        const uint64_t own = fences[i].op == MS_DRY_FENCE_TAKE    ? replay->own_fences
                             : fences[i].op == MS_DRY_FENCE_QUERY ? replay->own_queries
                                                                  : 0;
        const uint64_t calls = ms_dry_calls(replay->dry, fences[i].op) - own;
        const uint64_t before_ns = replay->result->modelled_ns;
        const uint64_t before_p99_ns = replay->result->modelled_p99_ns;

        replay->result->calls[fences[i].call] = calls;
        price(replay, fences[i].call, 0);
        replay->result->modelled_ns = before_ns + (replay->result->modelled_ns - before_ns) * calls;
        replay->result->modelled_p99_ns =
            before_p99_ns + (replay->result->modelled_p99_ns - before_p99_ns) * calls;
    }
}

static void conclude(struct ms_replay *replay)
{
    struct ms_replay_result *result = replay->result;
    struct ms_arenas_stats arenas;

    replay->over = true;
    ms_pool_stats(replay->pool, &result->pool);
    ms_arenas_stats(replay->arenas, &arenas);
    count_fences(replay);
    result->peak_charged_bytes = atomic_load(&replay->budget.peak_charged_bytes);
    result->peak_host_backed_bytes = result->pool.peak_host_backed_bytes;
    result->invalid_reports = arenas.invalid_reports;
    result->moves = result->pool.chunks_moved;
    if (result->steps > 2) {
        result->calls_after_second_step = result->driver_calls - replay->boundary_calls;
        result->moves_after_second_step = result->moves - replay->boundary_moves;
    }
    if (replay->config->checked && !result->violation[0]) {
        const char *violation = ms_dry_violation(replay->dry);

        if (violation) {
            (void)snprintf(result->violation, sizeof(result->violation), "%s", violation);
        } else {
            (void)ms_pool_is_valid(replay->pool, result->violation, sizeof(result->violation));
        }
    }
}

static void tear_down(struct ms_replay *replay)
{
    ms_arenas_destroy(replay->arenas);
    if (replay->pool) {
        ms_pool_destroy(replay->pool, true);
    }
    if (replay->dry) {
        ms_dry_destroy(replay->dry);
    }
    ms_oracle_delete(replay->oracle);
    ms_buffer_free(&replay->uses);
    ms_buffer_free(&replay->optimizers);
    free(replay->addr_of);
    free(replay->base_of);
    free(replay->freezing);
    free(replay->working);
}

void ms_replay_run(const struct ms_recording *recording, const struct ms_replay_config *config,
                   struct ms_replay_result *result)
{
    struct ms_replay replay = {.recording = recording, .config = config, .result = result};
    const uint64_t start_ns = ms_clock_ns();

    memset(result, 0, sizeof(*result));
    if (set_up_tables(&replay) && set_up_device(&replay)) {
        ms_replay_play(&replay);
        conclude(&replay);
    } else {
        result->host_memory = true;
    }
    tear_down(&replay);
    result->elapsed_ns = ms_clock_ns() - start_ns;
}
