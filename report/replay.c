#include "report/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/arena.h"
#include "allocator/proxy.h"
#include "report/replay_oracle.h"
#include "report/replay_uses.h"

#define NS_PER_S      UINT64_C(1000000000)
#define WAIT_LIMIT_NS NS_PER_S /* of the dry device's time */
#define FORGET_EVERY  64       /* operations */
#define WARM_UP_STEPS 4        /* what is spilled in them is not what every step costs */

/* Tensors inside arenas, and calls without a stream, work on a stream of their own. */
#define COMMON_STREAM (MS_RECORDED_STREAMS + 1)

const char *const ms_policy_names[MS_POLICY_COUNT] = {
    [MS_POLICY_DEFAULT] = "default", [MS_POLICY_HIGHEST] = "highest", [MS_POLICY_OLDEST] = "oldest",
    [MS_POLICY_NEWEST] = "newest",   [MS_POLICY_GAP] = "gap",         [MS_POLICY_ORACLE] = "oracle",
};

const char *const ms_spill_policy_names[MS_SPILL_POLICY_COUNT] = {
    [MS_SPILL_PREDICT] = "predict", [MS_SPILL_LRU] = "lru"};

const char *const ms_operation_names[MS_OPERATION_KIND_COUNT] = {
    [MS_OPERATION_ALLOC] = "alloc",
    [MS_OPERATION_FREE] = "free",
    [MS_OPERATION_BORN] = "born",
    [MS_OPERATION_DIED] = "died",
    [MS_OPERATION_RESERVE] = "reserve",
    [MS_OPERATION_UNRESERVE] = "unreserve",
    [MS_OPERATION_MAP] = "map",
    [MS_OPERATION_UNMAP] = "unmap",
    [MS_OPERATION_FREEZE] = "freeze",
    [MS_OPERATION_CHARGE] = "charge",
    [MS_OPERATION_DISCHARGE] = "discharge",
    [MS_OPERATION_STEP] = "step",
};

