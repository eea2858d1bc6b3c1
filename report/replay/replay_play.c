/* SPDX-License-Identifier: Apache-2.0 */
/* Plays the operations of a recording, one after the other. */
#include "allocator/arenas/proxy.h"
#include "allocator/base/clock.h"
#include "report/replay/replay_state.h"

#define WARM_UP_STEPS 4 /* their spills are not typical of a step */

static uint64_t begin_timing(const struct ms_replay *replay)
{
    return replay->config->timed ? ms_clock_ns() : 0;
}

static void end_timing(struct ms_replay *replay, uint64_t start_ns)
{
    if (replay->config->timed) {
        replay->result->pool_ns += ms_clock_ns() - start_ns;
        replay->result->pool_operations++;
    }
}

static void note_step_peak(struct ms_replay *replay)
{
    const uint64_t bytes = replay->live_bytes + replay->charged_beside;

    if (bytes > replay->step_peak_bytes) {
        replay->step_peak_bytes = bytes;
    }
}

static void grow_live(struct ms_replay *replay, uint64_t bytes)
{
    replay->live_bytes += bytes;
    note_step_peak(replay);
    if (replay->live_bytes > replay->result->peak_live_bytes) {
        replay->result->peak_live_bytes = replay->live_bytes;
    }
}

static void place_arena(struct ms_replay *replay, uint32_t arena, ms_addr_t base)
{
    replay->base_of[arena] = base;
    if (replay->oracle) {
        ms_oracle_placed(replay->oracle, arena, base);
    }
}

static void lose_arena(struct ms_replay *replay, uint32_t arena)
{
    replay->base_of[arena] = 0;
    if (replay->oracle) {
        ms_oracle_gone(replay->oracle, arena);
    }
}

static struct ms_request request_of(const struct ms_operation *operation)
{
    return (struct ms_request){.bytes = operation->bytes,
                               .stream = ms_replay_stream_of(operation),
                               .site = operation->site,
                               .may_wait = true};
}

static ms_status_t alloc(struct ms_replay *replay, const struct ms_operation *operation)
{
    const struct ms_request request = request_of(operation);
    const bool arena =
        operation->kind == MS_OPERATION_ALLOC && operation->arena != MS_RECORDED_NONE;
    struct ms_block_info block = {0};
    const uint64_t start_ns = begin_timing(replay);
    const ms_status_t status = ms_pool_alloc(replay->pool, &request, &block);

    end_timing(replay, start_ns);
    if (status != MS_OK) {
        return status;
    }
    replay->addr_of[operation->object] = block.addr;
    if (arena) {
        place_arena(replay, operation->arena, block.addr);
    } else {
        grow_live(replay, operation->bytes);
        ms_replay_work(replay, operation, block.addr);
    }
    return MS_OK;
}

/* The program went on without the memory, or ended: gives it back at once if it gets it. */
static ms_status_t ask_again(struct ms_replay *replay, const struct ms_operation *operation)
{
    const struct ms_request request = request_of(operation);
    struct ms_block_info block;
    const ms_status_t status = ms_pool_alloc(replay->pool, &request, &block);

    replay->result->refused++;
    if (status == MS_OK) {
        replay->result->refused_served++;
        (void)ms_pool_free(replay->pool, block.addr, request.stream);
    }
    return operation->kind == MS_OPERATION_FATAL ? status : MS_OK;
}

static void release(struct ms_replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->addr_of[operation->object];
    const bool arena = operation->kind == MS_OPERATION_FREE && operation->arena != MS_RECORDED_NONE;

    if (arena) {
        ms_arenas_block_gone(replay->arenas, addr, operation->bytes);
        lose_arena(replay, operation->arena);
    } else {
        replay->live_bytes -= operation->bytes;
        ms_replay_use(replay, addr, operation->bytes, false);
        ms_replay_work(replay, operation, addr);
    }

    const uint64_t start_ns = begin_timing(replay);

    (void)ms_pool_free(replay->pool, addr, ms_replay_stream_of(operation));
    end_timing(replay, start_ns);
}

