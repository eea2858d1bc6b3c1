/* SPDX-License-Identifier: Apache-2.0 */
/* The walker: recomputes the pool's sums and lists from the ranges alone, and compares. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocator/arenas/proxies.h"
#include "allocator/backing/granules.h"
#include "allocator/base/assert.h"
#include "allocator/pool_check.h"
#include "allocator/pool_state.h"
#include "allocator/space/block.h"
#include "allocator/space/range.h"
#include "allocator/space/starts.h"
#include "allocator/space/tiling.h"

struct pool_walk {
    struct ms_pool *pool;
    char *why;
    size_t why_bytes;
    bool at_rest; /* no call is under way on another thread */
    bool failed;
    struct ms_pool_counters sum;
    uint64_t idle_ranges, batched_ranges, holes, lent_ranges, twins;
};

__attribute__((format(printf, 3, 4))) static bool check(struct pool_walk *walk, bool holds,
                                                        const char *format, ...)
{
    if (!holds && !walk->failed) {
        walk->failed = true;
        if (walk->why != NULL && walk->why_bytes > 0) {
            va_list arguments;
            va_start(arguments, format);
            (void)vsnprintf(walk->why, walk->why_bytes, format, arguments);
            va_end(arguments);
        }
    }
    return holds;
}

/* Whether the slot is an arena's, and its backing has been taken. */
static bool is_taken(const struct ms_segment *segment, uint64_t slot)
{
    return segment->granules != NULL && segment->granules[slot].unbacked;
}

/* Whether a device that kept failing may have left a live block without backing, which an event
 * reports. */
static bool is_reported_lost(const struct pool_walk *walk) MS_REQUIRES(ms_state_role)
{
    return walk->pool->count.spill.lost_bytes > 0;
}

/* Checks that chunks stand behind every byte of the range, or behind none of a hole. */
static void check_backing(struct pool_walk *walk, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_segment *segment = range->segment;
    uint64_t granule = segment->plain ? segment->bytes : walk->pool->granule_bytes;
    uint64_t first = (range->addr - segment->base) / granule;
    uint64_t last = (range->addr + range->bytes - 1 - segment->base) / granule;
    for (uint64_t slot = first; slot <= last && !walk->failed; slot++) {
        const struct ms_chunk *chunk = segment->slots[slot];
        if (range->state == MS_RANGE_HOLE) {
            check(walk, chunk == NULL, "hole at %#lx has backing", (unsigned long)range->addr);
        } else if (range->state == MS_RANGE_DRAINING) {
            check(walk, chunk != NULL && chunk->host, "%#lx drains, and not from the host",
                  (unsigned long)range->addr);
        } else if (range->state == MS_RANGE_FREE) {
            check(walk, chunk != NULL && !chunk->stuck && !chunk->host,
                  "free range at %#lx, %lu bytes: no backing", (unsigned long)range->addr,
                  (unsigned long)range->bytes);
        } else if (range->state == MS_RANGE_LIVE && !is_taken(segment, slot) &&
                   !is_reported_lost(walk)) {
            check(walk, chunk != NULL && !chunk->stuck, "block at %#lx, %lu bytes: no backing",
                  (unsigned long)range->addr, (unsigned long)range->bytes);
        }
    }
    if (range->state == MS_RANGE_HOLE) {
        check(walk, (range->addr - segment->base) % granule == 0 && range->bytes % granule == 0,
              "hole at %#lx is not of whole granules", (unsigned long)range->addr);
    }
}

static bool list_holds(const struct ms_range *list, const struct ms_range *range)
{
    /* Checks only the links around it: walking each list for each range would be quadratic. */
    const struct ms_range *prev = range->free.batch_prev;
    const struct ms_range *next = range->free.batch_next;
    return (prev == NULL ? list == range : prev->free.batch_next == range) &&
           (next == NULL || next->free.batch_prev == range);
}

