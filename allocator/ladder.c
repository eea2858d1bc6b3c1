/* What an allocation does that no free block fits, one rung after the other:
 *
 *   reuse     what others have made free meanwhile; what neighbours, joined, have room for; what is
 *             seen to be done when asked (marks are taken here, not at each free)
 *   expand    new chunks, beside free neighbours where that needs the fewest
 *   take      chunks of idle ranges move under the request, where they and the budget suffice;
 *             then what is promised to holes moves to the host and chunks of holes move too
 *             (holes.c), where all that suffices
 *   reuse behind a wait   another stream's memory, once expanding and taking have failed: a wait
 *             that the program did not ask for may cost it overlap, so it is not the first choice
 *   wait      on the host, bounded, for frees in flight; then the rungs above again
 *   trim      everything idle goes back to the device, which may then serve one last try
 *
 * Taking comes before waiting wherever it serves: nothing synchronizes in an allocation that could
 * be served without. */
#include "allocator/pool_internal.h"

enum {
    CANDIDATES = 32, /* holes, or free ranges, looked at for the best place */
    REACH = 16       /* neighbours that a place may be joined from, on each side */
};

/* Requests of this many granules and more (32 MiB) are backed by large chunks. Below, what a chunk
 * that cannot be split would keep for one small block weighs more than the calls it saves. */
enum { LARGE_REQUEST_GRANULES = 16 };

/* A place for a request: from the beginning of `first`, over as many neighbours as it takes. */
struct place {
    struct ms_range *first;
    uint64_t new_bytes; /* of holes that need backing, in whole granules */
};

static bool joinable(const struct ms_range *range, ms_stream_t stream, bool holes_too)
{
    return range != NULL &&
           (ms_range_usable(range, stream) || (holes_too && range->state == MS_RANGE_HOLE));
}

/* The place around `range` (itself usable, or a hole): to the left as far as memory that needs no
 * backing goes, to the right as far as needed. False: not enough room. */
static bool place_around(struct ms_pool *pool, struct ms_range *range, ms_stream_t stream,
                         uint64_t bytes, bool holes_too, struct place *out)
{
    struct ms_range *first = range;
    uint64_t left_bytes = 0;
    for (int k = 0; k < REACH && left_bytes < bytes && joinable(first->prev, stream, false); k++) {
        first = first->prev;
        left_bytes += first->bytes;
    }
    *out = (struct place){.first = first};
    uint64_t room_bytes = 0;
    struct ms_range *at = first;
    for (int k = 0; k < 2 * REACH && joinable(at, stream, holes_too); k++) {
        uint64_t wanted_bytes = bytes - room_bytes;
        if (at->state == MS_RANGE_HOLE) {
            uint64_t used_bytes = at->bytes < wanted_bytes ? at->bytes : wanted_bytes;
            out->new_bytes += ms_round_up(used_bytes, pool->granule_bytes);
        }
        if (at->bytes >= wanted_bytes) {
            return true;
        }
        room_bytes += at->bytes;
        at = at->next;
    }
    return false;
}

/* Makes one busy range of a place; what lies beyond it stays what it was. *idle: whether all of it
 * was idle or hole. Null: the host is out of memory, nothing changed. State lock. */
static struct ms_range *claim(struct ms_pool *pool, const struct place *place, uint64_t bytes,
                              bool *idle)
{
    if (!ms_slab_reserve(&pool->range_slab, 1)) {
        return NULL;
    }
    struct ms_range *range = place->first;
    *idle = true;
    uint64_t had_bytes = 0;
    for (;;) {
        struct ms_range *piece = had_bytes == 0 ? range : range->next;
        bool hole = piece->state == MS_RANGE_HOLE;
        struct ms_batch *batch = hole ? NULL : piece->free.batch;
        uint64_t wanted_bytes = bytes - had_bytes;
        if (hole) {
            wanted_bytes = ms_round_up(wanted_bytes, pool->granule_bytes);
        }
        *idle = *idle && batch == NULL;
        ms_range_take(pool, piece);
        if (piece->bytes > wanted_bytes) {
            struct ms_range *rest = ms_range_split(pool, piece, wanted_bytes);
            if (hole) {
                ms_range_make_hole(pool, rest);
            } else {
                ms_range_make_free(pool, rest, batch);
            }
        }
        if (had_bytes != 0) {
            ms_range_absorb_next(pool, range);
        }
        had_bytes = range->bytes;
        if (had_bytes >= bytes) {
            return range;
        }
    }
}

