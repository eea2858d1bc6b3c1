/* SPDX-License-Identifier: Apache-2.0 */
/* Moves contents to other chunks, under the same addresses.
 *
 *   stage      map the chunks that they move to at addresses of the pool's own, while everything
 *              runs on
 *   halt       stop all work that touches memory
 *   copy       to the staged chunks, some pieces ahead
 *   exchange   once a piece is copied, and while the next ones are: unmap the old chunks and map
 *              the new ones in their place, a second time
 *   resume
 *   unstage    unmap the new chunks from the addresses that they were staged at
 *
 * Until a piece's own exchange (exchange.c) nothing about it has changed.
 *
 * The device waits for the longer of copy and exchange (docs/performance.md has the floor). On an
 * H200 (tests/gpu) 32 MiB take 616 us on the bus. On the way down the device unmaps sixteen chunks
 * of 2 MiB (348) and gets access to one of 32 MiB on the host (540). On the way up it unmaps one
 * (157) and gets access to sixteen (519), or to two of 16 MiB (60). The driver works chunk by
 * chunk, so one call for several saves next to nothing. So chunks are large if their contents come
 * and go together: those on the host, and those that contents come back to.
 *
 * Access is given after the part of a copy that is under way, so copies go in small parts
 * (device_ops.h); mapping and unmapping wait for none. */
#include "allocator/spill/move.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/victims.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/exchange.h"

/* The bytes that are copied and exchanged at once. The first pieces are smaller: no exchange can
 * begin before a piece is copied. So many pieces are copied ahead. */
#define FIRST_PIECE_BYTES ((uint64_t)8 << 20)
#define PIECE_BYTES       ((uint64_t)32 << 20)
enum { PIECES_AHEAD = 4, PIECES_OF_A_SIZE = 2 };

/* Contents come back to chunks of at most this size, and at most this part of the cap: a chunk
 * cannot be given up in part once some of its contents are freed. Bytes moved over the least
 * possible, and device chunks made, of `memshim replay --spill` on recorded steps at 0.85 of their
 * need:
 *
 *     at most     GPT             U-Net           mixture of experts
 *     2 MiB       1.019  10174    1.091   1778    1.125  5063
 *     8 MiB       1.019   7702    1.091   1370    1.115  4099
 *     16 MiB      1.019   7491    1.091   1328    1.118  3963
 *     32 MiB      1.019   7437    1.091   1328    1.126  3950 */
#define LARGEST_DEVICE_BYTES ((uint64_t)16 << 20)
enum { LARGEST_DEVICE_PART = 64 };

enum { UNSTAGE_TRIES = 48 };

/* The longest rest: in multiples of the time that the refusal took, and in all. */
enum { REST_MOST = 4 };
#define REST_LONGEST_NS ((uint64_t)10000000000)

/* The longest wait for a standstill that no request needs. */
#define HALT_UNNEEDED_NS ((uint64_t)5000000000)

static uint64_t chunk_slots(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->bytes / pool->granule_bytes;
}

static uint64_t run_bytes(struct ms_chunk *const *run, size_t count)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < count; at++) {
        bytes += run[at]->bytes;
    }
    return bytes;
}

/* A sorted list in pieces. */
struct list_pieces {
    struct ms_chunk *list; /* the rest of the list */
    unsigned number;       /* of the next piece */
    struct ms_chunk *run[MS_RUN_CHUNKS];
    size_t count;
    uint64_t bytes;
};

static bool next_piece(const struct ms_pool *pool, struct list_pieces *pieces)
{
    if (pieces->list == NULL) {
        return false;
    }
    unsigned doubled = pieces->number++ / PIECES_OF_A_SIZE;
    uint64_t most = doubled < 8 ? FIRST_PIECE_BYTES << doubled : PIECE_BYTES;
    most = most < PIECE_BYTES ? most : PIECE_BYTES;
    pieces->count = ms_chunks_take_run(pool, &pieces->list, most, pieces->run);
    pieces->bytes = run_bytes(pieces->run, pieces->count);
    return true;
}

