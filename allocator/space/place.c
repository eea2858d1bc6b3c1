/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: chooses where a request goes.
 *
 * Addresses are plentiful and chunks move, so a placement wastes only the free bytes in chunks that
 * some live block touches. Three rules keep these few:
 *
 *   - Small blocks, and tiny ones, lie in regions of their own: otherwise one long-lived tensor of
 *     512 bytes would hold a chunk that a large one has left. Within them best fit is enough.
 *   - Between two live large blocks lies a gap: free memory, holes, or both. Its first and last
 *     chunk may be shared with the blocks around it. A request goes to the beginning or to the end
 *     of a gap, wherever it touches the fewest chunks that no live block touches yet; of equal
 *     places to the one that needs the fewest driver calls, then to the tightest gap. An exact fit
 *     of a whole gap ends the search.
 *   - Requests of whole granules lie on whole granules: they leave no edge behind.
 *
 * While memory is ample the search considers backed gaps only, to save driver calls. From
 * TIGHT_PART on it considers holes too, and an unbacked place must save more than BACKING_COST
 * chunks. Without that, one of 25 recorded jobs needs 1.035 instead of 1.002.
 *
 * Smallest cap over peak live bytes, by `memshim replay --mode tensor --min-cap` over tests/traces:
 *
 *   best fit, the beginning of gaps, one region, chunks of 32 MiB    median 1.016, at most 1.067
 *   these rules                                                      median 1.005, at most 1.012
 *
 * Memory freed as cudaFree does is in no stream's order, and its work is mostly done. So a request
 * in the device's order queries its fences before it takes a place that costs a chunk, or cuts a
 * range while memory is tight. Four recorded jobs, replayed with such calls, then need 1.0052,
 * 1.0018, 1.0058 and 1.0044 instead of 1.0102, 1.0027, 1.0050 and 1.0100; with calls in stream
 * order they need 1.0072, 1.0018, 1.0072 and 1.0061.
 *
 * On other recordings a third region, of tiny blocks, took a mixture of experts from 1.015 to 1.006
 * and cost a job of 1.2 GiB one chunk or two; keeping exact fits of a part of a gap cost up to 1 %.
 * When memory is short, a job of fixed shapes may still move chunks in each step, if its blocks get
 * other places than in the step before. */
#include "allocator/space/place.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/orders.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

enum {
    CANDIDATES = 8,   /* of each set; 400 gave the same ratios */
    REACH = 16,       /* ranges to join into a gap, on each side */
    TIGHT_PART = 4,   /* tight: less than this part of the cap is free */
    BACKING_COST = 2, /* in chunks: what a place that needs driver calls must save */
};

#define TINY_LIMIT_BYTES ((uint64_t)64 << 10)

enum ms_region ms_region_of(const struct ms_pool *pool, uint64_t bytes)
{
    if (bytes >= MS_LARGE_BYTES || pool->granule_bytes == 0) {
        return MS_REGION_LARGE;
    }
    return bytes < TINY_LIMIT_BYTES ? MS_REGION_TINY : MS_REGION_SMALL;
}

bool ms_place_tight(const struct ms_pool *pool)
{
    const struct ms_budget *budget = pool->config.budget;
    return ms_budget_free_bytes(budget) < ms_budget_limit_bytes(budget) / TIGHT_PART;
}

/* ---- gaps */

struct space_gap {
    struct ms_range *first;
    ms_addr_t begin, end;
};

static bool joinable(const struct ms_range *range, ms_stream_t stream, bool holes_too)
    MS_REQUIRES(ms_state_role)
{
    return range != NULL &&
           (ms_range_usable(range, stream) || (holes_too && range->state == MS_RANGE_HOLE));
}

static struct space_gap gap_around(struct ms_range *range, ms_stream_t stream, bool holes_too)
    MS_REQUIRES(ms_state_role)
{
    struct ms_range *first = range;
    struct ms_range *last = range;
    for (int k = 0; k < REACH && joinable(first->prev, stream, holes_too); k++) {
        first = first->prev;
    }
    for (int k = 0; k < REACH && joinable(last->next, stream, holes_too); k++) {
        last = last->next;
    }
    return (struct space_gap){
        .first = first, .begin = first->addr, .end = last->addr + last->bytes};
}

