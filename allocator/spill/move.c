/* SPDX-License-Identifier: Apache-2.0 */
/* Contents move to other chunks, under the same addresses.
 *
 *   stage      the chunks that they move to are mapped at addresses of the pool's own, while
 *              everything runs on
 *   halt       nothing touches memory any more
 *   copy       from where it lies to the staged chunks, several pieces in flight
 *   exchange   the staged chunks leave their addresses; then, run by run of neighbours, the old
 *              chunks leave theirs and the new ones are mapped in their place
 *   resume
 *
 * Until a run's own exchange (exchange.c) nothing about it has changed. */
#include "allocator/spill/move.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/victims.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/pool_state.h"
#include "allocator/spill/exchange.h"

/* One copy of this size keeps the bus busy; more of them keep more engines busy. */
#define COPY_PIECE_BYTES ((uint64_t)64 << 20)

/* A rest is at most this many times what the refusal took, and never longer than this. */
enum { REST_MOST = 4 };
#define REST_LONGEST_NS ((uint64_t)10000000000)

/* What is not needed to serve a request waits no longer for a standstill. */
#define HALT_UNNEEDED_NS ((uint64_t)5000000000)

static uint64_t chunk_slots(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->bytes / pool->granule_bytes;
}

/* ---- staging */

/* As many addresses as could ever be wanted, once: they cost nothing. */
static ms_status_t reserve_staging(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    if (pool->moving.staging != NULL) {
        return MS_OK;
    }
    uint64_t most = pool->config.host_limit_bytes;
    most = most != 0 && most < pool->ops->total_bytes ? most : pool->ops->total_bytes;
    return ms_backing_reserve_staging(pool, ms_round_up(most, pool->granule_bytes),
                                      &pool->moving.staging);
}

/* Takes the staged chunks off their addresses; *out: a list of them, in their order. */
static ms_status_t clear_staging(struct ms_pool *pool, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_moving *moving = &pool->moving;
    *out = NULL;
    if (moving->staged == 0) {
        return MS_OK;
    }
    struct ms_chunk **slots = moving->staging->slots;
    ms_status_t status = ms_backing_unmap(pool, slots, moving->staged);
    for (uint64_t slot = moving->staged; status == MS_OK && slot-- > 0;) {
        struct ms_chunk *chunk = slots[slot];
        ms_backing_clear(pool, chunk);
        chunk->segment = NULL;
        chunk->was_mapped = false; /* it has not been anywhere yet */
        chunk->next = *out;
        *out = chunk;
    }
    moving->staged = status == MS_OK ? 0 : moving->staged;
    return status;
}

void ms_move_unstage(struct ms_pool *pool)
{
    struct ms_chunk *list = NULL;
    (void)clear_staging(pool, &list);
    ms_backing_add_spares(pool, list);
}

static ms_status_t stage_one(struct ms_pool *pool, enum ms_location to) MS_REQUIRES(ms_growth_role)
{
    struct ms_chunk *chunk = NULL;
    ms_status_t status = to == MS_LOCATION_HOST ? ms_backing_host_take(pool, &chunk)
                                                : ms_backing_chunk_make(pool, pool->granule_bytes,
                                                                        false, NULL, &chunk);
    if (status != MS_OK) {
        return status;
    }
    status = ms_backing_map(pool, pool->moving.staging, pool->moving.staged, chunk);
    if (status != MS_OK) {
        ms_backing_add_spare(pool, chunk);
        return status;
    }
    pool->moving.staged++;
    return MS_OK;
}

ms_status_t ms_move_need_staging(struct ms_pool *pool, uint64_t bytes)
{
    ms_status_t status = reserve_staging(pool);
    if (status == MS_OK && pool->moving.staged > 0) {
        struct ms_chunk *left = NULL;
        status = clear_staging(pool, &left);
        ms_backing_add_spares(pool, left);
    }
    if (status == MS_OK && bytes / pool->granule_bytes > pool->moving.staging->slot_count) {
        status = MS_ERR_NO_MEMORY;
    }
    return status;
}