/* ---- staging */

/* Reserves, once, as many addresses as could ever be needed: they cost nothing. */
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

bool ms_move_unstage(struct ms_pool *pool, uint64_t from, uint64_t to)
{
    struct ms_segment *staging = pool->moving.staging;
    bool all = true;
    while (from < to) {
        uint64_t end = from;
        while (end < to && staging->slots[end] != NULL) {
            end++;
        }
        all = (end == from || ms_backing_unmap_aside(pool, staging, from, end) == MS_OK) && all;
        from = end + 1;
    }
    return all;
}

/* Unmaps all staged chunks from the staging segment: they cannot be used for anything else before.
 * A chunk that the device keeps refusing to unmap stays, for another try the next time. */
static bool clear_staging(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    struct ms_moving *moving = &pool->moving;
    while (moving->taken < moving->staged) {
        struct ms_chunk *chunk = moving->staging->slots[moving->taken];
        moving->taken += chunk_slots(pool, chunk);
        ms_backing_add_spare(pool, chunk);
    }
    int tries = 0;
    while (!ms_move_unstage(pool, 0, moving->staged)) {
        if (++tries == UNSTAGE_TRIES) {
            return false;
        }
    }
    moving->staged = 0;
    moving->taken = 0;
    return true;
}

ms_status_t ms_move_need_staging(struct ms_pool *pool, uint64_t bytes)
{
    ms_status_t status = reserve_staging(pool);
    if (status == MS_OK && !clear_staging(pool)) {
        status = MS_ERR_NOT_READY;
    }
    if (status == MS_OK && bytes / pool->granule_bytes > pool->moving.staging->slot_count) {
        status = MS_ERR_NO_MEMORY;
    }
    return status;
}

/* Whether the contents of both granules of an arena come and go together: one tensor and nothing
 * else, or optimizer state, which stays. State lock. */
static bool joined(const struct ms_granule *a, const struct ms_granule *b)
{
    return a->arena == b->arena &&
           ((a->states && b->states) || (a->tensors == 1 && b->tensors == 1 && b->spanned));
}

/* The end of the slots from `from` on, up to `to`, that one large chunk may back: those of one
 * block, or of memory in an arena that comes and goes together, and at most one page. */
static uint64_t end_together(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                             uint64_t to)
{
    uint64_t end = from + 1;
    ms_state_acquire(pool);
    const struct ms_granule *granules = segment->granules;
    ms_addr_t addr = segment->base + from * pool->granule_bytes;
    const struct ms_range *block = segment->foreign == NULL ? ms_block_around(pool, addr) : NULL;
    if (block != NULL && !block->holed) {
        uint64_t whole = (block->addr + block->bytes - segment->base) / pool->granule_bytes;
        end = whole < end ? end : whole;
    } else if (granules != NULL && granules[from].arena != NULL) {
        while (end < to && joined(&granules[end - 1], &granules[end]) &&
               (segment->proxies == NULL || segment->proxies[end] == segment->proxies[from])) {
            end++;
        }
    }
    ms_state_release(pool);
    return end < to ? end : to;
}

/* Gets a chunk of `bytes`, or a smaller one if there is no room: a large chunk cannot be had in
 * part. */
static ms_status_t new_chunk(struct ms_pool *pool, uint64_t bytes, enum ms_location where,
                             struct ms_chunk **out) MS_REQUIRES(ms_growth_role)
{
    if (where == MS_LOCATION_HOST) {
        return ms_obligations_host_chunk(pool, bytes, out);
    }
    uint64_t most = ms_budget_limit_bytes(pool->config.budget) / LARGEST_DEVICE_PART;
    bytes = ms_least(bytes, ms_least(most - most % pool->granule_bytes, LARGEST_DEVICE_BYTES));
    if (bytes > pool->granule_bytes &&
        ms_backing_chunk_make(pool, bytes, false, NULL, out) == MS_OK) {
        return MS_OK;
    }
    return ms_backing_chunk_make(pool, pool->granule_bytes, false, NULL, out);
}

