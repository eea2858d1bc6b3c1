/* SPDX-License-Identifier: Apache-2.0 */
/* Puts new chunks in the place of old ones, under the same addresses, while the device stands
 * still.
 *
 * Both hold the contents during the exchange, so either will do when a step fails. The exchange
 * then tries to go on; if that fails too, to go back; and so on in turn until one of them is mapped
 * and accessible. A device that refuses all of that has failed too often in a row for retries to
 * help. MS_EVENT_LOST then records the addresses without contents, and nothing moves any more. */
#include "allocator/spill/exchange.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/victims.h"
#include "allocator/pool_state.h"
#include "allocator/spill/move.h"

/* Each turn makes at least two calls: enough for forty refusals in a row. */
enum { TURNS = 24 };

/* The smallest set of chunks that can be exchanged by itself: some old ones, and new ones for the
 * same slots. Both linked by `next`, in the order of their slots; a chunk with a segment is
 * mapped. */
struct chunk_group {
    struct ms_segment *segment;
    uint64_t slot, end;
    struct ms_chunk *old, *fresh;
    uint64_t spilled; /* a bit for each old chunk that counts as spilled: unmapping clears the
                         chunk's own flag */
};

static uint64_t chunk_slots(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->bytes / pool->granule_bytes;
}

/* ---- one group: forward, or back */

/* Unmaps those that are mapped, neighbours in one call. */
static bool take_off(struct ms_pool *pool, struct ms_chunk *list) MS_REQUIRES(ms_growth_role)
{
    while (list != NULL) {
        struct ms_chunk *run[MS_RUN_CHUNKS];
        size_t count = 0;
        for (; list != NULL && list->segment != NULL && count < MS_RUN_CHUNKS; list = list->next) {
            run[count++] = list;
        }
        if (count == 0) {
            list = list->next;
            continue;
        }
        if (ms_backing_unmap(pool, run, count) != MS_OK) {
            return false;
        }
        for (size_t at = 0; at < count; at++) {
            ms_backing_clear(pool, run[at]);
            run[at]->segment = NULL;
        }
    }
    return true;
}

/* Maps those that are not mapped. */
static bool put(struct ms_pool *pool, const struct chunk_group *group, struct ms_chunk *list)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t slot = group->slot;
    for (; list != NULL; list = list->next) {
        if (list->segment == NULL && ms_backing_map(pool, group->segment, slot, list) != MS_OK) {
            return false;
        }
        slot += chunk_slots(pool, list);
    }
    return ms_backing_give_access(pool, group->segment, group->slot, group->end) == MS_OK;
}

static bool go_on(struct ms_pool *pool, const struct chunk_group *group) MS_REQUIRES(ms_growth_role)
{
    return take_off(pool, group->old) && put(pool, group, group->fresh);
}

static bool go_back(struct ms_pool *pool, const struct chunk_group *group)
    MS_REQUIRES(ms_growth_role)
{
    return take_off(pool, group->fresh) && put(pool, group, group->old);
}

/* ---- the chunks afterwards */

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

static void note_spilled_again(struct ms_pool *pool, struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role)
{
    if (!chunk->spilled) {
        ms_state_acquire(pool);
        chunk->spilled = true;
        ms_backing_spilled_again(pool, chunk->bytes);
        ms_state_release(pool);
    }
}

/* The new chunks are in place: the old ones become spares. */
static void went_on(struct ms_pool *pool, const struct chunk_group *group)
    MS_REQUIRES(ms_growth_role)
{
    for (struct ms_chunk *chunk = group->fresh; chunk != NULL; chunk = chunk->next) {
        if (chunk->host) {
            note_spilled(pool, chunk);
        }
    }
    ms_backing_add_spares(pool, group->old);
}

static void went_back(struct ms_pool *pool, const struct chunk_group *group)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t spilled = group->spilled;
    for (struct ms_chunk *chunk = group->old; chunk != NULL; chunk = chunk->next, spilled >>= 1) {
        if ((spilled & 1) != 0) {
            note_spilled_again(pool, chunk);
        }
    }
    ms_backing_add_spares(pool, group->fresh);
}

/* Keeps a chunk that is mapped and accessible. False: it is not, and became a spare or stuck. */
static bool keep(struct ms_pool *pool, const struct chunk_group *group, struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role)
{
    if (chunk->segment == NULL) {
        ms_backing_add_spare(pool, chunk);
        return false;
    }
    uint64_t end = chunk->slot + chunk_slots(pool, chunk);
    if (ms_backing_give_access(pool, group->segment, chunk->slot, end) == MS_OK) {
        return true;
    }
    chunk->stuck = true;
    for (uint64_t slot = chunk->slot; slot < end; slot++) {
        ms_backing_lose(pool, group->segment, slot, chunk);
    }
    return false;
}