static bool closed_by(const struct ms_range *neighbour)
{
    return neighbour == NULL ||
           (neighbour->state != MS_RANGE_FREE && neighbour->state != MS_RANGE_HOLE);
}

static bool whole_gap(const struct ms_range *range)
{
    return closed_by(range->prev) && closed_by(range->next);
}

/* ---- the search */

struct place_search {
    uint64_t granule, bytes;
    unsigned granule_shift; /* log2 of the granule's bytes: a division costs as much as all else of
                               a candidate */
    ms_stream_t stream;
    bool holes_too;
    struct ms_placement *best;
    uint64_t best_cost; /* in chunks; UINT64_MAX: nothing found yet */
    uint64_t best_gap_bytes;
};

static inline bool on_chunk(const struct place_search *search, ms_addr_t addr)
{
    return (addr & (search->granule - 1)) == 0;
}

/* Chunks that the request at `addr` would touch and no neighbour of the gap touches. */
static uint64_t new_chunks(const struct place_search *search, const struct space_gap *gap,
                           ms_addr_t addr)
{
    const unsigned shift = search->granule_shift;
    uint64_t first = addr >> shift;
    uint64_t last = (addr + search->bytes - 1) >> shift;
    bool left_shared = !on_chunk(search, gap->begin) && first == gap->begin >> shift;
    bool right_shared = !on_chunk(search, gap->end) && last == gap->end >> shift;
    uint64_t shared = (left_shared ? 1u : 0u) + (right_shared ? 1u : 0u);
    uint64_t touched = last - first + 1;
    return touched > shared ? touched - shared : 0;
}

/* Bytes of the place without backing. */
static uint64_t unbacked_bytes(const struct place_search *search, const struct ms_placement *place)
{
    uint64_t sum_bytes = 0;
    ms_addr_t begin = place->addr & ~(search->granule - 1);
    ms_addr_t end = ms_round_up(place->addr + search->bytes, search->granule);
    for (const struct ms_range *at = place->first; at != NULL && at->addr < end; at = at->next) {
        ms_addr_t from = at->addr > begin ? at->addr : begin;
        ms_addr_t to = at->addr + at->bytes < end ? at->addr + at->bytes : end;
        if (at->state == MS_RANGE_HOLE && from < to) {
            sum_bytes += to - from;
        }
    }
    return sum_bytes;
}

static void consider_at(struct place_search *search, const struct space_gap *gap, ms_addr_t addr)
{
    struct ms_placement place = {.first = gap->first, .addr = addr};
    place.unbacked_bytes = search->holes_too ? unbacked_bytes(search, &place) : 0;
    place.new_chunks = new_chunks(search, gap, addr);
    uint64_t cost = place.new_chunks + (place.unbacked_bytes != 0 ? BACKING_COST : 0);
    uint64_t gap_bytes = gap->end - gap->begin;
    bool better = cost < search->best_cost;
    if (cost == search->best_cost) {
        better = place.unbacked_bytes != search->best->unbacked_bytes
                     ? place.unbacked_bytes < search->best->unbacked_bytes
                     : gap_bytes < search->best_gap_bytes;
    }
    if (better) {
        *search->best = place;
        search->best_cost = cost;
        search->best_gap_bytes = gap_bytes;
    }
}

static void consider(struct place_search *search, struct ms_range *range) MS_REQUIRES(ms_state_role)
{
    struct space_gap gap = gap_around(range, search->stream, search->holes_too);
    bool whole = on_chunk(search, search->bytes);
    ms_addr_t low = whole ? ms_round_up(gap.begin, search->granule) : gap.begin;
    if (low + search->bytes > gap.end) {
        return;
    }
    consider_at(search, &gap, low);
    /* If the gap ends on a chunk's end, that end is no better than the beginning. */
    if (!whole && !on_chunk(search, gap.end)) {
        consider_at(search, &gap, gap.end - search->bytes);
    }
}

/* Whether this range and larger ones offer nothing better: the best place already touches as few
 * chunks as possible, with both its edges shared, and their gaps are no tighter. */