struct replay {
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
    bool *freezing;           /* by arena: its next birth is that of a capture */
    uint64_t reserved_bytes, live_bytes, charged_beside;
    /* The stretch of pages that has no access yet: a framework gives it to all that it mapped. */
    ms_addr_t fresh_addr;
    uint64_t fresh_bytes;
    uint8_t *working; /* a ring of `lag` operations: the stream on which each one works; 0: none */
    ms_mark_t seen;   /* a mark of our own, by which the dry device learns what is done; 0: none */
    uint64_t own_marks, own_queries;         /* calls for it: not the pool's */
    bool over;                               /* what the pool does now is not the run's */
    uint64_t boundary_calls, boundary_moves; /* at the beginning of the third step */
    struct ms_buffer uses;                   /* of what persists; where live memory is spilled */
    size_t next_use;
    uint64_t step_peak_bytes;       /* live, and charged beside, in this step */
    struct ms_moved boundary_moved; /* when the warm-up was over */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- what the pool tells of the device's calls ---- */

static void price(struct replay *replay, enum ms_replay_call call, uint64_t bytes)
{
    const struct ms_call_cost *found = ms_call_cost_of(replay->config->costs, call, bytes);

    if (found) {
        replay->result->modelled_ns += found->median_ns;
        replay->result->modelled_p99_ns += found->p99_ns;
    }
}

static void count(struct replay *replay, enum ms_replay_call call, uint64_t bytes)
{
    replay->result->calls[call]++;
    replay->result->driver_calls++;
    price(replay, call, bytes);
}

static void note_event(void *ctx, const struct ms_event *event)
{
    struct replay *replay = ctx;
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

/* ---- work on the device ---- */

static ms_stream_t stream_of(const struct ms_operation *operation)
{
    const bool tensor =
        operation->kind == MS_OPERATION_BORN || operation->kind == MS_OPERATION_DIED;

    return tensor ? COMMON_STREAM : operation->stream;
}

/* A live range is worked on when it is born, and once more before it dies. */
static void work(struct replay *replay, const struct ms_operation *operation, ms_addr_t addr)
{
    const ms_stream_t stream = stream_of(operation) ? stream_of(operation) : COMMON_STREAM;

    if (replay->config->lag > 0) {
        (void)ms_dry_work(replay->dry, stream, operation->object + UINT64_C(1), addr,
                          operation->bytes, MS_DRY_UNTIL_TOLD);
        replay->working[replay->result->operations % replay->config->lag] = (uint8_t)stream;
    } else if (replay->config->checked && !replay->result->violation[0] &&
               !ms_dry_accessible(replay->dry, addr, operation->bytes)) {
        (void)snprintf(replay->result->violation, sizeof(replay->result->violation),
                       "a live byte of %s %zu is not backed", ms_operation_names[operation->kind],
                       (size_t)(operation - ms_recording_at(replay->recording, 0)));
    }
}

/* What of it lies on the host is read from there, and written there. */
static void use(struct replay *replay, ms_addr_t addr, uint64_t bytes, bool written)
{
    if (replay->config->spill_bytes > 0) {
        const uint64_t on_host = ms_pool_touch(replay->pool, addr, bytes);

        replay->result->used_on_host_bytes += written ? 2 * on_host : on_host;
    }
}

/* What persists is used as the model says. */
static void use_kept(struct replay *replay, size_t operation)
{
    for (; replay->next_use < ms_recorded_uses_count(&replay->uses); replay->next_use++) {
        const struct ms_recorded_use *used = ms_recorded_use_at(&replay->uses, replay->next_use);
        const struct ms_operation *birth = ms_recording_at(replay->recording, used->birth);
        const bool tensor =
            birth->kind == MS_OPERATION_BORN && replay->config->mode == MS_REPLAY_NATIVE;

        if (used->operation > operation) {
            return;
        }
        use(replay,
            tensor ? replay->base_of[birth->arena] + birth->offset : replay->addr_of[birth->object],
            birth->bytes, used->written);
    }
}

/* The dry device keeps every piece of work until a mark has told the host that it is done. */
static void forget_work(struct replay *replay)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);

    if (replay->seen == 0) {
        replay->own_marks++;
        (void)ops->mark(ops->ctx, MS_STREAM_DEVICE, &replay->seen);
        return;
    }
    replay->own_queries++;
    if (ops->mark_query(ops->ctx, replay->seen) == MS_OK) {
        ops->mark_release(ops->ctx, replay->seen);
        replay->seen = 0;
    }
}

/* A framework has seen all work on its pages complete before it unmaps them. */
static void see_all_done(struct replay *replay)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);
    ms_mark_t all;

    ms_dry_finish(replay->dry, MS_STREAM_DEVICE, UINT64_MAX);
    memset(replay->working, 0, replay->config->lag);
    replay->own_marks++;
    if (ops->mark(ops->ctx, MS_STREAM_DEVICE, &all) == MS_OK) {
        replay->own_queries++;
        (void)ops->mark_query(ops->ctx, all);
        ops->mark_release(ops->ctx, all);
    }
}

/* What was queued `lag` operations ago is done. */
static void finish_work(struct replay *replay)
{
    if (replay->config->lag > 0) {
        uint8_t *stream = &replay->working[replay->result->operations % replay->config->lag];

        if (*stream != 0) {
            ms_dry_finish(replay->dry, *stream, 1);
        }
        *stream = 0;
        if (replay->result->operations % FORGET_EVERY == 0) {
            forget_work(replay);
        }
    }
}

/* ---- operations ---- */

static uint64_t begin_timing(const struct replay *replay)
{
    return replay->config->timed ? now_ns() : 0;
}

static void end_timing(struct replay *replay, uint64_t start_ns)
{
    if (replay->config->timed) {
        replay->result->pool_ns += now_ns() - start_ns;
        replay->result->pool_operations++;
    }
}

static void note_step_peak(struct replay *replay)
{
    const uint64_t bytes = replay->live_bytes + replay->charged_beside;

    if (bytes > replay->step_peak_bytes) {
        replay->step_peak_bytes = bytes;
    }
}