/* The claim becomes the block; what the last granule has left becomes idle. State lock. */
static void finish(struct ms_pool *pool, struct ms_range *range, uint64_t bytes,
                   const struct ms_request *request, struct ms_block_info *out)
{
    if (range->bytes > bytes) {
        struct ms_range *rest = ms_range_split(pool, range, bytes);
        /* Where the host has no memory for the rest's node, the block keeps it. */
        if (rest != NULL) {
            ms_range_make_free(pool, rest, NULL);
        }
    }
    ms_range_make_live(pool, range, request, out);
}

/* The claim is given up. Memory that was in the stream's order goes back to the end of it, which is
 * later than it was and so never too early. */
static void give_up(struct ms_pool *pool, struct ms_range *range, bool idle, ms_stream_t stream)
{
    ms_range_give_up(pool, range, idle ? NULL : ms_orders_need(&pool->orders, stream)->open);
}

/* ---- reuse */

/* Free neighbours that together have room, though none has alone: a stream's own and idle ones. */
static ms_status_t join_neighbours(struct ms_pool *pool, const struct ms_request *request,
                                   uint64_t bytes, struct ms_block_info *out)
{
    if (request->stream == MS_STREAM_DEVICE) {
        return MS_ERR_NO_MEMORY; /* idle neighbours are one range already */
    }
    struct ms_order *own = ms_orders_find(&pool->orders, request->stream);
    struct ms_range *range = own == NULL ? NULL : ms_bins_largest(&own->bins);
    for (int k = 0; k < CANDIDATES && range != NULL; k++) {
        struct place place;
        if (place_around(pool, range, request->stream, bytes, false, &place)) {
            bool idle = false;
            struct ms_range *busy = claim(pool, &place, bytes, &idle);
            if (busy == NULL) {
                return MS_ERR_NO_MEMORY;
            }
            ms_range_make_live(pool, busy, request, out);
            return MS_OK;
        }
        range =
            range->bytes > MS_BIN_LIMIT_BYTES ? ms_range_tree_before(own->bins.large, range) : NULL;
    }
    return MS_ERR_NO_MEMORY;
}

static ms_status_t reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                         struct ms_block_info *out)
{
    ms_lock_acquire(&pool->state);
    ms_status_t status = ms_pool_reuse(pool, request, bytes, out);
    if (status == MS_ERR_NO_MEMORY) {
        status = join_neighbours(pool, request, bytes, out);
    }
    ms_lock_release(&pool->state);
    return status;
}

/* ---- expand and take */

/* The hole that takes the fewest new chunks for the request, then the smallest. */
static bool best_place(struct ms_pool *pool, ms_stream_t stream, uint64_t bytes, struct place *out)
{
    bool found = false;
    struct ms_range *hole = ms_range_tree_last(pool->holes);
    for (int k = 0; k < CANDIDATES && hole != NULL; k++) {
        struct place place;
        if (place_around(pool, hole, stream, bytes, true, &place) &&
            (!found || place.new_bytes < out->new_bytes)) {
            *out = place;
            found = true;
        }
        /* The largest first, which has room if any has; then from the smallest upwards. */
        hole = k == 0 ? ms_range_tree_at_least(pool->holes, 0, 0)
                      : ms_range_tree_after(pool->holes, hole);
    }
    return found;
}

/* A place in one hole, with no neighbour's help: no idle chunk is cut by it. */
static bool fresh_place(struct ms_pool *pool, uint64_t bytes, struct place *out)
{
    uint64_t new_bytes = ms_round_up(bytes, pool->granule_bytes);
    *out = (struct place){.first = ms_range_tree_at_least(pool->holes, new_bytes, 0),
                          .new_bytes = new_bytes};
    return out->first != NULL;
}

/* Where a fill's chunks come from, each with those before it. */
enum source { BUDGET, IDLE, HOLES };

/* Makes spares of idle chunks, and of those in holes of arenas, where all that and the budget
 * suffice together. */
