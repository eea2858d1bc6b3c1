/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a framework's fragmentation from below.
 *
 * A framework's allocator keeps segments (blocks of ours, or proxies in a reservation of its own)
 * and carves tensors out of them. It holds the untouched rest for later: memory that nobody uses
 * and nobody else can have. So when memory is short, the pool takes the chunks of such holes. It
 * puts chunks back when a tensor is allocated there again, before the framework hands the address
 * out. The program keeps its allocator, its addresses and every feature, and needs device memory
 * only for the granules that its live tensors touch.
 *
 *   what may be taken   a chunk all of whose granules are quiet (granules.h), with all work
 *                       done that was queued before the last frees there (epochs.c), in an arena
 *                       that no stream captured in, and whose identity nobody else knows
 *   which one           the one that is needed last, by the configured choice (choice.h); one right
 *                       behind a live tensor's end only when there is no other
 *   what it costs       an obligation (obligations.c): whatever is not backed can be backed again,
 *                       if need be by host memory
 *   an allocation       finds its granules backed, or backs them itself before it returns, with
 *                       chunks from (in this order) idle memory of the pool, the room kept in
 *                       the budget, other holes, holes whose work will be done in time, the host
 *   two at once         a chunk's slots are emptied under the state lock before the device unmaps
 *                       it: an allocation that comes meanwhile sees an unbacked granule, and waits
 *                       for the growth lock
 *
 * The pool takes nothing ahead of need. Neighbours go in one call, 4 to 12 chunks at once. So at a
 * cap of 1.02 x the peak of live bytes a step of the recorded jobs makes at most 6 calls to unmap:
 * 0.15 ms by the dry device's costs. Taking ahead could hide no more than that, and would have to
 * map again whatever it took in vain.
 *
 * While anything captures, the pool takes and queries no fence, and takes no holes for a block; an
 * allocation uses memory that is already known to be idle. Host chunks come back from under dead
 * granules first. */
#include <string.h>

#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/choice.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/victims.h"
#include "allocator/base/containers/pages.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

/* ---- which chunks there are to take */

enum fitness { NOT_TAKEABLE, TAKEABLE_LATER, TAKEABLE };

static uint64_t chunk_slots(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    return chunk->bytes / pool->granule_bytes;
}

/* State lock. The chunk's first slot must be quiet. */
static enum fitness fitness_of(const struct ms_pool *pool, const struct ms_segment *segment,
                               const struct ms_chunk *chunk)
{
    const struct ms_granule *first = &segment->granules[chunk->slot];
    if (first->arena->frozen || chunk->stuck) {
        return NOT_TAKEABLE;
    }
    enum fitness fitness = TAKEABLE;
    for (uint64_t slot = chunk->slot; slot < chunk->slot + chunk_slots(pool, chunk); slot++) {
        const struct ms_granule *granule = &segment->granules[slot];
        if (!ms_quiet_test(segment, slot) || granule->pinned || granule->arena != first->arena) {
            return NOT_TAKEABLE;
        }
        if (granule->epoch > pool->epochs.done) {
            fitness = TAKEABLE_LATER;
        }
    }
    return fitness;
}

static void describe(const struct ms_pool *pool, const struct ms_segment *segment,
                     const struct ms_chunk *chunk, struct ms_candidate *out)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_granule *granule = &segment->granules[chunk->slot];
    *out = (struct ms_candidate){.addr = segment->base + chunk->slot * pool->granule_bytes,
                                 .bytes = chunk->bytes,
                                 .arena = granule->arena->addr,
                                 .arena_bytes = granule->arena->bytes,
                                 .reach_bytes = granule->arena->reach_bytes,
                                 .now = pool->epochs.clock};
    /* Of several granules: the latest free, and the shortest time until one was needed again. */
    for (uint64_t k = 0; k < chunk_slots(pool, chunk); k++, granule++) {
        out->free_since = granule->since > out->free_since ? granule->since : out->free_since;
        if (granule->last_gap != 0 && (out->last_gap == 0 || granule->last_gap < out->last_gap)) {
            out->last_gap = granule->last_gap;
        }
    }
}