static void grow_live(struct replay *replay, uint64_t bytes)
{
    replay->live_bytes += bytes;
    note_step_peak(replay);
    if (replay->live_bytes > replay->result->peak_live_bytes) {
        replay->result->peak_live_bytes = replay->live_bytes;
    }
}

static void place_arena(struct replay *replay, uint32_t arena, ms_addr_t base)
{
    replay->base_of[arena] = base;
    if (replay->oracle) {
        ms_oracle_placed(replay->oracle, arena, base);
    }
}

static void lose_arena(struct replay *replay, uint32_t arena)
{
    replay->base_of[arena] = 0;
    if (replay->oracle) {
        ms_oracle_gone(replay->oracle, arena);
    }
}

static ms_status_t alloc(struct replay *replay, const struct ms_operation *operation)
{
    const struct ms_request request = {.bytes = operation->bytes,
                                       .stream = stream_of(operation),
                                       .site = operation->site,
                                       .may_wait = true};
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
        work(replay, operation, block.addr);
    }
    return MS_OK;
}

static void release(struct replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->addr_of[operation->object];
    const bool arena = operation->kind == MS_OPERATION_FREE && operation->arena != MS_RECORDED_NONE;

    if (arena) {
        ms_arenas_block_gone(replay->arenas, addr, operation->bytes);
        lose_arena(replay, operation->arena);
    } else {
        replay->live_bytes -= operation->bytes;
        use(replay, addr, operation->bytes, false);
        work(replay, operation, addr);
    }

    const uint64_t start_ns = begin_timing(replay);

    (void)ms_pool_free(replay->pool, addr, stream_of(operation));
    end_timing(replay, start_ns);
}

static ms_status_t born(struct replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->base_of[operation->arena] + operation->offset;
    const bool capturing = replay->freezing[operation->arena];
    ms_status_t status;

    if (capturing) {
        ms_dry_set_capturing(replay->dry, true);
        replay->freezing[operation->arena] = false;
    }

    const uint64_t start_ns = begin_timing(replay);

    status = ms_arenas_born(replay->arenas, addr, operation->bytes, operation->site, UINT64_MAX);
    end_timing(replay, start_ns);
    if (capturing) {
        ms_dry_set_capturing(replay->dry, false);
    }
    grow_live(replay, operation->bytes);
    if (status == MS_OK) {
        work(replay, operation, addr);
    }
    return status == MS_ERR_INVALID ? MS_OK : status; /* it stands in the statistics */
}

static void died(struct replay *replay, const struct ms_operation *operation)
{
    const ms_addr_t addr = replay->base_of[operation->arena] + operation->offset;

    replay->live_bytes -= operation->bytes;
    use(replay, addr, operation->bytes, false);
    work(replay, operation, addr);

    const uint64_t start_ns = begin_timing(replay);

    (void)ms_arenas_died(replay->arenas, addr, operation->bytes, UINT64_MAX);
    end_timing(replay, start_ns);
}

static void charge(struct replay *replay, const struct ms_operation *operation)
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

static uint64_t moves_so_far(struct replay *replay)
{
    struct ms_pool_stats stats;

    ms_pool_stats(replay->pool, &stats);
    return stats.chunks_moved;
}

/* The bytes over the cap had to go down once and up once, whatever was chosen. */
static uint64_t least_of_step(const struct replay *replay)
{
    const uint64_t cap = replay->config->cap_bytes;

    return replay->step_peak_bytes > cap ? 2 * (replay->step_peak_bytes - cap) : 0;
}