static ms_status_t take_chunks(struct ms_pool *pool, uint64_t new_bytes, enum source source)
{
    uint64_t taken_bytes = 0;
    uint64_t free_bytes = ms_budget_free_bytes(pool->config.budget);
    if (free_bytes < new_bytes) {
        uint64_t missing = new_bytes - free_bytes;
        uint64_t idle = ms_backing_idle_chunks(pool, missing);
        if (idle < missing) {
            ms_status_t status = source == HOLES
                                     ? ms_holes_make_room(pool, missing - idle, &taken_bytes)
                                     : MS_ERR_NO_MEMORY;
            if (status != MS_OK) {
                return status;
            }
        }
    }
    return ms_backing_unmap_idle(pool, new_bytes, &taken_bytes);
}

enum where { BESIDE_FREE, FRESH };

/* A request of whole granules begins on one, where that costs no more: an arena's holes are whole
 * granules of its own. */
static void align(struct ms_pool *pool, uint64_t bytes, struct place *place)
{
    struct place fresh;
    if (bytes % pool->granule_bytes == 0 && place->new_bytes >= bytes &&
        (place->first->addr - place->first->segment->base) % pool->granule_bytes != 0 &&
        fresh_place(pool, bytes, &fresh)) {
        *place = fresh;
    }
}

