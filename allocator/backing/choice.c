/* SPDX-License-Identifier: Apache-2.0 */
/* The default choice of which chunk to take out of holes: see choice.h. */
#include "allocator/backing/choice.h"

#include <stddef.h>

static uint64_t rank_oldest(void *ctx, const struct ms_candidate *candidate)
{
    (void)ctx;
    return UINT64_MAX - candidate->free_since;
}

static uint64_t rank_highest(void *ctx, const struct ms_candidate *candidate)
{
    (void)ctx;
    ms_addr_t end = candidate->addr + candidate->bytes;
    return UINT64_MAX - (candidate->arena + candidate->arena_bytes - end);
}

static uint64_t rank_gap(void *ctx, const struct ms_candidate *candidate)
{
    (void)ctx;
    if (candidate->free_since == 0 || candidate->last_gap == 0) {
        return UINT64_MAX; /* no sign that it will be needed */
    }
    return candidate->free_since + candidate->last_gap;
}

/* Shorter times say nothing of the next use: while tensors come and go, any hole is this new. */
enum { NEWLY = 128 };

static uint64_t rank_idle_and_far(void *ctx, const struct ms_candidate *candidate)
{
    (void)ctx;
    /* In 33 bits and 17. */
    uint64_t idle =
        candidate->free_since == 0 ? UINT32_MAX : candidate->now - candidate->free_since;
    ms_addr_t end = candidate->addr + candidate->bytes;
    uint64_t part = candidate->reach_bytes == 0
                        ? UINT64_C(1) << 16
                        : ((end - candidate->arena) << 16) / candidate->reach_bytes;
    return ((idle < UINT32_MAX ? idle : UINT32_MAX) + NEWLY) * ((part * part) >> 16);
}

const struct ms_choice ms_choice_oldest = {.rank = rank_oldest};
const struct ms_choice ms_choice_highest = {.rank = rank_highest};
const struct ms_choice ms_choice_gap = {.rank = rank_gap};
const struct ms_choice ms_choice_default = {.rank = rank_idle_and_far};
