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
 * Until a run's own exchange nothing about it has changed, and what the exchange has begun is
 * undone where a step fails: the old chunk keeps its contents all the while. Two failures on end
 * can leave a range without its contents; then nothing is moved any more. */
#include "allocator/clock.h"
#include "allocator/pool_internal.h"

/* One copy of this size keeps the bus busy; more of them keep more engines busy. */
#define COPY_PIECE_BYTES ((uint64_t)64 << 20)

/* A rest is at most this many times what the refusal took. */
enum { REST_MOST = 4 };

static uint64_t now_ns(const struct ms_pool *pool)
{
    return pool->ops->now_ns != NULL ? pool->ops->now_ns(pool->ops->ctx) : ms_clock_ns();
}

static uint64_t chunk_slots(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->bytes / pool->granule_bytes;
}

/* ---- staging */

/* As many addresses as could ever be wanted, once: they cost nothing. */
static ms_status_t need_staging(struct ms_pool *pool)
{
    if (pool->moving.staging != NULL) {
        return MS_OK;
    }
    uint64_t most = pool->config.host_limit_bytes;
    most = most < pool->ops->total_bytes ? most : pool->ops->total_bytes;
    return ms_backing_reserve_staging(pool, ms_round_up(most, pool->granule_bytes),
                                      &pool->moving.staging);
}

/* Takes the staged chunks off their addresses; *out: a list of them, in their order. */
static ms_status_t clear_staging(struct ms_pool *pool, struct ms_chunk **out)
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

static void give_all(struct ms_pool *pool, struct ms_chunk *list)
{
    while (list != NULL) {
        struct ms_chunk *chunk = list;
        list = list->next;
        ms_backing_add_spare(pool, chunk);
    }
}

void ms_move_unstage(struct ms_pool *pool)
{
    struct ms_chunk *list = NULL;
    (void)clear_staging(pool, &list);
    give_all(pool, list);
}

static ms_status_t stage_one(struct ms_pool *pool, enum ms_location to)
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