/* The next chunk at or after *slot that begins on a quiet granule; moves *slot past it. */
static struct ms_chunk *next_quiet(const struct ms_segment *segment, uint64_t *slot)
{
    while (*slot < segment->slot_count) {
        uint64_t word = segment->quiet[*slot / 64] & (UINT64_MAX << (*slot % 64));
        if (word == 0) {
            *slot = (*slot / 64 + 1) * 64;
            continue;
        }
        uint64_t at = *slot / 64 * 64 + (uint64_t)__builtin_ctzll(word);
        *slot = at + 1;
        struct ms_chunk *chunk = segment->slots[at];
        if (chunk->slot == at) {
            return chunk;
        }
    }
    return NULL;
}

/* Calls visit for each chunk that begins on a quiet granule, until it returns false. */
typedef bool (*visit_fn)(struct ms_pool *pool, struct ms_segment *segment, struct ms_chunk *chunk,
                         void *ctx);

static void for_each_quiet(struct ms_pool *pool, visit_fn visit, void *ctx)
    MS_REQUIRES(ms_state_role)
{
    for (size_t at = 0; pool->count.quiet_granules > 0 && at < pool->segment_count; at++) {
        struct ms_segment *segment = pool->segments[at];
        uint64_t slot = 0;
        struct ms_chunk *chunk = NULL;
        while (segment->granules != NULL && (chunk = next_quiet(segment, &slot)) != NULL) {
            if (!visit(pool, segment, chunk, ctx)) {
                return;
            }
        }
    }
}

uint64_t ms_holes_takeable_at(const struct ms_pool *pool, const struct ms_segment *segment,
                              uint64_t slot)
{
    const struct ms_chunk *chunk = segment->slots[slot];
    bool takeable = !pool->frozen && ms_quiet_test(segment, slot) && chunk->slot == slot &&
                    !chunk->host && fitness_of(pool, segment, chunk) == TAKEABLE;
    return takeable ? chunk->bytes : 0;
}

struct tally {
    uint64_t enough_bytes, takeable_bytes;
    bool pending;
};

static bool count_one(struct ms_pool *pool, struct ms_segment *segment, struct ms_chunk *chunk,
                      void *ctx)
{
    struct tally *tally = ctx;
    enum fitness fitness = chunk->host ? NOT_TAKEABLE : fitness_of(pool, segment, chunk);
    tally->takeable_bytes += fitness == TAKEABLE ? chunk->bytes : 0;
    tally->pending = tally->pending || fitness == TAKEABLE_LATER;
    return tally->takeable_bytes < tally->enough_bytes;
}

uint64_t ms_holes_takeable(struct ms_pool *pool, uint64_t enough_bytes, bool *pending)
{
    struct tally tally = {.enough_bytes = enough_bytes};
    ms_state_acquire(pool);
    if (!pool->frozen) {
        for_each_quiet(pool, count_one, &tally);
    }
    ms_state_release(pool);
    if (pending != NULL) {
        *pending = tally.pending;
    }
    return tally.takeable_bytes;
}

static bool count_in_time(struct ms_pool *pool, struct ms_segment *segment, struct ms_chunk *chunk,
                          void *ctx)
{
    uint64_t *bytes = ctx;
    bool could = !chunk->host && fitness_of(pool, segment, chunk) != NOT_TAKEABLE;
    *bytes += could ? chunk->bytes : 0;
    return true;
}

uint64_t ms_holes_takeable_in_time(struct ms_pool *pool)
{
    uint64_t bytes = 0;
    if (!pool->frozen) {
        for_each_quiet(pool, count_in_time, &bytes);
    }
    return bytes;
}

/* ---- victims */

/* A host chunk of one granule becomes cover for the hole that it leaves; a larger one does not. */
enum slot_kind { ON_DEVICE, ON_HOST, LARGE_ON_HOST };

static enum slot_kind kind_of(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    if (!chunk->host) {
        return ON_DEVICE;
    }
    return chunk->bytes == pool->granule_bytes ? ON_HOST : LARGE_ON_HOST;
}

struct victims {
    const struct ms_choice *choice;
    enum slot_kind kind;
    struct ms_victim *heap;
    size_t count, room;
};

