/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a partly used chunk at a second address for its free bytes: see views.h. */
#include "allocator/backing/views.h"
#include "allocator/backing/backing.h"
#include "allocator/base/arithmetic.h"
#include "allocator/pool_state.h"
#include "allocator/space/place.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

enum {
    RANGES_MOST = 256, /* idle ranges of a region that a search looks at */
    PIECES = 64        /* of either kind */
};

/* ---- pieces */

struct view_pieces {
    uint64_t granule;
    struct ms_view_piece ends[PIECES], begins[PIECES];
    size_t end_count, begin_count;
    unsigned visited;
};

/* Whether the chunk behind addr may be mapped once more: no part of it is lent yet, and no pinned
 * block lies on it. `range`: an idle range on the chunk. */
static bool may_view(const struct ms_pool *pool, const struct ms_range *range, ms_addr_t addr)
{
    const struct ms_segment *segment = range->segment;
    ms_addr_t begin = addr / pool->granule_bytes * pool->granule_bytes;
    ms_addr_t end = begin + pool->granule_bytes;
    const struct ms_chunk *chunk = segment->slots[(begin - segment->base) / pool->granule_bytes];
    if (chunk->bytes != pool->granule_bytes) {
        return false;
    }
    while (range->addr > begin) {
        range = range->prev;
    }
    for (; range != NULL && range->addr < end; range = range->next) {
        bool pinned = range->state == MS_RANGE_LIVE && range->pinned;
        if (pinned || (range->state != MS_RANGE_LIVE && range->state != MS_RANGE_FREE)) {
            return false;
        }
    }
    return true;
}

static void note_pieces(const struct ms_pool *pool, struct view_pieces *pieces,
                        struct ms_range *range)
{
    uint64_t granule = pool->granule_bytes;
    ms_addr_t end = range->addr + range->bytes;
    ms_addr_t first_end = ms_round_up(range->addr, granule);
    ms_addr_t last_begin = end / granule * granule;
    pieces->visited++;
    if (range->addr < first_end && first_end <= end && pieces->end_count < PIECES &&
        may_view(pool, range, range->addr)) {
        pieces->ends[pieces->end_count++] = (struct ms_view_piece){
            .range = range, .addr = range->addr, .bytes = first_end - range->addr};
    }
    if (last_begin < end && range->addr <= last_begin && pieces->begin_count < PIECES &&
        may_view(pool, range, last_begin)) {
        pieces->begins[pieces->begin_count++] =
            (struct ms_view_piece){.range = range, .addr = last_begin, .bytes = end - last_begin};
    }
}

static void find_pieces(const struct ms_pool *pool, const struct ms_bins *bins,
                        struct view_pieces *pieces)
{
    struct ms_range *range = ms_range_tree_at_least(bins->large, 0, 0);
    for (; range != NULL && pieces->visited < RANGES_MOST;
         range = ms_range_tree_after(bins->large, range)) {
        note_pieces(pool, pieces, range);
    }
    for (unsigned word = 0; word < MS_BIN_COUNT / 64; word++) {
        for (uint64_t map = bins->map[word]; map != 0; map &= map - 1) {
            range = bins->head[word * 64 + (unsigned)__builtin_ctzll(map)];
            for (; range != NULL && pieces->visited < RANGES_MOST; range = range->free.bin_next) {
                note_pieces(pool, pieces, range);
            }
        }
    }
}

/* ---- plans */

struct view_choice {
    uint64_t granule, whole, rest; /* the request: whole granules, and the bytes beyond them */
    struct ms_view_plan *best;
    uint64_t best_waste_bytes;
    unsigned best_maps; /* 0: there is no plan yet */
};

static void consider(struct view_choice *choice, const struct ms_view_plan *plan,
                     uint64_t waste_bytes)
{
    unsigned maps = (plan->head.bytes != 0 ? 1 : 0) + (plan->tail.bytes != 0 ? 1 : 0);
    bool better = choice->best_maps == 0 || plan->chunks < choice->best->chunks;
    if (!better && plan->chunks == choice->best->chunks) {
        better = maps != choice->best_maps ? maps < choice->best_maps
                                           : waste_bytes < choice->best_waste_bytes;
    }
    if (better) {
        *choice->best = *plan;
        choice->best_maps = maps;
        choice->best_waste_bytes = waste_bytes;
    }
}