ms_status_t ms_move_stage(struct ms_pool *pool, uint64_t bytes, enum ms_location to)
{
    ms_status_t status = need_staging(pool);
    if (status == MS_OK && pool->moving.staged > 0) {
        struct ms_chunk *left = NULL;
        status = clear_staging(pool, &left);
        give_all(pool, left);
    }
    uint64_t slots = bytes / pool->granule_bytes;
    if (status == MS_OK && slots > pool->moving.staging->slot_count) {
        status = MS_ERR_NO_MEMORY;
    }
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

static ms_status_t copy_all(struct ms_pool *pool, struct ms_chunk *list)
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

/* ---- the exchange of one run */

/* The slot has lost its contents: a device that failed twice on end. */
static void lose(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                 struct ms_chunk *stuck)
{
    uint64_t owed_before = pool->count.owed_bytes;
    pool->moving.broken = true;
    ms_lock_acquire(&pool->state);
    segment->slots[slot] = stuck;
    ms_granules_place(pool, segment, slot, slot + 1, NULL);
    if (segment->granules != NULL && segment->granules[slot].arena != NULL &&
        !segment->granules[slot].unbacked) {
        ms_granules_unbacked(pool, segment, slot, slot + 1);
        segment->granules[slot].refused = true;
    }
    ms_lock_release(&pool->state);
    if (pool->count.owed_bytes > owed_before) {
        (void)ms_promise_secure(pool, 0, true);
    }
}

/* The new chunk is taken off its place again. */
static void retract(struct ms_pool *pool, struct ms_chunk *chunk)
{
    if (ms_backing_unmap(pool, &chunk, 1) == MS_OK) {
        ms_backing_clear(pool, chunk);
        ms_backing_add_spare(pool, chunk);
    } else {
        chunk->stuck = true;
        lose(pool, chunk->segment, chunk->slot, chunk);
    }
}

static bool vacant(const struct ms_pool *pool, const struct ms_segment *segment,
                   const struct ms_chunk *chunk, uint64_t slot)
{
    for (uint64_t k = slot; k < slot + chunk_slots(pool, chunk); k++) {
        if (segment->slots[k] != NULL && segment->slots[k] != chunk) {
            return false;
        }
    }
    return true;
}

/* The old chunk stands where it stood, accessible. */
static void put_back(struct ms_pool *pool, struct ms_chunk *chunk, bool spilled)
{
    struct ms_segment *segment = chunk->segment;
    uint64_t slot = chunk->slot;
    uint64_t end = slot + chunk_slots(pool, chunk);
    if (vacant(pool, segment, chunk, slot) && ms_backing_map(pool, segment, slot, chunk) == MS_OK) {
        if (spilled) {
            ms_lock_acquire(&pool->state);
            chunk->spilled = true;
            ms_spill_again(pool, chunk->bytes);
            ms_lock_release(&pool->state);
        }
        if (ms_backing_give_access(pool, segment, slot, end) == MS_OK) {
            return;
        }
        chunk->stuck = true;
        for (uint64_t k = slot; k < end; k++) {
            lose(pool, segment, k, chunk);
        }
        return;
    }
    for (uint64_t k = slot; k < end; k++) {
        struct ms_chunk *stands = segment->slots[k];
        lose(pool, segment, k, stands == chunk ? NULL : stands);
    }
    ms_backing_add_spare(pool, chunk);
}

/* Takes as many new chunks off the list as stand for the run, and passes on what is known of the
 * old ones. */
static struct ms_chunk *take_new(struct ms_pool *pool, struct ms_chunk *const *run, size_t count,
                                 enum ms_location to, struct ms_chunk **list)
{
    struct ms_chunk *first = *list;
    struct ms_chunk **link = &first;
    for (size_t at = 0; at < count; at++) {
        for (uint64_t k = chunk_slots(pool, run[at]); k > 0 && *link != NULL; k--) {
            struct ms_chunk *chunk = *link;
            chunk->returns = run[at]->returns;
            chunk->promoted = to == MS_LOCATION_DEVICE ? pool->count.spill.halts : 0;
            link = &chunk->next;
        }
    }
    *list = *link;
    *link = NULL;
    return first;
}

/* Maps the new chunks from the slot on; those mapped are in *done. */
static ms_status_t map_new(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                           struct ms_chunk **list, struct ms_chunk **done)
{
    uint64_t from = slot;
    while (*list != NULL) {
        struct ms_chunk *chunk = *list;
        ms_status_t status = ms_backing_map(pool, segment, slot, chunk);
        if (status != MS_OK) {
            return status;
        }
        *list = chunk->next;
        chunk->next = *done;
        *done = chunk;
        slot++;
    }
    return ms_backing_give_access(pool, segment, from, slot);
}

static void tell(struct ms_pool *pool, enum ms_location to, ms_addr_t addr, uint64_t bytes)
{
    uint64_t now = now_ns(pool);
    uint64_t spent_ns = now - pool->moving.since_ns;
    bool down = to == MS_LOCATION_HOST;
    struct ms_spill_stats *stats = &pool->count.spill;
    pool->moving.since_ns = now;
    ms_lock_acquire(&pool->state);
    stats->stall_ns += spent_ns;
    *(down ? &stats->down_bytes : &stats->up_bytes) += bytes;
    *(down ? &stats->spills : &stats->promotions) += 1;
    ms_pool_emit(pool, &(struct ms_event){.kind = down ? MS_EVENT_SPILL : MS_EVENT_PROMOTE,
                                          .owner = MS_OWNER_POOL,
                                          .addr = addr,
                                          .bytes = bytes,
                                          .aux = spent_ns});
    ms_lock_release(&pool->state);
}

static void note_spilled(struct ms_pool *pool, struct ms_chunk *list)
{
    struct ms_spill_stats *stats = &pool->count.spill;
    ms_lock_acquire(&pool->state);
    for (; list != NULL; list = list->next) {
        list->spilled = true;
        stats->spilled_bytes += list->bytes;
        pool->moving.room_bytes -= list->bytes;
    }
    if (stats->peak_spilled_bytes < stats->spilled_bytes) {
        stats->peak_spilled_bytes = stats->spilled_bytes;
    }
    ms_lock_release(&pool->state);
}

/* The run, unmapped already, gets the new chunks; or the old ones again. */
static ms_status_t replace(struct ms_pool *pool, struct ms_chunk *const *run, size_t count,
                           struct ms_chunk *fresh, enum ms_location to)
{
    struct ms_segment *segment = run[0]->segment;
    struct ms_chunk *done = NULL;
    ms_status_t status = map_new(pool, segment, run[0]->slot, &fresh, &done);
    if (status != MS_OK) {
        while (done != NULL) {
            struct ms_chunk *chunk = done;
            done = chunk->next;
            retract(pool, chunk);
        }
        give_all(pool, fresh);
        for (size_t at = 0; at < count; at++) {
            put_back(pool, run[at], to == MS_LOCATION_DEVICE);
        }
        return status;
    }
    if (to == MS_LOCATION_HOST) {
        note_spilled(pool, done);
    }
    return MS_OK;
}

static ms_status_t exchange_run(struct ms_pool *pool, struct ms_chunk *const *run, size_t count,
                                struct ms_chunk *fresh, enum ms_location to, uint64_t *moved_bytes)
{
    ms_addr_t addr = addr_of(pool, run[0]);
    uint64_t bytes = run_bytes(run, count);
    ms_status_t status = ms_backing_unmap(pool, run, count);
    if (status != MS_OK) {
        give_all(pool, fresh);
        return status;
    }
    status = replace(pool, run, count, fresh, to);
    if (status == MS_OK) {
        for (size_t at = 0; at < count; at++) {
            ms_backing_add_spare(pool, run[at]);
        }
        *moved_bytes += bytes;
        tell(pool, to, addr, bytes);
    }
    return status;
}

/* ---- all of it */

static ms_status_t exchange_all(struct ms_pool *pool, struct ms_chunk *list, struct ms_chunk *fresh,
                                enum ms_location to, uint64_t *moved_bytes)
{
    ms_status_t status = MS_OK;
    while (list != NULL) {
        struct ms_chunk *run[MS_RUN_CHUNKS];
        size_t count = ms_chunks_take_run(pool, &list, run);
        struct ms_chunk *mine = take_new(pool, run, count, to, &fresh);
        if (pool->moving.broken) {
            give_all(pool, mine);
            continue;
        }
        ms_status_t one = exchange_run(pool, run, count, mine, to, moved_bytes);
        status = status == MS_OK ? one : status;
    }
    return status;
}

/* Asked in vain twice on end, the device is let alone as long as the last time took, and each time
 * for longer: a program that it is always refused to loses little more than that part of its time.
 * The first time the next request may ask again, for it may be the program's last. */
static void rest(struct ms_pool *pool, uint64_t asked_ns)
{
    struct ms_moving *moving = &pool->moving;
    uint64_t now = now_ns(pool);
    moving->rest_until_ns = now + (now - asked_ns) * moving->refusals;
    moving->refusals += moving->refusals < REST_MOST ? 1 : 0;
}

bool ms_move_rests(const struct ms_pool *pool)
{
    return pool->moving.refusals > 1 && now_ns(pool) < pool->moving.rest_until_ns;
}

static ms_status_t hold(struct ms_pool *pool)
{
    uint64_t asked_ns = now_ns(pool);
    ms_status_t status = pool->ops->halt(pool->ops->ctx, pool->config.halt_limit_ns);
    if (status == MS_OK) {
        pool->moving.refusals = 0;
    } else {
        rest(pool, asked_ns);
    }
    ms_lock_acquire(&pool->state);
    *(status == MS_OK ? &pool->count.spill.halts : &pool->count.spill.halts_refused) += 1;
    ms_lock_release(&pool->state);
    pool->moving.refused = status != MS_OK;
    pool->moving.since_ns = status == MS_OK ? now_ns(pool) : 0;
    return status;
}

static void let_go(struct ms_pool *pool)
{
    uint64_t spent_ns = now_ns(pool) - pool->moving.since_ns;
    pool->ops->resume(pool->ops->ctx);
    ms_lock_acquire(&pool->state);
    pool->count.spill.stall_ns += spent_ns;
    ms_lock_release(&pool->state);
}

ms_status_t ms_move(struct ms_pool *pool, struct ms_chunk *list, enum ms_location to,
                    uint64_t *moved_bytes)
{
    struct ms_chunk *fresh = NULL;
    ms_status_t status = hold(pool);
    if (status == MS_OK) {
        list = ms_chunks_by_address(list);
        status = copy_all(pool, list);
        if (status == MS_OK) {
            status = clear_staging(pool, &fresh);
        }
        if (status == MS_OK) {
            status = exchange_all(pool, list, fresh, to, moved_bytes);
        }
        let_go(pool);
    }
    ms_move_unstage(pool);
    return status;
}
