/* SPDX-License-Identifier: Apache-2.0 */
/* The walker: checks that the tensors' index, the granules and the sums agree. */
#include <stdio.h>

#include "allocator/arenas/arena.h"
#include "allocator/arenas/arenas_state.h"
#include "allocator/arenas/tensors.h"
#include "allocator/backing/granules.h"
#include "allocator/base/containers/pages.h"
#include "allocator/pool_state.h"

/* Sums over the live tensors of a segment. */
struct sum {
    uint64_t tensors, bytes;
    const char *violation;
};

static const char *check_granules(const struct ms_arenas *arenas, const struct ms_segment *segment,
                                  const struct ms_granule *seen)
{
    const struct ms_pool *pool = arenas->pool;
    for (uint64_t slot = 0; slot < segment->slot_count; slot++) {
        const struct ms_granule *granule = &segment->granules[slot];
        const struct ms_chunk *chunk = segment->slots[slot];
        bool backed = chunk != NULL && !chunk->stuck;
        bool quiet = granule->arena != NULL && granule->tensors == 0 && !granule->unbacked &&
                     !granule->fresh;
        if (granule->tensors != seen[slot].tensors ||
            granule->ends_before != seen[slot].ends_before) {
            return "a granule's count of live tensors is wrong";
        }
        if ((granule->unbacked || granule->fresh) && granule->arena == NULL) {
            return "a granule of no arena is an obligation, or fresh";
        }
        if (granule->fresh && granule->tensors > 0) {
            return "a live tensor lies on a page of a request under way";
        }
        if (granule->arena != NULL && granule->unbacked == backed) {
            return "an arena's granule is not as backed as it says";
        }
        if (granule->unbacked && granule->tensors > 0 && !granule->refused) {
            return "a live tensor lies on an unbacked granule";
        }
        if (quiet != ms_quiet_test(segment, slot)) {
            return "a granule is not as quiet as it says";
        }
        if (granule->epoch > pool->epochs.current) {
            return "a granule's epoch has not begun";
        }
    }
    return NULL;
}

static void note(const struct ms_arenas *arenas, const struct ms_segment *segment,
                 struct ms_granule *seen, const struct ms_tensor *tensor)
{
    uint64_t from = 0;
    uint64_t to = 0;
    ms_tensor_slots(segment, tensor->addr, tensor->bytes, &from, &to);
    for (uint64_t slot = from; slot < to; slot++) {
        seen[slot].tensors++;
    }
    uint64_t left_bytes =
        to * arenas->pool->granule_bytes - (tensor->addr - segment->base + tensor->bytes);
    if (to < segment->slot_count && left_bytes <= MS_OVERREAD_BYTES) {
        seen[to].ends_before++;
    }
}

static void check_segment(struct ms_arenas *arenas, struct ms_segment *segment, struct sum *sum)
{
    const struct ms_tensors *tensors = &arenas->tensors;
    size_t bytes = segment->slot_count * sizeof(struct ms_granule);
    struct ms_granule *seen = ms_pages_map(bytes);
    if (seen == NULL) {
        sum->violation = "the host has no memory to look";
        return;
    }
    ms_addr_t above = UINT64_MAX;
    const struct ms_tensor *tensor =
        ms_tensors_below(tensors, segment, segment->base, segment->base + segment->bytes);
    while (tensor != NULL) {
        sum->tensors++;
        sum->bytes += tensor->bytes;
        note(arenas, segment, seen, tensor);
        if (tensor->addr + tensor->bytes > above) {
            sum->violation = "two live tensors overlap";
        }
        above = tensor->addr;
        tensor = ms_tensors_below(tensors, segment, segment->base, above);
    }
    tensor = ms_tensors_in_tree(tensors, segment->base);
    while (tensor != NULL && tensor->addr - segment->base < segment->bytes) {
        if (tensor->counted != 0) {
            note(arenas, segment, seen, tensor);
        }
        tensor = ms_tensors_in_tree(tensors, tensor->addr + 1);
    }
    const char *violation = check_granules(arenas, segment, seen);
    sum->violation = sum->violation != NULL ? sum->violation : violation;
    ms_pages_unmap(seen, bytes);
}

static void check_tree(const struct ms_arenas *arenas, struct sum *sum)
{
    const struct ms_tensor *tensor = ms_tensors_in_tree(&arenas->tensors, 0);
    while (tensor != NULL) {
        sum->tensors++;
        sum->bytes += tensor->bytes;
        const struct ms_tensor *next = ms_tensors_in_tree(&arenas->tensors, tensor->addr + 1);
        if (next != NULL && tensor->addr + tensor->bytes > next->addr) {
            sum->violation = "two live tensors overlap";
        }
        tensor = next;
    }
}

static const char *first_violation(struct ms_arenas *arenas)
{
    struct sum sum = {0};
    const struct ms_arenas_stats *stats = &arenas->stats;
    for (size_t at = 0; arenas->pool != NULL && at < arenas->pool->segment_count; at++) {
        if (arenas->pool->segments[at]->granules != NULL) {
            check_segment(arenas, arenas->pool->segments[at], &sum);
        }
    }
    check_tree(arenas, &sum);
    if (sum.violation == NULL &&
        (sum.tensors != stats->live_tensors || stats->allocations - stats->frees != sum.tensors)) {
        sum.violation = "the number of live tensors is not allocations less frees";
    }
    if (sum.violation == NULL &&
        (sum.bytes != stats->live_bytes || sum.bytes > stats->peak_live_bytes)) {
        sum.violation = "live bytes do not add up";
    }
    return sum.violation;
}

static const char *locked_violation(struct ms_arenas *arenas)
{
    ms_arenas_acquire(arenas);
    const char *violation = first_violation(arenas);
    ms_arenas_release(arenas);
    return violation;
}

bool ms_arenas_is_valid(ms_arenas_t *arenas, char *why, size_t why_bytes)
{
    const char *violation = NULL;
    if (arenas->pool != NULL) {
        ms_growth_acquire(arenas->pool);
        violation = locked_violation(arenas);
        ms_growth_release(arenas->pool);
    } else {
        violation = locked_violation(arenas);
    }
    if (violation != NULL && why != NULL && why_bytes > 0) {
        (void)snprintf(why, why_bytes, "%s", violation);
    }
    return violation == NULL;
}