ms_status_t ms_move_stage(struct ms_pool *pool, uint64_t bytes, enum ms_location to)
{
    uint64_t slots = bytes / pool->granule_bytes;
    ms_status_t status = ms_move_need_staging(pool, bytes);
    if (status != MS_OK) {
        return status;
    }
    while (status == MS_OK && pool->moving.staged < slots) {
        status = stage_one(pool, to);
    }
    if (status == MS_OK) {
        status = ms_backing_give_access(pool, pool->moving.staging, 0, slots);
    }
    if (status != MS_OK) {
        ms_move_unstage(pool);
    }
    return status;
}

/* ---- copying */

static ms_status_t copy_run(struct ms_pool *pool, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    ms_status_t status = MS_OK;
    for (uint64_t done = 0; done < bytes && status == MS_OK; done += COPY_PIECE_BYTES) {
        uint64_t left = bytes - done;
        status = pool->ops->copy(pool->ops->ctx, to + done, from + done,
                                 left < COPY_PIECE_BYTES ? left : COPY_PIECE_BYTES);
    }
    return status;
}

ms_status_t ms_move_copy(struct ms_pool *pool, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    ms_status_t status = copy_run(pool, to, from, bytes);
    /* Also what was queued before one failed must be over. */
    ms_status_t waited = pool->ops->copy_wait(pool->ops->ctx);
    return status != MS_OK ? status : waited;
}

static uint64_t run_bytes(struct ms_chunk *const *run, size_t count)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < count; at++) {
        bytes += run[at]->bytes;
    }
    return bytes;
}

static ms_addr_t addr_of(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->segment->base + chunk->slot * pool->granule_bytes;
}

static ms_status_t copy_all(struct ms_pool *pool, struct ms_chunk *list) MS_REQUIRES(ms_growth_role)
{
    ms_addr_t to = pool->moving.staging->base;
    ms_status_t status = MS_OK;
    while (list != NULL && status == MS_OK) {
        struct ms_chunk *run[MS_RUN_CHUNKS];
        size_t count = ms_chunks_take_run(pool, &list, run);
        uint64_t bytes = run_bytes(run, count);
        status = copy_run(pool, to, addr_of(pool, run[0]), bytes);
        to += bytes;
    }
    /* Also what was queued before one failed must be over. */
    ms_status_t waited = pool->ops->copy_wait(pool->ops->ctx);
    return status != MS_OK ? status : waited;
}

/* ---- all of it */

/* Takes as many new chunks off the list as stand for the run, and passes on what is known of the
 * old ones. */
static struct ms_chunk *take_new(struct ms_pool *pool, struct ms_chunk *const *run, size_t count,
                                 enum ms_location to, struct ms_chunk **list)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_chunk *first = *list;
    struct ms_chunk **link = &first;
    for (size_t at = 0; at < count; at++) {
        for (uint64_t k = chunk_slots(pool, run[at]); k > 0 && *link != NULL; k--) {
            struct ms_chunk *chunk = *link;
            chunk->returns = run[at]->returns;
            chunk->promoted =
                to == MS_LOCATION_DEVICE ? ms_pool_count_of_growth(pool)->spill.halts : 0;
            link = &chunk->next;
        }
    }
    *list = *link;
    *link = NULL;
    return first;
}

void ms_move_record(struct ms_pool *pool, enum ms_location to, ms_addr_t addr, uint64_t bytes)
{
    uint64_t now = ms_pool_now_ns(pool);
    uint64_t spent_ns = now - pool->moving.since_ns;
    bool down = to == MS_LOCATION_HOST;
    struct ms_spill_stats *stats = &pool->count.spill;
    pool->moving.since_ns = now;
    ms_state_acquire(pool);
    stats->stall_ns += spent_ns;
    *(down ? &stats->down_bytes : &stats->up_bytes) += bytes;
    *(down ? &stats->spills : &stats->promotions) += 1;
    ms_pool_emit(pool, &(struct ms_event){.kind = down ? MS_EVENT_SPILL : MS_EVENT_PROMOTE,
                                          .owner = MS_OWNER_POOL,
                                          .addr = addr,
                                          .bytes = bytes,
                                          .aux = spent_ns});
    ms_state_release(pool);
}

