/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of which live memory to spill: see choice.h. */
#include "allocator/spill/choice.h"

static uint64_t rank_lru(void *ctx, const struct ms_spill_candidate *candidate)
{
    (void)ctx;
    return candidate->now - candidate->last_use;
}

const struct ms_spill_choice ms_spill_choice_lru = {.rank = rank_lru};

/* Assumes that memory which was not used for long will not be used for as long again; and optimizer
 * state not before all other memory was used. */
static uint64_t rank_predict(void *ctx, const struct ms_spill_candidate *candidate)
{
    if (candidate->state) {
        return UINT64_MAX / 2 + candidate->last_use;
    }
    return candidate->next_use != UINT64_MAX ? candidate->next_use - candidate->now
                                             : rank_lru(ctx, candidate);
}

const struct ms_spill_choice ms_spill_choice_predict = {.rank = rank_predict, .foretells = true};