/* Considers one piece for all of the rest. */
static void consider_single(struct view_choice *choice, const struct ms_view_piece *piece, bool end)
{
    if (piece->bytes < choice->rest) {
        return;
    }
    struct ms_view_piece used = *piece;
    used.bytes = choice->rest;
    if (end) {
        used.addr += piece->bytes - choice->rest;
    }
    struct ms_view_plan plan = {.chunks = choice->whole};
    *(end ? &plan.head : &plan.tail) = used;
    consider(choice, &plan, piece->bytes - choice->rest);
}

/* Considers a pair: the block begins with all of one piece and ends with as much of another as it
 * needs. */
static void consider_pair(struct view_choice *choice, const struct ms_view_piece *end,
                          const struct ms_view_piece *begin)
{
    bool one_chunk = end->addr / choice->granule == begin->addr / choice->granule;
    uint64_t sum_bytes = end->bytes + begin->bytes;
    bool two_less = choice->whole > 0 && sum_bytes >= choice->rest + choice->granule;
    uint64_t edges_bytes = choice->rest + (two_less ? choice->granule : 0);
    if (one_chunk || sum_bytes < edges_bytes || end->bytes >= edges_bytes) {
        return;
    }
    struct ms_view_plan plan = {
        .chunks = choice->whole - (two_less ? 1 : 0), .head = *end, .tail = *begin};
    plan.tail.bytes = edges_bytes - end->bytes;
    consider(choice, &plan, sum_bytes - edges_bytes);
}

bool ms_view_find(struct ms_pool *pool, uint64_t bytes, uint64_t most, struct ms_view_plan *out)
{
    uint64_t granule = pool->granule_bytes;
    /* A request of whole granules leaves no edge and needs none. */
    if (!pool->config.views || ms_region_of(pool, bytes) != MS_REGION_LARGE ||
        bytes % granule == 0) {
        return false;
    }
    struct view_pieces pieces = {.granule = granule};
    for (int region = 0; region < MS_REGIONS; region++) {
        pieces.visited = 0;
        find_pieces(pool, &pool->orders.idle.bins[region], &pieces);
    }
    *out = (struct ms_view_plan){0};
    struct view_choice choice = {
        .granule = granule, .whole = bytes / granule, .rest = bytes % granule, .best = out};
    for (size_t a = 0; a < pieces.end_count; a++) {
        consider_single(&choice, &pieces.ends[a], true);
        for (size_t b = 0; b < pieces.begin_count; b++) {
            consider_pair(&choice, &pieces.ends[a], &pieces.begins[b]);
        }
    }
    for (size_t b = 0; b < pieces.begin_count; b++) {
        consider_single(&choice, &pieces.begins[b], false);
    }
    if (choice.best_maps == 0 || out->chunks >= most) {
        return false;
    }
    struct ms_range *hole = ms_range_tree_at_least(pool->holes[MS_REGION_LARGE],
                                                   (out->chunks + choice.best_maps) * granule, 0);
    out->hole = hole;
    return hole != NULL;
}

/* ---- claims */

enum { NODES = 10 }; /* two for each of three cuts, one for each edge, and some to spare */

static struct ms_range *claim_piece(struct ms_pool *pool, const struct ms_view_piece *piece)
    MS_REQUIRES(ms_state_role)
{
    struct ms_range *range = piece->range;
    /* The other piece may have been cut off the beginning of the same range. */
    while (range->addr + range->bytes <= piece->addr) {
        range = range->next;
    }
    return ms_range_cut(pool, range, piece->addr, piece->addr + piece->bytes);
}

