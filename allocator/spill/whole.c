/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a page in parts whole again, because somebody needs it as one chunk.
 *
 * It makes the new chunk and maps it aside while everything runs on. The device then stands still
 * for the copy and the exchange. Both hold the contents during that: if a step fails, either will
 * do, in turn, as in exchange.c. */
#include "allocator/spill/whole.h"
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/chunks.h"
#include "allocator/backing/wait.h"
#include "allocator/pool_state.h"
#include "allocator/spill/move.h"
#include "allocator/spill/spill.h"

/* Each turn makes at least two calls: enough for forty refusals in a row. */
enum { TURNS = 24 };

struct whole_place {
    struct ms_segment *segment;
    uint64_t from, to;
    struct ms_chunk *parts; /* unmapped, linked by `next` */
    struct ms_chunk *whole;
};

static uint64_t bytes_of(const struct ms_pool *pool, const struct whole_place *place)
{
    return (place->to - place->from) * pool->granule_bytes;
}

/* The chunks in the slots, linked by `next`. The new chunk has no place for host chunks that could
 * not come back: the device has no room. */
static ms_status_t collect(struct whole_place *place)
{
    struct ms_chunk **link = &place->parts;
    for (uint64_t slot = place->from; slot < place->to; slot++) {
        struct ms_chunk *chunk = place->segment->slots[slot];
        if (chunk == NULL || chunk->slot != slot) {
            continue;
        }
        if (chunk->stuck || chunk->twin != NULL) {
            return MS_ERR_NOT_SUPPORTED;
        }
        if (chunk->host) {
            return MS_ERR_NO_MEMORY;
        }
        *link = chunk;
        link = &chunk->next;
    }
    *link = NULL;
    return MS_OK;
}

/* ---- room */

/* Makes the new chunk. It may use bytes earmarked for holes: the old chunks are released once it
 * has taken their place, and nobody else gets room before. */
static ms_status_t make(struct ms_pool *pool, struct whole_place *place, const void *properties)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t taken_bytes = 0;
    const uint64_t bytes = bytes_of(pool, place);
    (void)ms_backing_release_spares(pool);
    ms_status_t status = ms_backing_chunk_make(pool, bytes, true, properties, &place->whole);
    if (status == MS_ERR_NO_MEMORY) {
        ms_work_fence(pool);
        ms_work_poll(pool);
        (void)ms_backing_unmap_idle(pool, bytes, &taken_bytes);
        if (taken_bytes < bytes) {
            (void)ms_holes_take(pool, bytes - taken_bytes, &taken_bytes);
        }
        (void)ms_backing_release_spares(pool);
        status = ms_backing_chunk_make(pool, bytes, true, properties, &place->whole);
    }
    if (status == MS_ERR_NO_MEMORY && ms_spill_possible(pool)) {
        const struct ms_spill_need need = {.bytes = bytes};
        (void)ms_spill_make_room(pool, &need, &taken_bytes);
        (void)ms_backing_release_spares(pool);
        status = ms_backing_chunk_make(pool, bytes, true, properties, &place->whole);
    }
    return status;
}

/* ---- aside */

static ms_status_t take_off(struct ms_pool *pool, struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = ms_backing_unmap(pool, &chunk, 1);
    if (status == MS_OK) {
        ms_backing_clear(pool, chunk);
        chunk->segment = NULL;
    }
    return status;
}

static ms_status_t put_aside(struct ms_pool *pool, struct ms_chunk *whole)
    MS_REQUIRES(ms_growth_role)
{
    const uint64_t slots = whole->bytes / pool->granule_bytes;
    ms_status_t status = ms_move_need_staging(pool, whole->bytes);
    if (status == MS_OK) {
        status = ms_backing_map(pool, pool->moving.staging, 0, whole);
    }
    return status == MS_OK ? ms_backing_give_access(pool, pool->moving.staging, 0, slots) : status;
}

/* If it cannot be unmapped it is lost, and so are its staging addresses. */
static void give_up_new(struct ms_pool *pool, struct ms_chunk *whole) MS_REQUIRES(ms_growth_role)
{
    if (whole->segment != NULL && take_off(pool, whole) != MS_OK) {
        ms_backing_stick(pool, whole);
        pool->moving.broken = true;
        return;
    }
    ms_backing_add_spare(pool, whole);
}

/* ---- exchange */

