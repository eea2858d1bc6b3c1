/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks by rank, the best on top of a heap: candidates of holes.c and spill.c. */
#include "allocator/backing/victims.h"
#include "allocator/base/containers/pages.h"
#include "allocator/pool_state.h"

static bool before(const struct ms_victim *a, const struct ms_victim *b)
{
    if (a->behind_live != b->behind_live) {
        return !a->behind_live;
    }
    return a->rank != b->rank ? a->rank > b->rank : a->addr < b->addr;
}

static void sink(struct ms_victim *heap, size_t count, size_t at)
{
    for (;;) {
        size_t best = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            best = before(&heap[child], &heap[best]) ? child : best;
        }
        if (best == at) {
            return;
        }
        struct ms_victim moved = heap[at];
        heap[at] = heap[best];
        heap[best] = moved;
        at = best;
    }
}

void ms_victims_order(struct ms_victim *heap, size_t count)
{
    for (size_t at = count / 2; at-- > 0;) {
        sink(heap, count, at);
    }
}

struct ms_victim ms_victims_pop(struct ms_victim *heap, size_t *count)
{
    struct ms_victim best = heap[0];
    heap[0] = heap[--*count];
    sink(heap, *count, 0);
    return best;
}

void ms_victims_need(struct ms_pool *pool, size_t wanted)
{
    struct ms_victims *victims = &pool->victims;
    if (victims->room >= wanted) {
        return;
    }
    wanted = wanted < 4096 ? 4096 : wanted * 2;
    struct ms_victim *heap = ms_pages_map(wanted * sizeof(*heap));
    if (heap == NULL) {
        return;
    }
    if (victims->heap != NULL) {
        ms_pages_unmap(victims->heap, victims->room * sizeof(*heap));
    }
    victims->heap = heap;
    victims->room = wanted;
}

/* ---- lists of chunks */

static bool lies_before(const struct ms_chunk *a, const struct ms_chunk *b)
{
    return a->segment != b->segment ? a->segment->base < b->segment->base : a->slot < b->slot;
}

static struct ms_chunk *merge(struct ms_chunk *a, struct ms_chunk *b)
{
    struct ms_chunk *first = NULL;
    struct ms_chunk **link = &first;
    while (a != NULL && b != NULL) {
        struct ms_chunk **least = lies_before(a, b) ? &a : &b;
        *link = *least;
        link = &(*least)->next;
        *least = *link;
    }
    *link = a != NULL ? a : b;
    return first;
}

struct ms_chunk *ms_chunks_by_address(struct ms_chunk *list)
{
    /* Merge sort. sorted[k]: a sorted list of 2^k chunks, or none. */
    struct ms_chunk *sorted[40] = {NULL};
    while (list != NULL) {
        struct ms_chunk *one = list;
        list = list->next;
        one->next = NULL;
        unsigned k = 0;
        for (; sorted[k] != NULL; k++) {
            one = merge(sorted[k], one);
            sorted[k] = NULL;
        }
        sorted[k] = one;
    }
    struct ms_chunk *all = NULL;
    for (unsigned k = 0; k < 40; k++) {
        all = merge(sorted[k], all);
    }
    return all;
}

size_t ms_chunks_take_run(const struct ms_pool *pool, struct ms_chunk **list, uint64_t most_bytes,
                          struct ms_chunk *run[MS_RUN_CHUNKS])
{
    size_t count = 0;
    uint64_t bytes = 0;
    const struct ms_chunk *last = NULL;
    do {
        last = *list;
        run[count++] = *list;
        bytes += last->bytes;
        *list = (*list)->next;
    } while (count < MS_RUN_CHUNKS && *list != NULL && (*list)->segment == last->segment &&
             (*list)->slot == last->slot + last->bytes / pool->granule_bytes &&
             bytes < most_bytes && (*list)->bytes <= most_bytes - bytes);
    return count;
}