static ms_status_t born(struct ms_replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->base_of[operation->arena] + operation->offset;
    const bool capturing = replay->freezing[operation->arena];
    ms_status_t status;

    if (capturing) {
        ms_dry_set_capturing(replay->dry, true);
        replay->freezing[operation->arena] = false;
    }

    const uint64_t start_ns = begin_timing(replay);

    status =
        ms_arenas_allocated(replay->arenas, addr, operation->bytes, operation->site, UINT64_MAX);
    end_timing(replay, start_ns);
    if (capturing) {
        ms_dry_set_capturing(replay->dry, false);
    }
    grow_live(replay, operation->bytes);
    if (status == MS_OK) {
        ms_replay_work(replay, operation, addr);
    }
    return status == MS_ERR_INVALID ? MS_OK : status; /* the statistics count it */
}

static void died(struct ms_replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->base_of[operation->arena] + operation->offset;

    replay->live_bytes -= operation->bytes;
    ms_replay_use(replay, addr, operation->bytes, false);
    ms_replay_work(replay, operation, addr);

    const uint64_t start_ns = begin_timing(replay);

    (void)ms_arenas_freed(replay->arenas, addr, operation->bytes, UINT64_MAX);
    end_timing(replay, start_ns);
}

/* A tensor was allocated and freed there before the recording: the pool may take its memory. */
static ms_status_t cached(struct ms_replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->base_of[operation->arena] + operation->offset;
    const uint64_t start_ns = begin_timing(replay);
    const ms_status_t status =
        ms_arenas_allocated(replay->arenas, addr, operation->bytes, operation->site, UINT64_MAX);

    if (status == MS_OK) {
        (void)ms_arenas_freed(replay->arenas, addr, operation->bytes, UINT64_MAX);
    }
    end_timing(replay, start_ns);
    return status == MS_ERR_INVALID ? MS_OK : status; /* the statistics count it */
}

static void charge(struct ms_replay *replay, const struct ms_operation *operation)
{
    if (!replay->config->charges) {
        return;
    }
    if (operation->kind == MS_OPERATION_CHARGE) {
        ms_budget_impose(&replay->budget, MS_OWNER_FORWARDED, operation->bytes);
        replay->charged_beside += operation->bytes;
        note_step_peak(replay);
        return;
    }

    const uint64_t back =
        operation->bytes < replay->charged_beside ? operation->bytes : replay->charged_beside;

    ms_budget_discharge(&replay->budget, MS_OWNER_FORWARDED, back);
    replay->charged_beside -= back;
}

static uint64_t moves_so_far(struct ms_replay *replay)
{
    struct ms_pool_stats stats;

    ms_pool_stats(replay->pool, &stats);
    return stats.chunks_moved;
}

/* The bytes over the cap had to go down once and up once, whatever the choice. */
static uint64_t least_of_step(const struct ms_replay *replay)
{
    const uint64_t cap = replay->config->cap_bytes;

    return replay->step_peak_bytes > cap ? 2 * (replay->step_peak_bytes - cap) : 0;
}

/* At the end of a step. */
static void account_for_spill(struct ms_replay *replay)
{
    struct ms_replay_result *result = replay->result;
    struct ms_replay_moved *warm = &result->warm;
    struct ms_pool_stats stats;

    ms_pool_stats(replay->pool, &stats);

    const struct ms_replay_moved now = {.down_bytes = stats.spill.down_bytes,
                                        .up_bytes = stats.spill.up_bytes,
                                        .used_bytes = result->used_on_host_bytes,
                                        .halts = stats.spill.halts,
                                        .stall_ns = stats.spill.stall_ns};
    const struct ms_replay_moved *then = &replay->boundary_moved;

    if (result->steps <= WARM_UP_STEPS) {
        replay->boundary_moved = now;
    } else {
        *warm = (struct ms_replay_moved){.down_bytes = now.down_bytes - then->down_bytes,
                                         .up_bytes = now.up_bytes - then->up_bytes,
                                         .used_bytes = now.used_bytes - then->used_bytes,
                                         .halts = now.halts - then->halts,
                                         .stall_ns = now.stall_ns - then->stall_ns,
                                         .least_bytes = warm->least_bytes + least_of_step(replay),
                                         .steps = warm->steps + 1};
    }
    replay->step_peak_bytes = replay->live_bytes + replay->charged_beside;
}