static bool put_new(struct ms_pool *pool, struct whole_place *place) MS_REQUIRES(ms_growth_role)
{
    for (struct ms_chunk *part = place->parts; part != NULL; part = part->next) {
        if (part->segment != NULL && take_off(pool, part) != MS_OK) {
            return false;
        }
    }
    if (place->whole->segment == NULL &&
        ms_backing_map(pool, place->segment, place->from, place->whole) != MS_OK) {
        return false;
    }
    return ms_backing_give_access(pool, place->segment, place->from, place->to) == MS_OK;
}

static bool put_old(struct ms_pool *pool, struct whole_place *place) MS_REQUIRES(ms_growth_role)
{
    const uint64_t granule = pool->granule_bytes;
    if (place->whole->segment != NULL && take_off(pool, place->whole) != MS_OK) {
        return false;
    }
    for (struct ms_chunk *part = place->parts; part != NULL; part = part->next) {
        if (part->segment == NULL &&
            ms_backing_map(pool, place->segment, part->slot, part) != MS_OK) {
            return false;
        }
        if (ms_backing_give_access(pool, place->segment, part->slot,
                                   part->slot + part->bytes / granule) != MS_OK) {
            return false;
        }
    }
    return true;
}

static void add_spares(struct ms_pool *pool, struct ms_chunk *list) MS_REQUIRES(ms_growth_role)
{
    ms_backing_add_spares(pool, list);
    (void)ms_backing_release_spares(pool);
}

/* The device keeps refusing both sides. A chunk that is mapped and not accessible is stuck. */
static void lose(struct ms_pool *pool, struct whole_place *place) MS_REQUIRES(ms_growth_role)
{
    pool->moving.broken = true;
    for (uint64_t slot = place->from; slot < place->to; slot++) {
        struct ms_chunk *stuck = place->segment->slots[slot];
        if (stuck != NULL) {
            stuck->stuck = true;
        }
        ms_backing_lose(pool, place->segment, slot, stuck);
    }
    while (place->parts != NULL) {
        struct ms_chunk *part = place->parts;
        place->parts = part->next;
        if (part->segment == NULL) {
            ms_backing_add_spare(pool, part);
        }
    }
    if (place->whole->segment == NULL) {
        ms_backing_add_spare(pool, place->whole);
    }
}

static ms_status_t exchange(struct ms_pool *pool, struct whole_place *place)
    MS_REQUIRES(ms_growth_role)
{
    for (int turn = 0; turn < TURNS; turn++) {
        if (put_new(pool, place)) {
            add_spares(pool, place->parts);
            return MS_OK;
        }
        if (put_old(pool, place)) {
            give_up_new(pool, place->whole);
            return MS_ERR_NO_MEMORY;
        }
    }
    lose(pool, place);
    return MS_ERR_NO_MEMORY;
}

/* ---- all of it */

/* The device stands still. */
static ms_status_t move(struct ms_pool *pool, struct whole_place *place) MS_REQUIRES(ms_growth_role)
{
    const struct ms_segment *aside = pool->moving.staging;
    ms_status_t status = MS_OK;
    for (const struct ms_chunk *part = place->parts; part != NULL && status == MS_OK;
         part = part->next) {
        status = ms_move_copy(pool, aside->base + (part->slot - place->from) * pool->granule_bytes,
                              place->segment->base + part->slot * pool->granule_bytes, part->bytes);
    }
    if (status == MS_OK) {
        status = take_off(pool, place->whole);
    }
    if (status != MS_OK) {
        give_up_new(pool, place->whole);
        return status;
    }
    return exchange(pool, place);
}

ms_status_t ms_spill_make_whole(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to, const void *properties)
{
    struct whole_place place = {.segment = segment, .from = from, .to = to};
    if (pool->ops->halt == NULL || pool->moving.broken) {
        return MS_ERR_NOT_SUPPORTED;
    }
    if (ms_device_captures(pool->ops)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = make(pool, &place, properties);
    if (status != MS_OK) {
        return status;
    }
    status = collect(&place);
    if (status == MS_OK) {
        status = put_aside(pool, place.whole);
    }
    if (status == MS_OK) {
        status = ms_move_hold(pool, MS_LOCATION_DEVICE);
    }
    if (status != MS_OK) {
        give_up_new(pool, place.whole);
        (void)ms_backing_release_spares(pool);
        return status == MS_ERR_NOT_READY ? MS_ERR_NO_MEMORY : status;
    }
    status = move(pool, &place);
    ms_move_let_go(pool);
    (void)ms_backing_release_spares(pool);
    return status > 0 || status == MS_OK ? status : MS_ERR_NO_MEMORY;
}