static bool collect_one(struct ms_pool *pool, struct ms_segment *segment, struct ms_chunk *chunk,
                        void *ctx) MS_REQUIRES(ms_state_role)
{
    struct victims *victims = ctx;
    if (kind_of(pool, chunk) != victims->kind || fitness_of(pool, segment, chunk) != TAKEABLE) {
        return true;
    }
    struct ms_candidate candidate;
    describe(pool, segment, chunk, &candidate);
    victims->heap[victims->count++] =
        (struct ms_victim){.rank = victims->choice->rank(victims->choice->ctx, &candidate),
                           .behind_live = segment->granules[chunk->slot].ends_before > 0,
                           .chunk = chunk};
    return victims->count < victims->room;
}

/* Makes room for every quiet granule; for fewer if the host has no memory. */
static void make_room(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    ms_state_acquire(pool);
    size_t wanted = pool->count.quiet_granules + 64;
    ms_state_release(pool);
    ms_victims_need(pool, wanted);
}

/* Empties the slots of the best chunks, for enough_bytes (large ones on the host: not beyond that)
 * or all. Lists the chunks by `next`. */
static struct ms_chunk *detach(struct ms_pool *pool, uint64_t enough_bytes, enum slot_kind kind)
    MS_REQUIRES(ms_growth_role)
{
    make_room(pool);
    struct ms_choice const *choice =
        pool->config.choice != NULL ? pool->config.choice : &ms_choice_default;
    struct victims victims = {
        .choice = choice, .kind = kind, .heap = pool->victims.heap, .room = pool->victims.room};
    if (victims.room == 0) {
        return NULL;
    }
    struct ms_chunk *list = NULL;
    uint64_t bytes = 0;
    ms_state_acquire(pool);
    for_each_quiet(pool, collect_one, &victims);
    ms_victims_order(victims.heap, victims.count);
    while (victims.count > 0 && bytes < enough_bytes) {
        struct ms_chunk *chunk = ms_victims_pop(victims.heap, &victims.count).chunk;
        uint64_t slots = chunk_slots(pool, chunk);
        if (kind == LARGE_ON_HOST && chunk->bytes > enough_bytes - bytes) {
            continue;
        }
        ms_granules_unbacked(pool, chunk->segment, chunk->slot, chunk->slot + slots);
        memset(&chunk->segment->slots[chunk->slot], 0, ms_pointers_bytes(slots));
        ms_granules_place(pool, chunk->segment, chunk->slot, chunk->slot + slots, NULL);
        chunk->next = list;
        list = chunk;
        bytes += chunk->bytes;
    }
    ms_state_release(pool);
    return list;
}

/* Puts the chunk back at its slots, because the device refused to unmap it. */
static void attach_again(struct ms_pool *pool, struct ms_chunk *chunk)
{
    uint64_t slots = chunk_slots(pool, chunk);
    ms_state_acquire(pool);
    for (uint64_t k = 0; k < slots; k++) {
        chunk->segment->slots[chunk->slot + k] = chunk;
    }
    ms_granules_place(pool, chunk->segment, chunk->slot, chunk->slot + slots, chunk);
    ms_granules_backed(pool, chunk->segment, chunk->slot, chunk->slot + slots);
    ms_state_release(pool);
}

ms_status_t ms_holes_unmap(struct ms_pool *pool, struct ms_chunk *list, uint64_t *taken_bytes,
                           uint64_t *chunks)
{
    ms_status_t status = MS_OK;
    list = ms_chunks_by_address(list); /* so that neighbours go in one call */
    while (list != NULL) {
        struct ms_chunk *run[MS_RUN_CHUNKS];
        size_t count = ms_chunks_take_run(pool, &list, UINT64_MAX, run);
        if (status == MS_OK) {
            status = ms_backing_unmap(pool, run, count);
        }
        for (size_t at = 0; at < count; at++) {
            if (status == MS_OK) {
                *taken_bytes += run[at]->bytes;
                *chunks += 1;
                ms_backing_add_spare(pool, run[at]);
            } else {
                attach_again(pool, run[at]);
            }
        }
    }
    return status;
}

bool ms_holes_frozen(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    const bool frozen = pool->frozen;
    ms_state_release(pool);
    return frozen;
}