/* Neither side can be mapped whole: keeps the chunks that can be. */
static void give_up(struct ms_pool *pool, struct chunk_group *group) MS_REQUIRES(ms_growth_role)
{
    pool->moving.broken = true;
    while (group->fresh != NULL) {
        struct ms_chunk *chunk = group->fresh;
        group->fresh = chunk->next;
        if (keep(pool, group, chunk) && chunk->host) {
            note_spilled(pool, chunk);
        }
    }
    for (; group->old != NULL; group->spilled >>= 1) {
        struct ms_chunk *chunk = group->old;
        group->old = chunk->next;
        if (keep(pool, group, chunk) && (group->spilled & 1) != 0) {
            note_spilled_again(pool, chunk);
        }
    }
    for (uint64_t slot = group->slot; slot < group->end; slot++) {
        if (group->segment->slots[slot] == NULL) {
            ms_backing_lose(pool, group->segment, slot, NULL);
        }
    }
}

/* Goes forward or back with one group until one side is in place. True: the new chunks are. */
static bool settle(struct ms_pool *pool, struct chunk_group *group) MS_REQUIRES(ms_growth_role)
{
    for (int turn = 0; turn < TURNS; turn++) {
        if (go_on(pool, group)) {
            went_on(pool, group);
            return true;
        }
        if (go_back(pool, group)) {
            went_back(pool, group);
            return false;
        }
    }
    give_up(pool, group);
    return false;
}

/* ---- a piece */

/* Moves past a chunk of a list; returns its number of slots. */
static uint64_t pass(const struct ms_pool *pool, struct ms_chunk ***link)
{
    struct ms_chunk *chunk = **link;
    if (chunk == NULL) {
        return 0;
    }
    *link = &chunk->next;
    return chunk_slots(pool, chunk);
}

/* Takes the next group off two lists that cover the same slots. */
static struct chunk_group next_group(const struct ms_pool *pool, struct ms_segment *segment,
                                     uint64_t slot, struct ms_chunk **old, struct ms_chunk **fresh)
{
    struct chunk_group group = {.segment = segment, .slot = slot, .old = *old, .fresh = *fresh};
    struct ms_chunk **old_link = old;
    struct ms_chunk **fresh_link = fresh;
    uint64_t old_end = slot;
    uint64_t fresh_end = slot;
    do {
        if (old_end <= fresh_end) {
            old_end += pass(pool, &old_link);
        } else {
            fresh_end += pass(pool, &fresh_link);
        }
    } while (old_end != fresh_end);
    group.end = old_end;
    *old = *old_link;
    *fresh = *fresh_link;
    *old_link = NULL;
    *fresh_link = NULL;
    return group;
}

/* Maps the new chunks in the place of the old ones, which are unmapped. */
static ms_status_t put_all(struct ms_pool *pool, struct ms_segment *segment, uint64_t first,
                           struct ms_chunk *fresh) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_OK;
    uint64_t slot = first;
    for (; fresh != NULL && status == MS_OK; fresh = fresh->next) {
        status = ms_backing_map(pool, segment, slot, fresh);
        slot += chunk_slots(pool, fresh);
    }
    return status == MS_OK ? ms_backing_give_access(pool, segment, first, slot) : status;
}

static struct ms_chunk *linked(struct ms_chunk *const *run, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        run[at]->next = at + 1 < count ? run[at + 1] : NULL;
    }
    return run[0];
}

static void tell(struct ms_pool *pool, enum ms_location to, const struct ms_segment *segment,
                 uint64_t from, uint64_t end, uint64_t *moved_bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t bytes = (end - from) * pool->granule_bytes;
    *moved_bytes += bytes;
    ms_move_record(pool, to, segment->base + from * pool->granule_bytes, bytes);
}

ms_status_t ms_exchange(struct ms_pool *pool, const struct ms_piece *piece, enum ms_location to,
                        uint64_t *moved_bytes)
{
    struct ms_segment *segment = piece->run[0]->segment;
    const uint64_t first = piece->run[0]->slot;
    const uint64_t end = first + piece->staged_to - piece->staged_from;
    uint64_t spilled = 0;
    for (size_t at = 0; at < piece->count; at++) {
        spilled |= (uint64_t)piece->run[at]->spilled << at;
    }
    ms_status_t status = ms_backing_unmap(pool, piece->run, piece->count);
    if (status != MS_OK) {
        ms_backing_add_spares(pool, piece->fresh);
        return status;
    }
    for (size_t at = 0; at < piece->count; at++) {
        ms_backing_clear(pool, piece->run[at]);
        piece->run[at]->segment = NULL;
    }
    struct ms_chunk *old = linked(piece->run, piece->count);
    struct ms_chunk *fresh = piece->fresh;
    status = put_all(pool, segment, first, fresh);
    if (status != MS_OK) {
        /* The device may refuse a chunk at two addresses. */
        (void)ms_move_unstage(pool, piece->staged_from, piece->staged_to);
    }
    for (uint64_t slot = first; slot < end;) {
        struct chunk_group group = next_group(pool, segment, slot, &old, &fresh);
        group.spilled = spilled;
        for (const struct ms_chunk *chunk = group.old; chunk != NULL; chunk = chunk->next) {
            spilled >>= 1;
        }
        slot = group.end;
        if (status == MS_OK) {
            went_on(pool, &group);
        } else if (settle(pool, &group)) {
            tell(pool, to, segment, group.slot, group.end, moved_bytes);
        }
    }
    if (status == MS_OK) {
        tell(pool, to, segment, first, end, moved_bytes);
    }
    return status;
}