static ms_status_t exchange_all(struct ms_pool *pool, struct ms_chunk *list, struct ms_chunk *fresh,
                                enum ms_location to, uint64_t *moved_bytes)
    MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    while (list != NULL) {
        struct ms_chunk *run[MS_RUN_CHUNKS];
        size_t count = ms_chunks_take_run(pool, &list, run);
        struct ms_chunk *mine = take_new(pool, run, count, to, &fresh);
        if (pool->moving.broken) {
            ms_backing_add_spares(pool, mine);
            continue;
        }
        ms_status_t one = ms_exchange_run(pool, run, count, mine, to, moved_bytes);
        status = status == MS_OK ? one : status;
    }
    /* Fewer moved than were staged for: some have been freed since. */
    ms_backing_add_spares(pool, fresh);
    return status;
}

/* Asked in vain twice on end, the device is let alone as long as the last time took, and each time
 * for longer: a program that it is always refused to loses little more than that part of its time.
 * The first time the next request may ask again, for it may be the program's last. Up to a quarter
 * less, by the lowest bits of the time: the ranks of a job are refused together, and would ask
 * together again. */
static void rest(struct ms_pool *pool, uint64_t asked_ns) MS_REQUIRES(ms_growth_role)
{
    struct ms_moving *moving = &pool->moving;
    uint64_t now = ms_pool_now_ns(pool);
    uint64_t rest_ns = (now - asked_ns) * moving->refusals;
    rest_ns = rest_ns < REST_LONGEST_NS ? rest_ns : REST_LONGEST_NS;
    uint64_t draw = now * UINT64_C(0x9e3779b97f4a7c15) >> 54; /* ten bits */
    moving->rest_until_ns = now + rest_ns - rest_ns / 4096 * draw;
    moving->refusals += moving->refusals < REST_MOST ? 1 : 0;
}

bool ms_move_rests(const struct ms_pool *pool)
{
    return pool->moving.refusals > 1 && ms_pool_now_ns(pool) < pool->moving.rest_until_ns;
}

ms_status_t ms_move_hold(struct ms_pool *pool, enum ms_location to)
{
    uint64_t asked_ns = ms_pool_now_ns(pool);
    uint64_t limit_ns = pool->config.halt_limit_ns;
    if (to == MS_LOCATION_DEVICE && limit_ns > HALT_UNNEEDED_NS) {
        limit_ns = HALT_UNNEEDED_NS;
    }
    ms_status_t status = pool->ops->halt(pool->ops->ctx, limit_ns);
    if (status == MS_OK) {
        pool->moving.refusals = 0;
    } else {
        rest(pool, asked_ns);
    }
    ms_state_acquire(pool);
    *(status == MS_OK ? &pool->count.spill.halts : &pool->count.spill.halts_refused) += 1;
    ms_state_release(pool);
    pool->moving.refused = status != MS_OK;
    pool->moving.since_ns = status == MS_OK ? ms_pool_now_ns(pool) : 0;
    return status;
}

void ms_move_let_go(struct ms_pool *pool)
{
    uint64_t spent_ns = ms_pool_now_ns(pool) - pool->moving.since_ns;
    pool->ops->resume(pool->ops->ctx);
    ms_state_acquire(pool);
    pool->count.spill.stall_ns += spent_ns;
    ms_state_release(pool);
}

ms_status_t ms_move(struct ms_pool *pool, struct ms_chunk *list, enum ms_location to,
                    uint64_t *moved_bytes)
{
    struct ms_chunk *fresh = NULL;
    ms_status_t status = ms_move_hold(pool, to);
    if (status == MS_OK) {
        list = ms_chunks_by_address(list);
        status = copy_all(pool, list);
        if (status == MS_OK) {
            status = clear_staging(pool, &fresh);
        }
        if (status == MS_OK) {
            status = exchange_all(pool, list, fresh, to, moved_bytes);
        }
        ms_move_let_go(pool);
    }
    ms_move_unstage(pool);
    return status;
}