bool ms_view_claim(struct ms_pool *pool, const struct ms_view_plan *plan, struct ms_view *out)
{
    uint64_t granule = pool->granule_bytes;
    if (!ms_slab_reserve(&pool->range_slab, NODES)) {
        return false;
    }
    uint64_t granules =
        plan->chunks + (plan->head.bytes != 0 ? 1 : 0) + (plan->tail.bytes != 0 ? 1 : 0);
    ms_addr_t addr = plan->hole->addr;
    struct ms_range *block = ms_range_cut(pool, plan->hole, addr, addr + granules * granule);
    *out = (struct ms_view){.bytes = plan->chunks * granule};
    if (plan->head.bytes != 0) {
        out->head.lent = claim_piece(pool, &plan->head);
        out->head.beside = block;
        block = ms_range_split(pool, block, granule - plan->head.bytes);
    }
    if (plan->tail.bytes != 0) {
        out->tail.lent = claim_piece(pool, &plan->tail);
        out->tail.beside = ms_range_split(pool, block, block->bytes - (granule - plan->tail.bytes));
    }
    out->block = block;
    return true;
}

/* ---- backing */

static ms_status_t map_edge(struct ms_pool *pool, struct ms_view_edge *edge)
    MS_REQUIRES(ms_growth_role)
{
    const struct ms_range *lent = edge->lent;
    const struct ms_range *beside = edge->beside;
    struct ms_segment *segment = beside->segment;
    uint64_t slot = (beside->addr - segment->base) / pool->granule_bytes;
    struct ms_chunk *chunk =
        lent->segment->slots[(lent->addr - lent->segment->base) / pool->granule_bytes];
    struct ms_chunk *twin = ms_slab_take(&pool->chunk_slab);
    if (twin == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *twin = (struct ms_chunk){.handle = chunk->handle, .bytes = chunk->bytes};
    ms_status_t status = ms_backing_map(pool, segment, slot, twin);
    if (status != MS_OK) {
        ms_slab_give(&pool->chunk_slab, twin);
        return status;
    }
    twin->twin = chunk;
    chunk->twin = twin;
    edge->twin = twin;
    return ms_backing_give_access(pool, segment, slot, slot + 1);
}

/* Settles what both places have lent, and so completes the pair. State lock. */
static void settle_edge(struct ms_pool *pool, struct ms_view_edge *edge)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    struct ms_chunk *twin = edge->twin;
    if (twin == NULL || edge->lent == NULL) {
        return;
    }
    twin->lent = edge->beside;
    twin->twin->lent = edge->lent;
    edge->beside->state = MS_RANGE_LENT;
    edge->lent->state = MS_RANGE_LENT;
    twin->next = pool->views;
    pool->views = twin;
    pool->count.views++;
    pool->count.views_made++;
}

static void unmap_edge(struct ms_pool *pool, struct ms_view_edge *edge) MS_REQUIRES(ms_growth_role)
{
    struct ms_chunk *twin = edge->twin;
    if (twin == NULL) {
        return;
    }
    if (ms_backing_unmap(pool, &twin, 1) != MS_OK) {
        twin->stuck = true; /* lost, and with it the bytes that the first place has lent */
        return;
    }
    ms_backing_clear(pool, twin);
    twin->twin->twin = NULL;
    edge->twin = NULL;
    ms_slab_give(&pool->chunk_slab, twin);
}

/* The bytes kept in an edge's granule go with the block, unless the mapping is stuck. */
static struct ms_range *undo_edge(struct ms_pool *pool, struct ms_view_edge *edge,
                                  struct ms_range *block) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    if (edge->lent == NULL || edge->twin != NULL) {
        settle_edge(pool, edge);
        return block;
    }
    ms_range_make_free(pool, edge->lent, NULL);
    bool before = edge->beside->addr < block->addr;
    ms_range_absorb_next(pool, before ? edge->beside : block);
    return before ? edge->beside : block;
}