/* At the end of a step. */
static void account_for_spill(struct replay *replay)
{
    struct ms_replay_result *result = replay->result;
    struct ms_moved *warm = &result->warm;
    struct ms_pool_stats stats;

    ms_pool_stats(replay->pool, &stats);

    const struct ms_moved now = {.down_bytes = stats.spill.down_bytes,
                                 .up_bytes = stats.spill.up_bytes,
                                 .used_bytes = result->used_on_host_bytes,
                                 .halts = stats.spill.halts,
                                 .stall_ns = stats.spill.stall_ns};
    const struct ms_moved *then = &replay->boundary_moved;

    if (result->steps <= WARM_UP_STEPS) {
        replay->boundary_moved = now;
    } else {
        *warm = (struct ms_moved){.down_bytes = now.down_bytes - then->down_bytes,
                                  .up_bytes = now.up_bytes - then->up_bytes,
                                  .used_bytes = now.used_bytes - then->used_bytes,
                                  .halts = now.halts - then->halts,
                                  .stall_ns = now.stall_ns - then->stall_ns,
                                  .least_bytes = warm->least_bytes + least_of_step(replay),
                                  .steps = warm->steps + 1};
    }
    replay->step_peak_bytes = replay->live_bytes + replay->charged_beside;
}

static void begin_step(struct replay *replay)
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

static ms_status_t reserve(struct replay *replay, const struct ms_operation *operation)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);
    const struct ms_recorded_arena *arena = ms_recording_arena(replay->recording, operation->arena);
    ms_addr_t base;
    const ms_status_t status =
        ops->address_reserve(ops->ctx, arena->bytes, ops->granule_bytes, &base);

    if (status == MS_OK) {
        place_arena(replay, operation->arena, base);
    }
    return status;
}

static void unreserve(struct replay *replay, const struct ms_operation *operation)
{
    const struct ms_device_ops *ops = ms_dry_ops(replay->dry);
    const struct ms_recorded_arena *arena = ms_recording_arena(replay->recording, operation->arena);

    ms_proxy_reservation_gone(replay->pool, replay->base_of[operation->arena]);
    (void)ops->address_free(ops->ctx, replay->base_of[operation->arena], arena->bytes);
    lose_arena(replay, operation->arena);
}

static ms_status_t give_access(struct replay *replay)
{
    ms_status_t status = MS_OK;

    if (replay->fresh_bytes > 0) {
        status = ms_proxy_access(replay->pool, replay->fresh_addr, replay->fresh_bytes);
        replay->fresh_bytes = 0;
    }
    return status;
}

static ms_status_t map_page(struct replay *replay, const struct ms_operation *operation)
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

static ms_status_t play_page(struct replay *replay, const struct ms_operation *operation)
{
    ms_status_t status = MS_OK;

    if (replay->config->mode == MS_REPLAY_TENSOR) {
        return MS_OK;
    }

    if (operation->kind == MS_OPERATION_UNMAP && replay->config->lag > 0) {
        see_all_done(replay);
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

static ms_status_t play(struct replay *replay, const struct ms_operation *operation)
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
    case MS_OPERATION_BORN:
        return tensor_mode ? alloc(replay, operation) : born(replay, operation);
    case MS_OPERATION_DIED:
        (tensor_mode ? release : died)(replay, operation);
        return MS_OK;
    case MS_OPERATION_RESERVE:
    case MS_OPERATION_UNRESERVE:
    case MS_OPERATION_MAP:
    case MS_OPERATION_UNMAP:
        return play_page(replay, operation);
    case MS_OPERATION_FREEZE:
        replay->freezing[operation->arena] = !tensor_mode;
        return MS_OK;
    case MS_OPERATION_CHARGE:
    case MS_OPERATION_DISCHARGE:
        charge(replay, operation);
        return MS_OK;
    default:
        begin_step(replay);
        return MS_OK;
    }
}

static void note_failure(struct replay *replay, size_t operation, ms_status_t status)
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
    };
}