static void check_free(struct pool_walk *walk, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    struct ms_pool *pool = walk->pool;
    const struct ms_batch *batch = range->free.batch;
    unsigned long addr = (unsigned long)range->addr;
    walk->sum.free_bytes += range->bytes;
    if (batch == NULL) {
        walk->idle_ranges++;
        check(walk,
              range->next == NULL || range->next->state != MS_RANGE_FREE ||
                  range->next->free.batch != NULL,
              "idle neighbours at %#lx are not joined", addr);
    } else {
        walk->batched_ranges++;
        walk->sum.pending_bytes += range->bytes;
        check(walk, list_holds(batch->ranges, range), "batch does not hold %#lx", addr);
    }
    const struct ms_range *best =
        ms_bins_best(&ms_range_order(pool, range)->bins[range->segment->region], range->bytes);
    check(walk, best != NULL && best->bytes == range->bytes,
          "free range at %#lx is not found by its size", addr);
}

static void check_live(struct pool_walk *walk, const struct ms_range *range)
{
    unsigned long addr = (unsigned long)range->addr;
    const struct ms_segment *segment = range->segment;
    walk->sum.live_blocks++;
    walk->sum.live_bytes += ms_range_asked_bytes(range);
    walk->sum.set_aside_bytes += range->bytes;
    check(walk, ms_index_find(&walk->pool->index, range->addr) == range,
          "block at %#lx is not in the index", addr);
    check(
        walk,
        ms_starts_test(&segment->starts, (range->addr - segment->base) / MS_BLOCK_ALIGNMENT_BYTES),
        "block at %#lx is not in the bitmap", addr);
    check(walk, ms_range_asked_bytes(range) > 0 && ms_range_asked_bytes(range) <= range->bytes,
          "block at %#lx: %lu bytes asked, %lu set aside", addr,
          (unsigned long)ms_range_asked_bytes(range), (unsigned long)range->bytes);
}

static void check_range(struct pool_walk *walk, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    unsigned long addr = (unsigned long)range->addr;
    check(walk, range->bytes > 0 && range->bytes % MS_BLOCK_ALIGNMENT_BYTES == 0,
          "range at %#lx has %lu bytes", addr, (unsigned long)range->bytes);
    check(walk, range->addr % MS_BLOCK_ALIGNMENT_BYTES == 0, "range at %#lx is misaligned", addr);
    check(walk, range->next == NULL || range->next->prev == range, "links broken after %#lx", addr);
    check(walk, range->state != MS_RANGE_BUSY, "range at %#lx is busy, and nobody grows", addr);
    check_backing(walk, range);
    if (range->state == MS_RANGE_FREE) {
        check_free(walk, range);
    } else if (range->state == MS_RANGE_LIVE) {
        check_live(walk, range);
    } else if (range->state == MS_RANGE_LENT) {
        walk->lent_ranges++;
    } else if (range->state == MS_RANGE_HOLE) {
        walk->holes++;
        check(walk, range->next == NULL || range->next->state != MS_RANGE_HOLE,
              "holes at %#lx are not joined", addr);
    }
}

/* Whether this is the first in address order of a chunk's two mappings: the one to count. */
static bool before_twin(const struct ms_chunk *chunk)
{
    return chunk->segment->base + chunk->slot < chunk->twin->segment->base + chunk->twin->slot;
}

/* Checks a chunk that is mapped twice. It is cut at one offset: one mapping has what is before it,
 * the other what is behind it, so that no byte is handed out twice. */
static void check_view(struct pool_walk *walk, const struct ms_chunk *chunk)
{
    uint64_t granule = walk->pool->granule_bytes;
    const struct ms_chunk *twin = chunk->twin;
    unsigned long slot = (unsigned long)chunk->slot;
    const struct ms_range *lent = chunk->lent;
    const struct ms_range *others = twin->lent;
    if (lent == NULL || others == NULL || twin->twin != chunk || twin->handle != chunk->handle ||
        chunk->bytes != granule || chunk->host || chunk->spilled) {
        check(walk, false, "slot %lu is no view of its twin", slot);
        return;
    }
    walk->twins++;
    uint64_t offset = lent->addr - chunk->segment->base - chunk->slot * granule;
    uint64_t others_offset = others->addr - twin->segment->base - twin->slot * granule;
    check(walk,
          lent->state == MS_RANGE_LENT && lent->segment == chunk->segment &&
              offset + lent->bytes <= granule && offset < granule,
          "slot %lu has lent what is not its own", slot);
    check(walk,
          lent->bytes + others->bytes == granule &&
              (offset == 0 ? others_offset == lent->bytes
                           : others_offset == 0 && offset == others->bytes),
          "slot %lu and its twin have lent %lu and %lu bytes", slot, (unsigned long)lent->bytes,
          (unsigned long)others->bytes);
}