static void begin_step(struct ms_replay *replay)
{
    replay->result->steps++;
    if (replay->config->spill_bytes > 0) {
        account_for_spill(replay);
        if (!ms_pool_step(replay->pool)) {
            (void)ms_pool_promote(replay->pool, UINT64_MAX);
        }
    }
    if (replay->result->steps == 3) {
        replay->boundary_calls = replay->result->driver_calls;
        replay->boundary_moves = moves_so_far(replay);
    }
}

/* ---- pages ---- */

static ms_status_t reserve(struct ms_replay *replay, const struct ms_operation *operation)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);
    const struct ms_recorded_arena *arena = ms_recording_arena(replay->recording, operation->arena);
    ms_addr_t base;
    const ms_status_t status =
        ops->address_reserve(ops->ctx, arena->bytes, ops->granule_bytes, &base);

    if (status == MS_OK) {
        place_arena(replay, operation->arena, base);
        ms_proxy_reserved(replay->pool, base, arena->bytes);
    }
    return status;
}

static void unreserve(struct ms_replay *replay, const struct ms_operation *operation)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);
    const struct ms_recorded_arena *arena = ms_recording_arena(replay->recording, operation->arena);

    ms_proxy_reservation_gone(replay->pool, replay->base_of[operation->arena]);
    (void)ops->address_free(ops->ctx, replay->base_of[operation->arena], arena->bytes);
    lose_arena(replay, operation->arena);
}

static ms_status_t give_access(struct ms_replay *replay)
{
    ms_status_t status = MS_OK;

    if (replay->fresh_bytes > 0) {
        status = ms_proxy_access(replay->pool, replay->fresh_addr, replay->fresh_bytes);
        replay->fresh_bytes = 0;
    }
    return status;
}

static ms_status_t map_page(struct ms_replay *replay, const struct ms_operation *operation)
{
    const struct ms_recorded_arena *arena = ms_recording_arena(replay->recording, operation->arena);
    const ms_addr_t base = replay->base_of[operation->arena];
    ms_proxy_t *proxy;
    ms_status_t status = MS_OK;

    if (replay->fresh_addr + replay->fresh_bytes != base + operation->offset) {
        status = give_access(replay);
    }
    if (status == MS_OK) {
        status = ms_proxy_create(replay->pool, operation->bytes, NULL, true, &proxy);
    }
    if (status != MS_OK) {
        return status;
    }
    status = ms_proxy_map(replay->pool, proxy, base + operation->offset, base, arena->bytes);
    ms_proxy_release(replay->pool, proxy);
    if (status == MS_OK && replay->fresh_bytes == 0) {
        replay->fresh_addr = base + operation->offset;
    }
    replay->fresh_bytes += status == MS_OK ? operation->bytes : 0;
    return status;
}

static ms_status_t play_page(struct ms_replay *replay, const struct ms_operation *operation)
{
    ms_status_t status = MS_OK;

    if (replay->config->mode == MS_REPLAY_TENSOR) {
        return MS_OK;
    }

    if (operation->kind == MS_OPERATION_UNMAP && replay->config->lag > 0) {
        ms_replay_see_all_done(replay);
    }

    const uint64_t start_ns = begin_timing(replay);

    if (operation->kind == MS_OPERATION_MAP) {
        status = map_page(replay, operation);
    } else if (operation->kind == MS_OPERATION_UNMAP) {
        const ms_addr_t addr = replay->base_of[operation->arena] + operation->offset;

        ms_arenas_block_gone(replay->arenas, addr, operation->bytes);
        status = ms_proxy_unmap(replay->pool, addr, operation->bytes);
    } else if (operation->kind == MS_OPERATION_RESERVE) {
        status = reserve(replay, operation);
    } else {
        unreserve(replay, operation);
    }
    end_timing(replay, start_ns);
    return status;
}

/* ---- the whole ---- */