static void play_all(struct replay *replay)
{
    const size_t operations = ms_recording_count(replay->recording);
    const uint64_t steps_every = replay->config->steps_every;

    for (size_t i = 0; i < operations; i++) {
        const struct ms_operation *operation = ms_recording_at(replay->recording, i);
        ms_status_t status = MS_OK;

        if (replay->oracle) {
            ms_oracle_now(replay->oracle, i);
        }
        finish_work(replay);
        if (operation->kind != MS_OPERATION_MAP) {
            status = give_access(replay);
        }
        use_kept(replay, i);
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

static uint64_t newest_rank(void *ctx, const struct ms_candidate *candidate)
{
    (void)ctx;
    return candidate->free_since;
}

static const struct ms_choice newest = {.rank = newest_rank};

static const struct ms_choice *choice_of(const struct replay *replay)
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

static bool set_up_tables(struct replay *replay)
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
    if (replay->config->spill_bytes > 0 && !ms_recorded_uses(recording, &replay->uses)) {
        return false;
    }
    return replay->addr_of && replay->base_of && replay->freezing && replay->working;
}

static bool set_up_device(struct replay *replay)
{
    const struct ms_replay_config *config = replay->config;
    const struct ms_event_sink sink = {.emit = note_event, .ctx = replay};
    struct ms_dry_costs costs;
    const struct ms_dry_config device = {.granule_bytes = MS_REPLAY_GRANULE_BYTES,
                                         .total_bytes = config->device_bytes,
                                         .costs = config->spill_bytes > 0 ? &costs : NULL};

    ms_call_costs_of_halts(config->costs, &costs);

    if (ms_dry_create(&device, &replay->dry) != MS_OK) {
        return false;
    }
    for (ms_stream_t stream = 1; stream <= COMMON_STREAM; stream++) {
        if ((stream <= replay->recording->streams || stream == COMMON_STREAM) &&
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
                                        .views = config->views};

    return ms_pool_create(&pool, &replay->pool) == MS_OK &&
           ms_arenas_create(0, replay->pool, sink, &replay->arenas) == MS_OK;
}

static void count_marks(struct replay *replay)
{
    static const struct {
        enum ms_replay_call call;
        enum ms_dry_op op;
    } marks[] = {{MS_REPLAY_MARK, MS_DRY_MARK},
                 {MS_REPLAY_MARK_QUERY, MS_DRY_MARK_QUERY},
                 {MS_REPLAY_MARK_WAIT, MS_DRY_MARK_WAIT},
                 {MS_REPLAY_STREAM_WAIT, MS_DRY_STREAM_WAIT}};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const uint64_t own = marks[i].op == MS_DRY_MARK         ? replay->own_marks
                             : marks[i].op == MS_DRY_MARK_QUERY ? replay->own_queries
                                                                : 0;
        const uint64_t calls = ms_dry_calls(replay->dry, marks[i].op) - own;
        const uint64_t before_ns = replay->result->modelled_ns;
        const uint64_t before_p99_ns = replay->result->modelled_p99_ns;

        replay->result->calls[marks[i].call] = calls;
        price(replay, marks[i].call, 0);
        replay->result->modelled_ns = before_ns + (replay->result->modelled_ns - before_ns) * calls;
        replay->result->modelled_p99_ns =
            before_p99_ns + (replay->result->modelled_p99_ns - before_p99_ns) * calls;
    }
}

static void conclude(struct replay *replay)
{
    struct ms_replay_result *result = replay->result;
    struct ms_arenas_stats arenas;

    replay->over = true;
    ms_pool_stats(replay->pool, &result->pool);
    ms_arenas_stats(replay->arenas, &arenas);
    count_marks(replay);
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

static void tear_down(struct replay *replay)
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
    free(replay->addr_of);
    free(replay->base_of);
    free(replay->freezing);
    free(replay->working);
}

void ms_replay_run(const struct ms_recording *recording, const struct ms_replay_config *config,
                   struct ms_replay_result *result)
{
    struct replay replay = {.recording = recording, .config = config, .result = result};
    const uint64_t start_ns = now_ns();

    memset(result, 0, sizeof(*result));
    if (set_up_tables(&replay) && set_up_device(&replay)) {
        play_all(&replay);
        conclude(&replay);
    } else {
        result->host_memory = true;
    }
    tear_down(&replay);
    result->elapsed_ns = now_ns() - start_ns;
}