static void check_slots(struct pool_walk *walk, const struct ms_segment *segment)
    MS_REQUIRES(ms_growth_role)
{
    for (uint64_t slot = 0; slot < segment->slot_count && !walk->failed; slot++) {
        const struct ms_chunk *chunk = segment->slots[slot];
        if (chunk == NULL || (segment == walk->pool->moving.staging && chunk->aside)) {
            continue;
        }
        uint64_t count = segment->plain ? 1 : chunk->bytes / walk->pool->granule_bytes;
        check(walk, chunk->segment == segment && chunk->slot <= slot && slot < chunk->slot + count,
              "slot %lu names a chunk that lies elsewhere", (unsigned long)slot);
        if (chunk->slot == slot && chunk->twin != NULL) {
            check_view(walk, chunk);
        }
        if (chunk->slot == slot && (chunk->twin == NULL || before_twin(chunk))) {
            *(chunk->host ? &walk->sum.host_backed_bytes : &walk->sum.reserved_bytes) +=
                chunk->bytes;
            walk->sum.spill.spilled_bytes += chunk->spilled ? chunk->bytes : 0;
            check(walk, chunk->host || !chunk->spilled, "slot %lu is spilled to the device",
                  (unsigned long)slot);
        }
    }
}

/* Arenas, granule by granule. ms_arenas_is_valid checks which of them tensors touch. */
static void check_granules(struct pool_walk *walk, const struct ms_segment *segment)
{
    for (uint64_t slot = 0; slot < segment->slot_count && !walk->failed; slot++) {
        const struct ms_granule *granule = &segment->granules[slot];
        const struct ms_chunk *chunk = segment->slots[slot];
        bool backed = chunk != NULL && !chunk->stuck;
        bool quiet = granule->arena != NULL && granule->tensors == 0 && !granule->unbacked &&
                     !granule->fresh;
        walk->sum.quiet_granules += ms_quiet_test(segment, slot) ? 1 : 0;
        walk->sum.obligation_bytes += granule->unbacked ? walk->pool->granule_bytes : 0;
        walk->sum.fresh_unbacked_bytes +=
            granule->unbacked && granule->fresh ? walk->pool->granule_bytes : 0;
        check(walk, granule->asks == (granule->unbacked || granule->on_host),
              "slot %lu does not ask for what it lacks", (unsigned long)slot);
        check(walk, !granule->on_host || (backed && chunk->host), "slot %lu is not on the host",
              (unsigned long)slot);
        check(walk, quiet == ms_quiet_test(segment, slot), "slot %lu is not as quiet as it says",
              (unsigned long)slot);
        check(walk, granule->arena == NULL ? !granule->unbacked : granule->unbacked != backed,
              "slot %lu is not as backed as it says", (unsigned long)slot);
        check(walk,
              !walk->at_rest || !granule->unbacked || granule->tensors == 0 || granule->refused,
              "slot %lu has a live tensor and no backing", (unsigned long)slot);
    }
}

static void check_segment(struct pool_walk *walk, const struct ms_segment *segment)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    ms_addr_t at = segment->base;
    for (const struct ms_range *range = segment->first; range != NULL && !walk->failed;
         range = range->next) {
        check(walk, range->addr == at && range->segment == segment,
              "gap or overlap: %#lx instead of %#lx", (unsigned long)range->addr,
              (unsigned long)at);
        check_range(walk, range);
        at += range->bytes;
    }
    check(walk, at == segment->base + segment->bytes, "segment at %#lx ends at %#lx",
          (unsigned long)segment->base, (unsigned long)at);
    check_slots(walk, segment);
    if (segment->granules != NULL) {
        check_granules(walk, segment);
    }
}