/* Finds a place and claims it, backs it, and makes the block. */
static ms_status_t fill_place(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, enum where where, enum source source,
                              struct ms_block_info *out)
{
    struct place place;
    bool idle = true;
    struct ms_range *range = NULL;
    ms_lock_acquire(&pool->state);
    bool found = where == FRESH ? fresh_place(pool, bytes, &place)
                                : best_place(pool, request->stream, bytes, &place);
    if (found) {
        align(pool, bytes, &place);
    }
    /* What the budget cannot give is not begun: undoing costs as much as doing. */
    if (found &&
        (source != BUDGET || place.new_bytes <= ms_budget_free_bytes(pool->config.budget))) {
        range = claim(pool, &place, bytes, &idle);
    }
    ms_lock_release(&pool->state);
    if (range == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = source == BUDGET ? MS_OK : take_chunks(pool, place.new_bytes, source);
    if (status == MS_OK) {
        bool large = bytes >= LARGE_REQUEST_GRANULES * pool->granule_bytes;
        status = ms_backing_fill(pool, range, large);
    }
    ms_lock_acquire(&pool->state);
    if (status == MS_OK) {
        finish(pool, range, bytes, request, out);
    } else {
        give_up(pool, range, idle, request->stream);
    }
    ms_lock_release(&pool->state);
    (void)ms_backing_release_spares(pool);
    return status;
}

static ms_status_t grow_plain(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, struct ms_block_info *out)
{
    struct ms_range *range = NULL;
    ms_status_t status = ms_backing_plain_add(pool, bytes, &range);
    if (status == MS_OK) {
        ms_lock_acquire(&pool->state);
        finish(pool, range, bytes, request, out);
        ms_lock_release(&pool->state);
    }
    return status;
}

/* Addresses enough for a fresh place of `bytes`. */
static ms_status_t need_hole(struct ms_pool *pool, uint64_t bytes)
{
    struct place place;
    ms_lock_acquire(&pool->state);
    bool found = fresh_place(pool, bytes, &place);
    ms_lock_release(&pool->state);
    return found ? MS_OK : ms_backing_reserve(pool, bytes);
}

static ms_status_t grow(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                        enum source source, struct ms_block_info *out)
{
    if (pool->granule_bytes == 0) {
        return source != BUDGET ? MS_ERR_NO_MEMORY : grow_plain(pool, request, bytes, out);
    }
    /* With a hole for all of it there is always a place, whatever happens to the neighbours. */
    ms_status_t status = need_hole(pool, bytes);
    if (status == MS_OK) {
        status = fill_place(pool, request, bytes, BESIDE_FREE, source, out);
    }
    if (status == MS_ERR_NO_MEMORY && source != BUDGET) {
        /* A place beside free memory may cut a chunk that could have been taken whole. */
        status = fill_place(pool, request, bytes, FRESH, source, out);
    }
    return status;
}

/* ---- the rungs */

/* No rung can help a request that is larger than all that is free or could become free. */
static bool hopeless(struct ms_pool *pool, uint64_t bytes)
{
    ms_lock_acquire(&pool->state);
    uint64_t free_bytes = pool->count.free_bytes;
    uint64_t holes_bytes = pool->repair.frozen ? 0 : pool->count.quiet_granules;
    ms_lock_release(&pool->state);
    holes_bytes = holes_bytes * pool->granule_bytes + pool->repair.promised_bytes;
    return bytes > free_bytes + holes_bytes + ms_budget_free_bytes(pool->config.budget);
}

static ms_status_t reuse_when_done(struct ms_pool *pool, const struct ms_request *request,
                                   uint64_t bytes, struct ms_block_info *out)
{
    ms_status_t status = reuse(pool, request, bytes, out);
    if (status != MS_ERR_NO_MEMORY) {
        return status;
    }
    ms_lock_acquire(&pool->state);
    bool promising = pool->count.pending_bytes > 0 && pool->count.free_bytes >= bytes;
    ms_lock_release(&pool->state);
    if (!promising) {
        return MS_ERR_NO_MEMORY;
    }
    /* Old marks first: what they cover may do, and then no new one is needed. */
    if (ms_marks_poll(pool)) {
        status = reuse(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY) {
        ms_marks_take(pool, false);
        if (ms_marks_poll(pool)) {
            status = reuse(pool, request, bytes, out);
        }
    }
    return status;
}

static bool may_change_backing(struct ms_pool *pool)
{
    return !pool->ops->capturing(pool->ops->ctx);
}

static ms_status_t wait_for_frees(struct ms_pool *pool, const struct ms_request *request,
                                  uint64_t bytes, struct ms_block_info *out)
{
    uint64_t left_ns = pool->config.wait_limit_ns;
    ms_status_t status = MS_ERR_NO_MEMORY;
    for (unsigned turn = 0; left_ns > 0 && may_change_backing(pool) && !hopeless(pool, bytes);
         turn++) {
        ms_marks_take(pool, true);
        ms_epochs_mark(pool);
        if (!ms_marks_wait(pool, turn, &left_ns) && !ms_epochs_wait(pool, &left_ns)) {
            break;
        }
        (void)ms_marks_poll(pool);
        ms_epochs_poll(pool);
        status = reuse(pool, request, bytes, out);
        if (status == MS_ERR_NO_MEMORY) {
            status = grow(pool, request, bytes, BUDGET, out);
        }
        for (enum source source = IDLE;
             source <= HOLES && status == MS_ERR_NO_MEMORY && may_change_backing(pool); source++) {
            status = grow(pool, request, bytes, source, out);
        }
        if (status != MS_ERR_NO_MEMORY) {
            break;
        }
    }
    return status;
}

static ms_status_t trim_and_grow(struct ms_pool *pool, const struct ms_request *request,
                                 uint64_t bytes, struct ms_block_info *out)
{
    uint64_t given_bytes = 0;
    if (pool->granule_bytes == 0) {
        given_bytes = ms_backing_plain_release(pool, UINT64_MAX);
    } else {
        ms_status_t status = ms_backing_unmap_idle(pool, UINT64_MAX, &given_bytes);
        if (status != MS_OK) {
            return status;
        }
        (void)ms_backing_release_spares(pool);
    }
    return given_bytes > 0 ? grow(pool, request, bytes, BUDGET, out) : MS_ERR_NO_MEMORY;
}

static ms_status_t climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                         struct ms_block_info *out)
{
    /* Chunks that could not be released some time ago would be missing from every sum below. */
    (void)ms_backing_release_spares(pool);
    ms_status_t status = reuse_when_done(pool, request, bytes, out);
    if (status == MS_ERR_NO_MEMORY) {
        status = grow(pool, request, bytes, BUDGET, out);
    }
    if (status != MS_ERR_NO_MEMORY || !may_change_backing(pool) || hopeless(pool, bytes)) {
        return status;
    }
    ms_holes_recover(pool);
    status = grow(pool, request, bytes, IDLE, out);
    if (status == MS_ERR_NO_MEMORY) {
        status = grow(pool, request, bytes, HOLES, out);
        ms_epochs_mark(pool); /* for the next one that finds memory short */
    }
    if (status == MS_ERR_NO_MEMORY) {
        ms_marks_take(pool, true);
        status = ms_marks_reuse_behind_wait(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY && request->may_wait) {
        status = wait_for_frees(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY && may_change_backing(pool) && !hopeless(pool, bytes)) {
        status = trim_and_grow(pool, request, bytes, out);
    }
    return status;
}

ms_status_t ms_ladder_climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                            struct ms_block_info *out)
{
    ms_lock_acquire(&pool->growth);
    ms_status_t status = climb(pool, request, bytes, out);
    ms_promise_settle(pool);
    ms_lock_release(&pool->growth);
    return status;
}