/* Stages a chunk for the slots from `from` on, up to `to`: of one granule, or a larger one. *slots:
 * how many it covers. */
static ms_status_t stage_one(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                             uint64_t to, enum ms_location where, uint64_t *slots)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_moving *moving = &pool->moving;
    struct ms_chunk *chunk = NULL;
    uint64_t bytes = (end_together(pool, segment, from, to) - from) * pool->granule_bytes;
    ms_status_t status = new_chunk(pool, bytes, where, &chunk);
    if (status != MS_OK) {
        return status;
    }
    status = ms_backing_map_aside(pool, moving->staging, moving->staged, chunk);
    if (status != MS_OK) {
        ms_backing_add_spare(pool, chunk);
        return status;
    }
    *slots = chunk_slots(pool, chunk);
    moving->staged += *slots;
    return MS_OK;
}

static ms_status_t stage_piece(struct ms_pool *pool, const struct list_pieces *piece,
                               enum ms_location where) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    uint64_t slot = piece->run[0]->slot;
    uint64_t end = slot + piece->bytes / pool->granule_bytes;
    while (slot < end && status == MS_OK) {
        uint64_t slots = 0;
        status = stage_one(pool, piece->run[0]->segment, slot, end, where, &slots);
        slot += slots;
    }
    return status;
}

/* Stages new chunks for the sorted list, in its order, accessible at the first slots of the staging
 * segment. */
static ms_status_t stage(struct ms_pool *pool, struct ms_chunk *list, enum ms_location where)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t bytes = 0;
    for (const struct ms_chunk *chunk = list; chunk != NULL; chunk = chunk->next) {
        bytes += chunk->bytes;
    }
    ms_status_t status = ms_move_need_staging(pool, bytes);
    struct list_pieces pieces = {.list = list};
    while (status == MS_OK && next_piece(pool, &pieces)) {
        status = stage_piece(pool, &pieces, where);
    }
    return status == MS_OK
               ? ms_backing_give_access(pool, pool->moving.staging, 0, pool->moving.staged)
               : status;
}

/* ---- copying */

static ms_addr_t addr_of(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->segment->base + chunk->slot * pool->granule_bytes;
}

ms_status_t ms_move_copy(struct ms_pool *pool, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    ms_status_t status = pool->ops->copy(pool->ops->ctx, to, from, bytes);
    /* Copies that were queued before one failed must end, too. */
    ms_status_t waited = pool->ops->copy_wait(pool->ops->ctx, 0);
    return status != MS_OK ? status : waited;
}

/* The copies ahead of the exchange. */
struct ahead {
    struct list_pieces pieces; /* not copied yet */
    uint64_t slot;             /* in the staging segment, for the next one */
    uint64_t under_way;
    ms_status_t status;
};

/* Waits for the oldest piece's copy, and keeps others under way. False: there is none, or it
 * failed. */
static bool copy_ahead(struct ms_pool *pool, struct ahead *ahead) MS_REQUIRES(ms_growth_role)
{
    const struct ms_device_ops *ops = pool->ops;
    struct list_pieces *piece = &ahead->pieces;
    while (ahead->status == MS_OK && ahead->under_way < PIECES_AHEAD && next_piece(pool, piece)) {
        ms_addr_t to = pool->moving.staging->base + ahead->slot * pool->granule_bytes;
        ahead->status = ops->copy(ops->ctx, to, addr_of(pool, piece->run[0]), piece->bytes);
        ahead->slot += piece->bytes / pool->granule_bytes;
        ahead->under_way++;
    }
    if (ahead->status == MS_OK && ahead->under_way > 0) {
        ahead->status = ops->copy_wait(ops->ctx, --ahead->under_way);
        return ahead->status == MS_OK;
    }
    return false;
}

/* ---- all of it */

/* Takes the next staged chunks, for the piece, off the staging segment's front; linked by `next`.
 * Each inherits the notes of the old chunk where it begins. */
