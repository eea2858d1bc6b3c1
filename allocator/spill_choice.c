#include "allocator/spill_choice.h"

static uint64_t rank_lru(void *ctx, const struct ms_spill_candidate *candidate)
{
    (void)ctx;
    return candidate->now - candidate->last_use;
}

const struct ms_spill_choice ms_spill_choice_lru = {.rank = rank_lru};