static bool settled(const struct place_search *search, const struct ms_range *range)
{
    uint64_t least = ms_round_up(search->bytes, search->granule) >> search->granule_shift;
    least = least > 2 ? least - 2 : 0;
    return search->best_cost == least && search->best->unbacked_bytes == 0 &&
           range->bytes >= search->best_gap_bytes;
}

/* Considers the tightest ranges that have room, or nearly; then the largest of the others, which
 * need room from their neighbours. */
static void consider_tree(struct place_search *search, struct ms_treap_node *root,
                          uint64_t room_bytes) MS_REQUIRES(ms_state_role)
{
    struct ms_range *from = ms_range_tree_at_least(root, room_bytes, 0);
    struct ms_range *range = from;
    for (int k = 0; k < CANDIDATES && range != NULL && !settled(search, range); k++) {
        consider(search, range);
        range = ms_range_tree_after(root, range);
    }
    range = from != NULL ? ms_range_tree_before(root, from) : ms_range_tree_last(root);
    for (int k = 0; k < CANDIDATES && range != NULL; k++) {
        consider(search, range);
        range = ms_range_tree_before(root, range);
    }
}

bool ms_place_best(struct ms_pool *pool, ms_stream_t stream, uint64_t bytes, bool holes_too,
                   struct ms_placement *out)
{
    enum ms_region region = ms_region_of(pool, bytes);
    *out = (struct ms_placement){0};
    struct place_search search = {.granule = pool->granule_bytes,
                                  .bytes = bytes,
                                  .granule_shift = (unsigned)__builtin_ctzll(pool->granule_bytes),
                                  .stream = stream,
                                  .holes_too = holes_too,
                                  .best = out,
                                  .best_cost = UINT64_MAX};
    struct ms_order *own =
        stream == MS_STREAM_DEVICE ? NULL : ms_orders_find(&pool->orders, stream);
    consider_tree(&search, pool->orders.idle.bins[region].large, bytes);
    if (own != NULL) {
        consider_tree(&search, own->bins[region].large, bytes);
    }
    if (holes_too) {
        /* The edges around a hole may add almost two granules to it. */
        uint64_t edges_bytes = 2 * pool->granule_bytes;
        struct ms_treap_node *holes = pool->holes[region];
        consider_tree(&search, holes, bytes > edges_bytes ? bytes - edges_bytes : 0);
        if (holes != NULL) {
            consider(&search, ms_range_tree_last(holes));
        }
    }
    return search.best_cost != UINT64_MAX;
}

bool ms_place_fresh(struct ms_pool *pool, uint64_t bytes, struct ms_placement *out)
{
    uint64_t new_bytes = ms_round_up(bytes, pool->granule_bytes);
    struct ms_treap_node *holes = pool->holes[ms_region_of(pool, bytes)];
    struct ms_range *hole = ms_range_tree_at_least(holes, new_bytes, 0);
    if (hole == NULL) {
        return false;
    }
    *out = (struct ms_placement){.first = hole,
                                 .addr = hole->addr,
                                 .unbacked_bytes = new_bytes,
                                 .new_chunks = new_bytes / pool->granule_bytes};
    return true;
}

/* ---- claims */

static void give_back(struct ms_pool *pool, struct ms_range *range, bool hole,
                      struct ms_batch *batch) MS_REQUIRES(ms_state_role)
{
    if (hole) {
        ms_range_make_hole(pool, range);
    } else {
        ms_range_make_free(pool, range, batch);
    }
}

static inline struct ms_range *cut(struct ms_pool *pool, struct ms_range *range, ms_addr_t from,
                                   ms_addr_t to) MS_REQUIRES(ms_state_role)
{
    bool hole = range->state == MS_RANGE_HOLE;
    struct ms_batch *batch = hole ? NULL : range->free.batch;
    ms_range_take(pool, range);
    if (from > range->addr) {
        struct ms_range *before = range;
        range = ms_range_split(pool, before, from - before->addr);
        give_back(pool, before, hole, batch);
    }
    if (range->addr + range->bytes > to) {
        give_back(pool, ms_range_split(pool, range, to - range->addr), hole, batch);
    }
    return range;
}

struct ms_range *ms_range_cut(struct ms_pool *pool, struct ms_range *range, ms_addr_t from,
                              ms_addr_t to)
{
    return cut(pool, range, from, to);
}