static struct ms_chunk *take_new(struct ms_pool *pool, const struct list_pieces *piece,
                                 enum ms_location to) MS_REQUIRES(ms_growth_role)
{
    struct ms_moving *moving = &pool->moving;
    const struct ms_chunk *old = piece->run[0];
    uint64_t slot = old->slot;
    uint64_t end = slot + piece->bytes / pool->granule_bytes;
    struct ms_chunk *first = NULL;
    struct ms_chunk **link = &first;
    while (slot < end) {
        struct ms_chunk *chunk = moving->staging->slots[moving->taken];
        old = old->segment->slots[slot];
        chunk->returns = old->returns;
        chunk->promoted = to == MS_LOCATION_DEVICE ? ms_pool_count_of_growth(pool)->spill.halts : 0;
        moving->taken += chunk_slots(pool, chunk);
        slot += chunk_slots(pool, chunk);
        *link = chunk;
        link = &chunk->next;
    }
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
    ms_pool_emit(pool, (struct ms_event){.kind = down ? MS_EVENT_SPILL : MS_EVENT_PROMOTE,
                                         .owner = MS_OWNER_POOL,
                                         .addr = addr,
                                         .bytes = bytes,
                                         .aux = spent_ns});
    ms_state_release(pool);
}

/* The device stands still, and new chunks for the sorted list are staged. */
static ms_status_t copy_and_exchange(struct ms_pool *pool, struct ms_chunk *list,
                                     enum ms_location to, uint64_t *moved_bytes)
    MS_REQUIRES(ms_growth_role)
{
    struct ahead ahead = {.pieces = {.list = list}};
    struct list_pieces pieces = {.list = list};
    ms_status_t status = MS_OK;
    while (!pool->moving.broken && copy_ahead(pool, &ahead) && next_piece(pool, &pieces)) {
        uint64_t from = pool->moving.taken;
        struct ms_piece piece = {.run = pieces.run,
                                 .count = pieces.count,
                                 .fresh = take_new(pool, &pieces, to),
                                 .staged_from = from,
                                 .staged_to = pool->moving.taken};
        ms_status_t one = ms_exchange(pool, &piece, to, moved_bytes);
        status = status == MS_OK ? one : status;
    }
    /* Queued copies must end, too. */
    ms_status_t waited = pool->ops->copy_wait(pool->ops->ctx, 0);
    ahead.status = ahead.status == MS_OK ? waited : ahead.status;
    return status == MS_OK ? ahead.status : status;
}

/* After two refusals in a row, the pool asks for no standstill for as long as the last try took,
 * and longer each time: a program whose device always refuses loses little more than that part of
 * its time. After the first refusal the next request may ask again, because it may be the program's
 * last. The rest is up to a quarter shorter, by the lowest bits of the time: the ranks of a job are
 * refused together, and would ask together again. */
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

void ms_move_give_up(struct ms_pool *pool, uint64_t waited_ns)
{
    rest(pool, ms_less(ms_pool_now_ns(pool), waited_ns));
    pool->moving.refused = true;
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
    pool->moving.last_ns = ms_pool_now_ns(pool);
    uint64_t spent_ns = pool->moving.last_ns - pool->moving.since_ns;
    pool->ops->resume(pool->ops->ctx);
    ms_state_acquire(pool);
    pool->count.spill.stall_ns += spent_ns;
    ms_state_release(pool);
}

ms_status_t ms_move(struct ms_pool *pool, struct ms_chunk *list, enum ms_location to,
                    uint64_t *moved_bytes)
{
    list = ms_chunks_by_address(list);
    ms_status_t status = stage(pool, list, to);
    if (status == MS_OK) {
        status = ms_move_hold(pool, to);
        if (status == MS_OK) {
            status = copy_and_exchange(pool, list, to, moved_bytes);
            ms_move_let_go(pool);
        }
    }
    (void)clear_staging(pool);
    return status;
}