void ms_view_give_up(struct ms_pool *pool, struct ms_view *view)
{
    unmap_edge(pool, &view->head);
    unmap_edge(pool, &view->tail);
    ms_state_acquire(pool);
    struct ms_range *range = undo_edge(pool, &view->head, view->block);
    range = undo_edge(pool, &view->tail, range);
    ms_range_give_up(pool, range, NULL);
    ms_state_release(pool);
}

ms_status_t ms_view_back(struct ms_pool *pool, struct ms_view *view)
{
    ms_status_t status = view->head.lent != NULL ? map_edge(pool, &view->head) : MS_OK;
    if (status == MS_OK && view->tail.lent != NULL) {
        status = map_edge(pool, &view->tail);
    }
    if (status == MS_OK) {
        status = ms_backing_fill(pool, view->block, false);
    }
    if (status != MS_OK) {
        ms_view_give_up(pool, view);
        return status;
    }
    ms_state_acquire(pool);
    settle_edge(pool, &view->head);
    settle_edge(pool, &view->tail);
    ms_state_release(pool);
    return MS_OK;
}

/* ---- giving back */

/* The idle range that holds all bytes of this place; null: there is none. State lock. */
static struct ms_range *idle_part(const struct ms_pool *pool, const struct ms_chunk *chunk)
{
    ms_addr_t begin = chunk->segment->base + chunk->slot * pool->granule_bytes;
    ms_addr_t end = begin + pool->granule_bytes;
    bool behind = chunk->lent->addr == begin;
    struct ms_range *range = behind ? chunk->lent->next : chunk->lent->prev;
    bool idle = range != NULL && range->state == MS_RANGE_FREE && range->free.batch == NULL &&
                (behind ? range->addr + range->bytes >= end : range->addr <= begin);
    return idle ? range : NULL;
}

/* Takes all bytes of this place out of their idle range; null: they are not idle. */
static struct ms_range *take_place(struct ms_pool *pool, const struct ms_chunk *chunk)
{
    ms_addr_t begin = chunk->segment->base + chunk->slot * pool->granule_bytes;
    ms_addr_t end = begin + pool->granule_bytes;
    ms_state_acquire(pool);
    struct ms_range *own = chunk->stuck || chunk->twin->stuck ? NULL : idle_part(pool, chunk);
    if (own != NULL && ms_slab_reserve(&pool->range_slab, 2)) {
        bool behind = chunk->lent->addr == begin;
        own = ms_range_cut(pool, own, behind ? chunk->lent->addr + chunk->lent->bytes : begin,
                           behind ? end : chunk->lent->addr);
    } else {
        own = NULL;
    }
    ms_state_release(pool);
    return own;
}

/* Unmaps the place; its bytes become the twin's. False: they are in use, or the device refuses. */
static bool return_place(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
{
    struct ms_range *own = take_place(pool, chunk);
    if (own == NULL) {
        return false;
    }
    if (ms_backing_unmap(pool, &chunk, 1) != MS_OK) {
        ms_state_acquire(pool);
        ms_range_make_free(pool, own, NULL);
        ms_state_release(pool);
        return false;
    }
    ms_backing_clear(pool, chunk);
    struct ms_chunk *twin = chunk->twin;
    ms_state_acquire(pool);
    struct ms_range *hole = own->addr < chunk->lent->addr ? own : chunk->lent;
    ms_range_absorb_next(pool, hole);
    ms_range_make_hole(pool, hole);
    ms_range_make_free(pool, twin->lent, NULL);
    twin->twin = NULL;
    twin->lent = NULL;
    pool->count.views--;
    ms_state_release(pool);
    ms_slab_give(&pool->chunk_slab, chunk);
    return true;
}

bool ms_views_return(struct ms_pool *pool)
{
    bool any = false;
    struct ms_chunk **link = &pool->views;
    if (*link == NULL || ms_device_captures(pool->ops)) {
        return false;
    }
    while (*link != NULL) {
        struct ms_chunk *view = *link;
        struct ms_chunk *next = view->next;
        if (return_place(pool, view) || return_place(pool, view->twin)) {
            *link = next;
            any = true;
        } else {
            link = &view->next;
        }
    }
    return any;
}