struct ms_range *ms_place_claim(struct ms_pool *pool, const struct ms_placement *place,
                                uint64_t bytes, bool *idle)
{
    if (!ms_slab_reserve(&pool->range_slab, 2)) {
        return NULL;
    }
    ms_addr_t end = place->addr + bytes;
    struct ms_range *range = place->first;
    while (range->addr + range->bytes <= place->addr) {
        range = range->next;
    }
    struct ms_range *claim = NULL;
    *idle = true;
    for (;;) {
        uint64_t unit = range->state == MS_RANGE_HOLE ? pool->granule_bytes : 1;
        *idle = *idle && (range->state == MS_RANGE_HOLE || range->free.batch == NULL);
        range = cut(pool, range, place->addr & ~(unit - 1), ms_round_up(end, unit));
        if (claim == NULL) {
            claim = range;
        } else {
            ms_range_absorb_next(pool, claim);
        }
        if (claim->addr + claim->bytes >= end) {
            return claim;
        }
        range = claim->next;
    }
}

/* ---- reuse */

static struct ms_range *best_fit(struct ms_pool *pool, ms_stream_t stream, uint64_t bytes,
                                 enum ms_region region)
{
    /* Prefers the stream's own memory to idle memory, which would serve everybody. */
    const struct ms_order *own =
        stream != MS_STREAM_DEVICE ? ms_orders_find(&pool->orders, stream) : NULL;
    struct ms_range *best = own != NULL ? ms_bins_best(&own->bins[region], bytes) : NULL;
    if (best == NULL || best->bytes != bytes) {
        struct ms_range *idle = ms_bins_best(&pool->orders.idle.bins[region], bytes);
        if (idle != NULL && (best == NULL || idle->bytes < best->bytes)) {
            best = idle;
        }
    }
    return best;
}

bool ms_place_awaits(const struct ms_pool *pool, const struct ms_request *request)
{
    return request->stream == MS_STREAM_DEVICE && pool->orders.device->ranges > 0;
}

static ms_status_t reuse_gap(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                             bool awaits, struct ms_block_info *out) MS_REQUIRES(ms_state_role)
{
    struct ms_placement place;
    bool idle = false;
    if (!ms_place_best(pool, request->stream, bytes, ms_place_tight(pool), &place) ||
        place.unbacked_bytes != 0 || (awaits && place.new_chunks > 0)) {
        return MS_ERR_NO_MEMORY;
    }
    struct ms_range *range = ms_place_claim(pool, &place, bytes, &idle);
    if (range == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    ms_range_make_live(pool, range, request, out);
    return MS_OK;
}

ms_status_t ms_pool_reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                          bool asked, struct ms_block_info *out)
{
    enum ms_region region = ms_region_of(pool, bytes);
    bool awaits = !asked && ms_place_awaits(pool, request);
    struct ms_range *best = best_fit(pool, request->stream, bytes, region);
    if (region == MS_REGION_LARGE && pool->granule_bytes != 0 &&
        (best == NULL || best->bytes != bytes || !whole_gap(best))) {
        return reuse_gap(pool, request, bytes, awaits, out);
    }
    if (best != NULL && awaits && best->bytes != bytes && ms_place_tight(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    return best == NULL ? MS_ERR_NO_MEMORY : ms_range_carve(pool, best, bytes, request, out);
}

ms_status_t ms_pool_reuse_any(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, struct ms_block_info *out)
{
    struct ms_placement place;
    if (pool->granule_bytes != 0 && ms_place_best(pool, request->stream, bytes, false, &place)) {
        bool idle = false;
        struct ms_range *range = ms_place_claim(pool, &place, bytes, &idle);
        if (range == NULL) {
            return MS_ERR_NO_MEMORY;
        }
        ms_range_make_live(pool, range, request, out);
        return MS_OK;
    }
    struct ms_range *best = NULL;
    for (int region = 0; region < MS_REGIONS && best == NULL; region++) {
        best = best_fit(pool, request->stream, bytes, region);
    }
    return best == NULL ? MS_ERR_NO_MEMORY : ms_range_carve(pool, best, bytes, request, out);
}
