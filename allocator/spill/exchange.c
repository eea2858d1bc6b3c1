/* SPDX-License-Identifier: Apache-2.0 */
/* New chunks take the place of old ones, under the same addresses, while the device stands still.
 *
 * Both hold the contents during the exchange. So where a step fails, either will do: first what was
 * begun is undone, and where that fails too, it is done after all, and so on in turn until one of
 * them is mapped and accessible. A device that refuses all that has failed more often on end than a
 * call that is made again explains. What it leaves without its contents is told
 * (MS_EVENT_LOST), and nothing is moved any more. */
#include "allocator/spill/exchange.h"
#include "allocator/backing/backing.h"
#include "allocator/pool_state.h"
#include "allocator/spill/move.h"

/* Each turn is at least two calls: enough for forty refusals on end. */
enum { TURNS = 24 };

/* One old chunk, and those that stand for it: one for each of its granules. */
struct pair {
    struct ms_segment *segment;
    uint64_t slot, end;
    struct ms_chunk *old;
    struct ms_chunk *fresh; /* in the order of their slots; mapped where they have a segment */
    bool old_mapped;
    bool was_spilled;
};

/* ---- one pair: back, or on */

/* Unmaps the chunk; its slots are empty then. */
static bool take_off(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
{
    if (ms_backing_unmap(pool, &chunk, 1) != MS_OK) {
        return false;
    }
    ms_backing_clear(pool, chunk);
    chunk->segment = NULL;
    return true;
}

static bool map_old(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    if (ms_backing_map(pool, pair->segment, pair->slot, pair->old) != MS_OK) {
        return false;
    }
    pair->old_mapped = true;
    if (pair->was_spilled) {
        ms_state_acquire(pool);
        pair->old->spilled = true;
        ms_backing_spilled_again(pool, pair->old->bytes);
        ms_state_release(pool);
    }
    return true;
}

static bool go_back(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    for (struct ms_chunk *chunk = pair->fresh; chunk != NULL; chunk = chunk->next) {
        if (chunk->segment != NULL && !take_off(pool, chunk)) {
            return false;
        }
    }
    return (pair->old_mapped || map_old(pool, pair)) &&
           ms_backing_give_access(pool, pair->segment, pair->slot, pair->end) == MS_OK;
}

static bool go_on(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    if (pair->old_mapped) {
        if (!take_off(pool, pair->old)) {
            return false;
        }
        pair->old_mapped = false;
    }
    uint64_t slot = pair->slot;
    for (struct ms_chunk *chunk = pair->fresh; chunk != NULL; chunk = chunk->next, slot++) {
        if (chunk->segment == NULL && ms_backing_map(pool, pair->segment, slot, chunk) != MS_OK) {
            return false;
        }
    }
    return ms_backing_give_access(pool, pair->segment, pair->slot, pair->end) == MS_OK;
}

/* ---- what is lost */

static void lose(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                 struct ms_chunk *stuck) MS_REQUIRES(ms_growth_role)
{
    pool->moving.broken = true;
    ms_backing_lose(pool, segment, slot, stuck);
}

static void note_spilled(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
{
    struct ms_spill_stats *stats = &pool->count.spill;
    ms_state_acquire(pool);
    chunk->spilled = true;
    stats->spilled_bytes += chunk->bytes;
    pool->moving.room_bytes -= chunk->bytes;
    if (stats->peak_spilled_bytes < stats->spilled_bytes) {
        stats->peak_spilled_bytes = stats->spilled_bytes;
    }
    ms_state_release(pool);
}

/* Neither chunk can be had: what stands and can be reached stays, granule by granule. */
static void give_up(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    uint64_t slot = pair->slot;
    while (pair->fresh != NULL) {
        struct ms_chunk *chunk = pair->fresh;
        pair->fresh = chunk->next;
        if (chunk->segment == NULL) {
            ms_backing_add_spare(pool, chunk);
            if (!pair->old_mapped) {
                lose(pool, pair->segment, slot, NULL);
            }
        } else if (ms_backing_give_access(pool, pair->segment, slot, slot + 1) != MS_OK) {
            chunk->stuck = true;
            lose(pool, pair->segment, slot, chunk);
        } else if (chunk->host) {
            note_spilled(pool, chunk);
        }
        slot++;
    }
    if (!pair->old_mapped) {
        ms_backing_add_spare(pool, pair->old);
        return;
    }
    pair->old->stuck = true;
    for (slot = pair->slot; slot < pair->end; slot++) {
        lose(pool, pair->segment, slot, pair->old);
    }
}

/* ---- a run of neighbours */

/* The first `count` chunks of the list, as a list of their own. */
static struct ms_chunk *split_off(struct ms_chunk **list, uint64_t count)
{
    struct ms_chunk *first = *list;
    struct ms_chunk **link = &first;
    for (; count > 0 && *link != NULL; count--) {
        link = &(*link)->next;
    }
    *list = *link;
    *link = NULL;
    return first;
}

/* The new ones stand: the old one is a spare. */
static void went_on(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    for (struct ms_chunk *chunk = pair->fresh; chunk != NULL; chunk = chunk->next) {
        if (chunk->host) {
            note_spilled(pool, chunk);
        }
    }
    ms_backing_add_spare(pool, pair->old);
}

static void went_back(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    while (pair->fresh != NULL) {
        struct ms_chunk *chunk = pair->fresh;
        pair->fresh = chunk->next;
        ms_backing_add_spare(pool, chunk);
    }
}

/* A step of the run's exchange has failed: each pair by itself ends up where it can be. Whether
 * that is on the new chunks. */
static bool settle(struct ms_pool *pool, struct pair *pair) MS_REQUIRES(ms_growth_role)
{
    ms_state_acquire(pool);
    for (uint64_t slot = pair->slot; slot < pair->end; slot++) {
        if (pair->segment->slots[slot] == pair->old) {
            pair->segment->slots[slot] = NULL; /* unmapped with the run */
        }
    }
    ms_state_release(pool);
    for (int turn = 0; turn < TURNS; turn++) {
        if (go_back(pool, pair)) {
            went_back(pool, pair);
            return false;
        }
        if (go_on(pool, pair)) {
            went_on(pool, pair);
            return true;
        }
    }
    give_up(pool, pair);
    return false;
}

/* Maps the new chunks from the slot on and gives access. */
static ms_status_t map_new(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                           struct ms_chunk *list) MS_REQUIRES(ms_growth_role)
{
    uint64_t slot = from;
    for (; list != NULL; list = list->next) {
        ms_status_t status = ms_backing_map(pool, segment, slot, list);
        if (status != MS_OK) {
            return status;
        }
        slot++;
    }
    return ms_backing_give_access(pool, segment, from, slot);
}

static void tell(struct ms_pool *pool, enum ms_location to, const struct pair *pair,
                 uint64_t *moved_bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t bytes = (pair->end - pair->slot) * pool->granule_bytes;
    *moved_bytes += bytes;
    ms_move_record(pool, to, pair->segment->base + pair->slot * pool->granule_bytes, bytes);
}

ms_status_t ms_exchange_run(struct ms_pool *pool, struct ms_chunk *const *run, size_t count,
                            struct ms_chunk *fresh, enum ms_location to, uint64_t *moved_bytes)
{
    struct ms_segment *segment = run[0]->segment;
    uint64_t first = run[0]->slot;
    uint64_t slot = first;
    uint64_t spilled = 0; /* a bit for each: unmapping takes the note away */
    for (size_t at = 0; at < count; at++) {
        spilled |= (uint64_t)run[at]->spilled << at;
    }
    ms_status_t status = ms_backing_unmap(pool, run, count);
    if (status != MS_OK) {
        ms_backing_add_spares(pool, fresh);
        return status;
    }
    status = map_new(pool, segment, slot, fresh);
    for (size_t at = 0; at < count; at++) {
        uint64_t slots = run[at]->bytes / pool->granule_bytes;
        struct pair pair = {.segment = segment,
                            .slot = slot,
                            .end = slot + slots,
                            .old = run[at],
                            .fresh = split_off(&fresh, slots),
                            .was_spilled = (spilled >> at & 1) != 0};
        slot = pair.end;
        if (status == MS_OK) {
            went_on(pool, &pair);
        } else if (settle(pool, &pair)) {
            tell(pool, to, &pair, moved_bytes);
        }
    }
    if (status == MS_OK) {
        struct pair whole = {.segment = segment, .slot = first, .end = slot};
        tell(pool, to, &whole, moved_bytes);
    }
    return status;
}