static ms_status_t play(struct ms_replay *replay, const struct ms_operation *operation)
{
    const bool tensor_mode = replay->config->mode == MS_REPLAY_TENSOR;
    const bool carved = operation->arena != MS_RECORDED_NONE;

    switch (operation->kind) {
    case MS_OPERATION_ALLOC:
        return tensor_mode && carved ? MS_OK : alloc(replay, operation);
    case MS_OPERATION_FREE:
        if (!(tensor_mode && carved)) {
            release(replay, operation);
        }
        return MS_OK;
    case MS_OPERATION_TENSOR_ALLOC:
        return tensor_mode ? alloc(replay, operation) : born(replay, operation);
    case MS_OPERATION_TENSOR_FREE:
        (tensor_mode ? release : died)(replay, operation);
        return MS_OK;
    case MS_OPERATION_RESERVE:
    case MS_OPERATION_UNRESERVE:
    case MS_OPERATION_MAP:
    case MS_OPERATION_UNMAP:
        return play_page(replay, operation);
    case MS_OPERATION_CACHED:
        return tensor_mode ? MS_OK : cached(replay, operation);
    case MS_OPERATION_FREEZE:
        replay->freezing[operation->arena] = !tensor_mode;
        return MS_OK;
    case MS_OPERATION_CHARGE:
    case MS_OPERATION_DISCHARGE:
        charge(replay, operation);
        return MS_OK;
    case MS_OPERATION_REFUSED:
    case MS_OPERATION_FATAL:
        return ask_again(replay, operation);
    default:
        begin_step(replay);
        return MS_OK;
    }
}

/* The state as the shim records it (shim/policy/oom.c), for a device that has nothing but the
 * pool. */
static struct ms_oom_state state_of(struct ms_replay *replay, uint64_t request_bytes,
                                    const struct ms_pool_stats *stats)
{
    const struct ms_replay_config *config = replay->config;
    const uint64_t charged = atomic_load(&replay->budget.charged_bytes);
    const uint64_t beside = charged > stats->reserved_bytes ? charged - stats->reserved_bytes : 0;
    const uint64_t on_host = stats->spill.spilled_bytes;
    enum ms_unmoved why;

    return (struct ms_oom_state){
        .requested_bytes = request_bytes,
        .cap_bytes = config->cap_bytes,
        .device_total_bytes = config->device_bytes,
        .charged_bytes = charged,
        .pool_bytes = charged - beside,
        .context_bytes = beside,
        .live_bytes = replay->live_bytes,
        .pending_bytes = stats->pending_bytes,
        .largest_free_bytes = stats->largest_free_bytes,
        .spill_limit_bytes = config->spill_bytes,
        .spill_left_bytes = config->spill_bytes > on_host ? config->spill_bytes - on_host : 0,
        .terms_known = 1,
        .fixed_bytes = beside,
        .spilled_bytes = on_host,
        .movable_bytes = config->spill_bytes > 0 ? ms_pool_movable_bytes(replay->pool, &why) : 0,
    };
}

static void note_failure(struct ms_replay *replay, size_t operation, ms_status_t status)
{
    struct ms_replay_failure *failure = &replay->result->failure;
    struct ms_pool_stats stats;

    ms_pool_stats(replay->pool, &stats);
    *failure = (struct ms_replay_failure){
        .happened = true,
        .operation = operation,
        .status = status,
        .charged_bytes = atomic_load(&replay->budget.charged_bytes),
        .live_bytes = replay->live_bytes,
        .free_bytes = stats.free_bytes,
        .hole_bytes = stats.hole_bytes,
        .pending_bytes = stats.pending_bytes,
        .largest_free_bytes = stats.largest_free_bytes,
        .state = state_of(replay, ms_recording_at(replay->recording, operation)->bytes, &stats),
    };
}

void ms_replay_play(struct ms_replay *replay)
{
    const size_t operations = ms_recording_count(replay->recording);
    const uint64_t steps_every = replay->config->steps_every;

    for (size_t i = 0; i < operations; i++) {
        const struct ms_operation *operation = ms_recording_at(replay->recording, i);
        ms_status_t status = MS_OK;

        if (replay->oracle) {
            ms_oracle_now(replay->oracle, i);
        }
        ms_replay_finish_work(replay);
        if (operation->kind != MS_OPERATION_MAP) {
            status = give_access(replay);
        }
        ms_replay_use_kept(replay, i);
        if (steps_every > 0 && i % steps_every == 0) {
            begin_step(replay);
        }
        if (status == MS_OK && !(steps_every > 0 && operation->kind == MS_OPERATION_STEP)) {
            status = play(replay, operation);
        }
        if (status != MS_OK) {
            note_failure(replay, i, status);
            return;
        }
        replay->result->operations++;
        (void)ms_pool_promote_ahead(replay->pool);
    }
}