static void check_orders(struct pool_walk *walk) MS_REQUIRES(ms_state_role)
{
    uint64_t ranges = 0;
    const struct ms_orders *orders = &walk->pool->orders;
    for (const struct ms_order *order = orders->first; order != NULL; order = order->next) {
        uint64_t in_batches = 0;
        unsigned sealed = 0;
        const struct ms_batch *batch = order->oldest;
        for (; batch != NULL; batch = batch->next) {
            sealed += batch->sealed ? 1 : 0;
            check(walk, batch->order == order && batch->sealed == (batch != order->open),
                  "a batch of stream %lu is out of place", (unsigned long)order->stream);
            check(walk, !batch->fenced || batch->sealed, "a batch is fenced and still open");
            for (const struct ms_range *range = batch->ranges; range != NULL;
                 range = range->free.batch_next) {
                in_batches++;
                check(walk, range->state == MS_RANGE_FREE && range->free.batch == batch,
                      "a batch holds %#lx, which is not in it", (unsigned long)range->addr);
            }
        }
        check(walk, in_batches == order->ranges && sealed == order->sealed_batches,
              "stream %lu has %lu ranges and counts %lu", (unsigned long)order->stream,
              (unsigned long)in_batches, (unsigned long)order->ranges);
        ranges += in_batches;
    }
    check(walk, ranges == walk->batched_ranges, "%lu ranges wait, batches hold %lu",
          (unsigned long)walk->batched_ranges, (unsigned long)ranges);
    check(walk, orders->idle.ranges == walk->idle_ranges, "%lu ranges are idle, %lu counted",
          (unsigned long)walk->idle_ranges, (unsigned long)orders->idle.ranges);
    uint64_t holes = 0;
    for (int region = 0; region < MS_REGIONS; region++) {
        struct ms_treap_node *root = walk->pool->holes[region];
        const struct ms_range *hole = ms_range_tree_at_least(root, 0, 0);
        for (; hole != NULL; hole = ms_range_tree_after(root, hole)) {
            check(walk, hole->segment->region == (enum ms_region)region,
                  "hole at %#lx is in the tree of another region", (unsigned long)hole->addr);
            holes++;
        }
    }
    check(walk, holes == walk->holes, "%lu holes, %lu in their tree", (unsigned long)walk->holes,
          (unsigned long)holes);
}

static void check_sum(struct pool_walk *walk, const char *what, uint64_t walked, uint64_t counted)
{
    check(walk, walked == counted, "%s: %lu by the walk, %lu by the counters", what,
          (unsigned long)walked, (unsigned long)counted);
}

