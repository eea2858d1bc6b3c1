/* Live memory on the host: what to move there when nothing else is left, and what to bring back.
 *
 *   what may be moved   a chunk that lies wholly in one live block or one arena, with something
 *                       live on it, all of it: not where its identity has left the process, nor
 *                       where a stream captured
 *   which one           the one that is used last, by the configured choice (spill_choice.h): a
 *                       chunk counts as used when anything on it was
 *   how much            what the request lacks, and a little ahead of need, for a standstill costs
 *                       the same for one chunk and for many
 *   back                by ms_pool_promote, hottest first, when the budget has room; or because
 *                       its identity is asked for
 *   over and over       what came back and soon had to go again, several times, stays where it is
 *                       until there is room for all that is spilled: the rest of it stays hot
 *
 * Blocks of which a part is on the host fall to pieces when they are freed, as arenas with holes
 * do: their host chunks drain (holes.c). A host chunk under a tensor that dies is one of a hole
 * from then on. */
#include "allocator/pool_internal.h"
#include "allocator/tensors.h"

/* Moved ahead of need, at most, and as a part of the cap. */
#define AHEAD_BYTES ((uint64_t)64 << 20)
enum { AHEAD_PART = 128 };

/* Back soon: within so many standstills. Thrashing: so many times on end. */
enum { SOON_HALTS = 16, THRASH_RETURNS = 3 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* ---- what there is to move */

/* Chunks that could be moved, from the device (down) or from the host. */
struct search {
    bool down;
    bool held_too; /* also what stays where it is because it came and went too often */
    struct ms_victim *heap;
    size_t count, room;
    uint64_t bytes; /* of all that were found */
    uint64_t enough_bytes;
    bool only_count;
};

/* As a part of the run so far, in 2^-32. */
static uint64_t part_of(uint64_t at, uint64_t now)
{
    uint64_t part =
        now == 0 ? 0 : (uint64_t)((double)at / (double)now * (double)(UINT64_C(1) << 32));
    return least(part, UINT64_C(1) << 32);
}

static void found(struct ms_pool *pool, struct search *search, struct ms_chunk *chunk,
                  struct ms_spill_candidate *candidate)
{
    search->bytes += chunk->bytes;
    if (search->only_count || search->count == search->room) {
        return;
    }
    const struct ms_spill_choice *choice =
        pool->config.spill_choice != NULL ? pool->config.spill_choice : &ms_spill_choice_lru;
    candidate->addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    candidate->bytes = chunk->bytes;
    candidate->now = UINT64_C(1) << 32;
    candidate->next_use = UINT64_MAX;
    candidate->returns = chunk->returns;
    uint64_t rank = choice->rank(choice->ctx, candidate);
    search->heap[search->count++] =
        (struct ms_victim){.rank = search->down ? rank : UINT64_MAX - rank, .chunk = chunk};
}

static bool wanted(const struct search *search, const struct ms_chunk *chunk)
{
    return chunk != NULL && !chunk->stuck && chunk->host != search->down &&
           (search->held_too || chunk->returns < THRASH_RETURNS);
}

/* Of a chunk in an arena: whether it may move, and when it was used last. */
static bool look_at_granules(const struct ms_pool *pool, const struct ms_segment *segment,
                             const struct ms_chunk *chunk, uint64_t *last_use)
{
    const struct ms_granule *first = &segment->granules[chunk->slot];
    uint64_t slots = chunk->bytes / pool->granule_bytes;
    bool live = false;
    *last_use = 0;
    for (const struct ms_granule *granule = first; granule < first + slots; granule++) {
        if (granule->arena == NULL || granule->arena != first->arena || granule->arena->frozen ||
            granule->pinned || granule->unbacked) {
            return false;
        }
        if (granule->tensors > 0) {
            live = true;
            *last_use = granule->since > *last_use ? granule->since : *last_use;
        }
    }
    return live;
}

/* The chunks that lie wholly in the slots [from, to), which are an arena's. */
static void search_arena(struct ms_pool *pool, struct search *search, struct ms_segment *segment,
                         uint64_t from, uint64_t to)
{
    for (uint64_t slot = from; slot < to && search->bytes < search->enough_bytes; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        uint64_t last_use = 0;
        if (!wanted(search, chunk) || chunk->slot != slot ||
            slot + chunk->bytes / pool->granule_bytes > to ||
            !look_at_granules(pool, segment, chunk, &last_use)) {
            continue;
        }
        struct ms_spill_candidate candidate = {.last_use = part_of(last_use, pool->repair.clock),
                                               .kind = MS_KIND_TENSOR};
        found(pool, search, chunk, &candidate);
    }
}

static void search_block(struct ms_pool *pool, struct search *search, const struct ms_range *range)
{
    struct ms_segment *segment = range->segment;
    uint64_t from = 0;
    uint64_t to = 0;
    ms_granules_inside(pool, segment, range->addr, range->bytes, &from, &to);
    if (range->live.holes != NULL) {
        if (!pool->repair.frozen) {
            search_arena(pool, search, segment, from, to);
        }
        return;
    }
    uint64_t now = pool->count.allocations;
    for (uint64_t slot = from; slot < to && search->bytes < search->enough_bytes; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        if (wanted(search, chunk) && chunk->slot == slot &&
            slot + chunk->bytes / pool->granule_bytes <= to) {
            struct ms_spill_candidate candidate = {.last_use = part_of(range->live.used, now),
                                                   .born = part_of(range->live.born, now),
                                                   .site = range->site,
                                                   .kind = MS_KIND_BLOCK};
            found(pool, search, chunk, &candidate);
        }
    }
}

/* State lock. */
static void search_segment(struct ms_pool *pool, struct search *search, struct ms_segment *segment)
{
    if (segment->plain || segment == pool->moving.staging) {
        return;
    }
    if (segment->foreign != NULL) {
        if (!pool->repair.frozen) {
            search_arena(pool, search, segment, 0, segment->slot_count);
        }
        return;
    }
    for (const struct ms_range *range = segment->first;
         range != NULL && search->bytes < search->enough_bytes; range = range->next) {
        if (range->state == MS_RANGE_LIVE && !range->pinned) {
            search_block(pool, search, range);
        }
    }
}

static void search_all(struct ms_pool *pool, struct search *search)
{
    for (size_t at = 0; at < pool->segment_count && search->bytes < search->enough_bytes; at++) {
        search_segment(pool, search, pool->segments[at]);
    }
}

/* Frees of blocks that may be backed by the host wait from here on, or no longer. State lock. */
static void begin(struct ms_pool *pool)
{
    pool->moving.under_way = true;
}

static void finish(struct ms_pool *pool)
{
    ms_lock_acquire(&pool->state);
    pool->moving.under_way = false;
    ms_lock_release(&pool->state);
}

/* Takes the best for `enough_bytes`, all together at most `limit_bytes`; linked by `next`. */
static struct ms_chunk *pick(struct ms_pool *pool, bool down, bool held_too, uint64_t enough_bytes,
                             uint64_t limit_bytes, uint64_t *bytes)
{
    uint64_t most = down ? pool->count.reserved_bytes : pool->count.host_backed_bytes;
    ms_victims_need(pool, most / pool->granule_bytes + 1);
    struct search search = {.down = down,
                            .held_too = held_too,
                            .heap = pool->repair.victims,
                            .room = pool->repair.victim_room,
                            .enough_bytes = UINT64_MAX};
    struct ms_chunk *list = NULL;
    *bytes = 0;
    ms_lock_acquire(&pool->state);
    begin(pool);
    search_all(pool, &search);
    ms_victims_order(search.heap, search.count);
    while (search.count > 0 && *bytes < enough_bytes) {
        struct ms_chunk *chunk = ms_victims_pop(search.heap, &search.count);
        if (chunk->bytes > limit_bytes - *bytes) {
            continue;
        }
        struct ms_range *range =
            ms_pool_block_around(pool, chunk->segment->base + chunk->slot * pool->granule_bytes);
        if (range != NULL) {
            range->mixed = true;
        }
        chunk->next = list;
        list = chunk;
        *bytes += chunk->bytes;
    }
    ms_lock_release(&pool->state);
    return list;
}

/* ---- down */

bool ms_spill_possible(struct ms_pool *pool)
{
    return pool->config.spill_limit_bytes > 0 && pool->ops->halt != NULL &&
           pool->granule_bytes != 0 && !pool->moving.refused && !pool->moving.broken &&
           !pool->repair.no_host && !pool->ops->capturing(pool->ops->ctx);
}

/* What the limits leave. */
static uint64_t room_on_host(struct ms_pool *pool)
{
    uint64_t room = least(less(pool->config.spill_limit_bytes, pool->count.spill.spilled_bytes),
                          ms_promise_host_room(pool));
    return room - room % pool->granule_bytes;
}

uint64_t ms_spill_room(struct ms_pool *pool, uint64_t enough_bytes)
{
    struct search search = {.down = true, .held_too = true, .only_count = true};
    search.enough_bytes = least(enough_bytes, room_on_host(pool));
    ms_lock_acquire(&pool->state);
    search_all(pool, &search);
    ms_lock_release(&pool->state);
    return least(search.bytes, room_on_host(pool));
}

/* Those that have come back soon before, and once more. */
static void note_returns(struct ms_pool *pool, struct ms_chunk *list)
{
    struct ms_spill_stats *stats = &pool->count.spill;
    ms_lock_acquire(&pool->state);
    for (struct ms_chunk *chunk = list; chunk != NULL; chunk = chunk->next) {
        bool soon = chunk->promoted != 0 && stats->halts - chunk->promoted <= SOON_HALTS;
        chunk->returns = !soon ? 0 : chunk->returns < UINT8_MAX ? chunk->returns + 1 : UINT8_MAX;
        stats->thrashed_bytes += chunk->returns >= THRASH_RETURNS ? chunk->bytes : 0;
    }
    ms_lock_release(&pool->state);
}

/* Host chunks for the best victims, staged; *bytes: how much. */
static ms_status_t prepare(struct ms_pool *pool, uint64_t needed_bytes, uint64_t *bytes)
{
    uint64_t room = room_on_host(pool);
    uint64_t ahead = least(atomic_load(&pool->config.budget->cap_bytes) / AHEAD_PART, AHEAD_BYTES);
    uint64_t enough = least(needed_bytes + ahead - ahead % pool->granule_bytes, room);
    if (enough < needed_bytes) {
        return MS_ERR_NO_MEMORY;
    }
    (void)pick(pool, true, true, enough, room, bytes);
    if (*bytes < needed_bytes) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = ms_promise_host_spare(pool, *bytes);
    return status == MS_OK ? ms_move_stage(pool, *bytes, MS_LOCATION_HOST) : status;
}

static ms_status_t make_room(struct ms_pool *pool, uint64_t bytes, uint64_t *taken_bytes)
{
    uint64_t staged_bytes = 0;
    ms_status_t status = prepare(pool, bytes, &staged_bytes);
    if (status != MS_OK) {
        return MS_ERR_NO_MEMORY;
    }
    uint64_t picked_bytes = 0;
    uint64_t moved_bytes = 0;
    struct ms_chunk *list = pick(pool, true, true, staged_bytes, staged_bytes, &picked_bytes);
    if (picked_bytes < bytes) {
        ms_move_unstage(pool);
        return MS_ERR_NO_MEMORY;
    }
    note_returns(pool, list);
    status = ms_move(pool, list, MS_LOCATION_HOST, &moved_bytes);
    *taken_bytes += moved_bytes;
    if (moved_bytes >= bytes) {
        return MS_OK;
    }
    return status > 0 ? status : MS_ERR_NO_MEMORY;
}

ms_status_t ms_spill_make_room(struct ms_pool *pool, uint64_t bytes, uint64_t *taken_bytes)
{
    if (!ms_spill_possible(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = make_room(pool, ms_round_up(bytes, pool->granule_bytes), taken_bytes);
    finish(pool);
    return status;
}

/* ---- up */

static uint64_t budget_room(struct ms_pool *pool)
{
    uint64_t room = ms_budget_free_bytes(pool->config.budget);
    return room - room % pool->granule_bytes;
}

uint64_t ms_pool_promote(ms_pool_t *pool, uint64_t max_bytes)
{
    uint64_t moved_bytes = 0;
    uint64_t bytes = 0;
    ms_lock_acquire(&pool->growth);
    pool->moving.refused = false;
    if (pool->count.spill.spilled_bytes > 0 && ms_spill_possible(pool)) {
        (void)ms_backing_release_spares(pool);
        ms_holes_recover(pool);
        uint64_t room = budget_room(pool);
        bool for_all = room >= pool->count.host_backed_bytes;
        uint64_t limit = least(room, max_bytes);
        (void)pick(pool, false, for_all, limit, limit, &bytes);
    }
    if (bytes > 0 && ms_move_stage(pool, bytes, MS_LOCATION_DEVICE) == MS_OK) {
        uint64_t picked_bytes = 0;
        bool for_all = budget_room(pool) + bytes >= pool->count.host_backed_bytes;
        struct ms_chunk *list = pick(pool, false, for_all, bytes, bytes, &picked_bytes);
        if (picked_bytes > 0) {
            (void)ms_move(pool, list, MS_LOCATION_DEVICE, &moved_bytes);
        }
        ms_move_unstage(pool);
    }
    finish(pool);
    (void)ms_backing_release_spares(pool);
    ms_promise_settle(pool);
    ms_lock_release(&pool->growth);
    return moved_bytes;
}

/* The host chunks in the slots, linked by `next`. */
static struct ms_chunk *hosts_in(struct ms_segment *segment, uint64_t from, uint64_t to,
                                 uint64_t *bytes)
{
    struct ms_chunk *list = NULL;
    *bytes = 0;
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        if (chunk != NULL && chunk->host && !chunk->stuck) {
            chunk->next = list;
            list = chunk;
            *bytes += chunk->bytes;
        }
    }
    return list;
}

ms_status_t ms_spill_bring_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to)
{
    uint64_t bytes = 0;
    uint64_t moved_bytes = 0;
    (void)hosts_in(segment, from, to, &bytes);
    if (bytes == 0) {
        return MS_OK;
    }
    if (!ms_spill_possible(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    (void)ms_backing_release_spares(pool);
    uint64_t room = budget_room(pool);
    if (room < bytes) {
        /* What has been marked as not to be moved is not among the victims. */
        (void)ms_spill_make_room(pool, bytes - room, &moved_bytes);
        (void)ms_backing_release_spares(pool);
    }
    ms_status_t status =
        ms_spill_possible(pool) ? ms_move_stage(pool, bytes, MS_LOCATION_DEVICE) : MS_ERR_NO_MEMORY;
    if (status == MS_OK) {
        moved_bytes = 0;
        ms_lock_acquire(&pool->state);
        begin(pool);
        struct ms_chunk *list = hosts_in(segment, from, to, &bytes);
        ms_lock_release(&pool->state);
        status = ms_move(pool, list, MS_LOCATION_DEVICE, &moved_bytes);
        finish(pool);
        status = status == MS_OK && moved_bytes < bytes ? MS_ERR_NO_MEMORY : status;
    }
    return status < 0 ? MS_ERR_NO_MEMORY : status;
}

ms_status_t ms_pool_promote_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_lock_acquire(&pool->growth);
    pool->moving.refused = false;
    struct ms_segment *segment = ms_segment_of(pool, addr);
    if (segment != NULL && !segment->plain && bytes > 0 &&
        bytes <= segment->bytes - (addr - segment->base)) {
        uint64_t from = (addr - segment->base) / pool->granule_bytes;
        uint64_t to = (addr + bytes - 1 - segment->base) / pool->granule_bytes + 1;
        status = ms_spill_bring_back(pool, segment, from, to);
        (void)ms_backing_release_spares(pool);
        ms_promise_settle(pool);
    }
    ms_lock_release(&pool->growth);
    return status;
}

/* ---- heat */

static void touch_granules(struct ms_pool *pool, struct ms_segment *segment, ms_addr_t addr,
                           uint64_t bytes)
{
    uint64_t from = (addr - segment->base) >> segment->granule_shift;
    uint64_t to = ((addr + bytes - 1 - segment->base) >> segment->granule_shift) + 1;
    for (uint64_t slot = from; slot < to && slot < segment->slot_count; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        if (granule->tensors > 0) {
            granule->since = pool->repair.clock;
        }
    }
}

void ms_pool_touch(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_lock_acquire(&pool->state);
    struct ms_segment *segment = ms_segment_of(pool, addr);
    struct ms_range *range = NULL;
    if (segment != NULL && segment->foreign == NULL) {
        range = ms_pool_block_around(pool, addr);
    }
    if (range != NULL) {
        range->live.used = pool->count.allocations;
    }
    if (segment != NULL && segment->granules != NULL) {
        if (bytes == 0 && pool->repair.arenas != NULL) {
            ms_arenas_around(pool->repair.arenas, segment, &addr, &bytes);
        }
        touch_granules(pool, segment, addr, bytes > 0 ? bytes : 1);
    }
    ms_lock_release(&pool->state);
}