ms_status_t ms_holes_take(struct ms_pool *pool, uint64_t enough_bytes, uint64_t *taken_bytes)
{
    if (enough_bytes == 0 || ms_holes_frozen(pool)) {
        return MS_OK;
    }
    uint64_t chunks = 0;
    ms_status_t status =
        ms_holes_unmap(pool, detach(pool, enough_bytes, ON_DEVICE), taken_bytes, &chunks);
    ms_state_acquire(pool);
    pool->count.holes_taken += chunks;
    ms_state_release(pool);
    return status;
}

/* ---- for blocks */

uint64_t ms_holes_room(struct ms_pool *pool, uint64_t bytes)
{
    uint64_t room = ms_obligations_room(pool);
    room += room < bytes ? ms_holes_takeable(pool, bytes - room, NULL) : 0;
    uint64_t on_host = ms_obligations_host_room(pool);
    room = room < on_host ? room : on_host;
    room -= room % pool->granule_bytes;
    return room < bytes ? room : bytes;
}

ms_status_t ms_holes_make_room(struct ms_pool *pool, uint64_t bytes, uint64_t *taken_bytes)
{
    uint64_t over = ms_obligations_overshoot(pool);
    if (ms_obligations_host_room(pool) < bytes) {
        return MS_ERR_NO_MEMORY;
    }
    uint64_t earmarked = ms_obligations_room(pool);
    uint64_t from_holes = bytes > earmarked ? bytes - earmarked : 0;
    if (from_holes > 0 && ms_holes_takeable(pool, from_holes, NULL) < from_holes) {
        ms_epochs_fence(pool);
        ms_epochs_poll(pool);
        if (ms_holes_takeable(pool, from_holes, NULL) < from_holes) {
            return MS_ERR_NO_MEMORY;
        }
    }
    /* Earmarked room costs no unmapping. Bytes earmarked beyond the limit are not room. */
    uint64_t released = ms_obligations_to_host(pool, bytes + over);
    uint64_t freed = released > over ? released - over : 0;
    if (freed >= bytes) {
        return MS_OK;
    }
    ms_status_t status = ms_obligations_secure(pool, bytes - freed, false);
    if (status == MS_OK) {
        status = ms_holes_take(pool, bytes - freed, taken_bytes);
    }
    /* Chunks may have been larger than their secured bytes. */
    return status == MS_OK ? ms_obligations_secure(pool, 0, true) : status;
}

static bool count_large(struct ms_pool *pool, struct ms_segment *segment, struct ms_chunk *chunk,
                        void *ctx)
{
    uint64_t *bytes = ctx;
    if (kind_of(pool, chunk) == LARGE_ON_HOST && fitness_of(pool, segment, chunk) == TAKEABLE) {
        *bytes += chunk->bytes;
    }
    return true;
}

static uint64_t large_on_host(struct ms_pool *pool)
{
    uint64_t bytes = 0;
    ms_state_acquire(pool);
    for_each_quiet(pool, count_large, &bytes);
    ms_state_release(pool);
    return bytes;
}

void ms_holes_recover(struct ms_pool *pool)
{
    if (ms_pool_count_of_growth(pool)->host_backed_bytes == 0) {
        return;
    }
    ms_epochs_fence(pool);
    ms_epochs_poll(pool);
    ms_holes_drain(pool);
    if (!ms_holes_frozen(pool)) {
        uint64_t bytes = 0;
        uint64_t chunks = 0;
        (void)ms_holes_unmap(pool, detach(pool, UINT64_MAX, ON_HOST), &bytes, &chunks);
        uint64_t large_bytes = large_on_host(pool);
        if (large_bytes > 0 && ms_obligations_secure(pool, large_bytes, true) == MS_OK) {
            (void)ms_holes_unmap(pool, detach(pool, large_bytes, LARGE_ON_HOST), &bytes, &chunks);
        }
    }
}

void ms_holes_forget(struct ms_pool *pool)
{
    struct ms_victims *victims = &pool->victims;
    if (victims->heap != NULL) {
        ms_pages_unmap(victims->heap, victims->room * sizeof(*victims->heap));
        victims->heap = NULL;
    }
}