static void check_sums(struct pool_walk *walk) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    struct ms_pool *pool = walk->pool;
    const struct ms_pool_counters *count = &pool->count;
    for (const struct ms_chunk *spare = pool->spares; spare != NULL; spare = spare->next) {
        walk->sum.reserved_bytes += spare->bytes;
        check(walk, spare->bytes <= pool->spare_most_bytes, "a spare is larger than all are");
    }
    for (const struct ms_chunk *host = pool->obligations.reserve; host != NULL; host = host->next) {
        *(host->aside ? &walk->sum.host_backed_bytes : &walk->sum.host_reserve_bytes) +=
            host->bytes;
        walk->sum.host_large_bytes +=
            !host->aside && host->bytes > pool->granule_bytes ? host->bytes : 0;
    }
    uint64_t unmapped_bytes = 0;
    walk->sum.obligation_bytes += ms_proxies_sum(pool, &unmapped_bytes);
    walk->sum.reserved_bytes += unmapped_bytes;
    check_sum(walk, "obligations to holes", walk->sum.obligation_bytes, count->obligation_bytes);
    walk->sum.fresh_unbacked_bytes += ms_proxies_sum_fresh(pool, &walk->sum.fresh_bytes);
    check_sum(walk, "bytes of fresh pages", walk->sum.fresh_bytes, count->fresh_bytes);
    check_sum(walk, "obligations to fresh pages", walk->sum.fresh_unbacked_bytes,
              count->fresh_unbacked_bytes);
    check_sum(walk, "quiet granules", walk->sum.quiet_granules, count->quiet_granules);
    check_sum(walk, "host chunks mapped", walk->sum.host_backed_bytes, count->host_backed_bytes);
    check_sum(walk, "spilled", walk->sum.spill.spilled_bytes, count->spill.spilled_bytes);
    check(walk, !pool->moving.under_way, "contents are moving, and nobody moves them");
    check_sum(walk, "host chunks set aside", walk->sum.host_reserve_bytes,
              count->host_reserve_bytes);
    check_sum(walk, "large host chunks set aside", walk->sum.host_large_bytes,
              count->host_large_bytes);
    uint64_t views = 0;
    for (const struct ms_chunk *view = pool->views; view != NULL; view = view->next) {
        views++;
    }
    check_sum(walk, "views", views, count->views);
    check_sum(walk, "mappings of views", walk->twins, 2 * count->views);
    check_sum(walk, "parts of views", walk->lent_ranges, 2 * count->views);
    /* Others who share the budget may have earmarked some of it, too. */
    const uint64_t earmarked = atomic_load(&pool->config.budget->earmarked_bytes);
    check(walk, pool->obligations.earmarked_bytes <= earmarked,
          "%lu bytes are earmarked, %lu in the budget",
          (unsigned long)pool->obligations.earmarked_bytes, (unsigned long)earmarked);
    check(walk,
          pool->obligations.uncovered ||
              count->obligation_bytes <= pool->obligations.earmarked_bytes +
                                             count->host_reserve_bytes - count->host_large_bytes,
          "obligations of %lu bytes, %lu earmarked, %lu on the host, %lu of them in large chunks",
          (unsigned long)count->obligation_bytes, (unsigned long)pool->obligations.earmarked_bytes,
          (unsigned long)count->host_reserve_bytes, (unsigned long)count->host_large_bytes);
    check_sum(walk, "live blocks", walk->sum.live_blocks, count->live_blocks);
    check_sum(walk, "indexed blocks", walk->sum.live_blocks, pool->index.entries);
    check_sum(walk, "live bytes", walk->sum.live_bytes, count->live_bytes);
    check_sum(walk, "bytes set aside", walk->sum.set_aside_bytes, count->set_aside_bytes);
    check_sum(walk, "free bytes", walk->sum.free_bytes, count->free_bytes);
    check_sum(walk, "pending bytes", walk->sum.pending_bytes, count->pending_bytes);
    check_sum(walk, "reserved bytes", walk->sum.reserved_bytes, count->reserved_bytes);
    check_sum(walk, "charged to the pool", walk->sum.reserved_bytes,
              atomic_load(&pool->config.budget->by_owner_bytes[MS_OWNER_POOL]));
}

static bool books_hold(struct ms_pool *pool, bool at_rest, char *why, size_t why_bytes)
    MS_REQUIRES(ms_growth_role)
{
    struct pool_walk walk = {.pool = pool, .at_rest = at_rest, .why = why, .why_bytes = why_bytes};
    ms_state_acquire(pool);
    for (size_t at = 0; at < pool->segment_count; at++) {
        const struct ms_segment *segment = pool->segments[at];
        check(&walk,
              at == 0 ||
                  pool->segments[at - 1]->base + pool->segments[at - 1]->bytes <= segment->base,
              "segments overlap at %#lx", (unsigned long)segment->base);
        check_segment(&walk, segment);
    }
    check_orders(&walk);
    check_sums(&walk);
    ms_state_release(pool);
    return !walk.failed;
}

bool ms_pool_books_hold(struct ms_pool *pool)
{
    char why[200] = "";
    const bool hold = books_hold(pool, false, why, sizeof why);
#ifdef MEMSHIM_CHECKS
    if (!hold) {
        ms_check_say("memshim: the pool's books: %s\n", why);
    }
#endif
    return hold;
}

bool ms_pool_is_valid(ms_pool_t *pool, char *why, size_t why_bytes)
{
    ms_growth_acquire(pool);
    bool valid = books_hold(pool, true, why, why_bytes);
    ms_growth_release(pool);
    return valid;
}
