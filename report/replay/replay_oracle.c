/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle: of the free chunks it takes those that the recording needs again last. */
#include "report/replay/replay_oracle.h"

#include <stdlib.h>
#include <string.h>

#define PART_BYTES (UINT64_C(2) << 20)

struct placed {
    ms_addr_t base;
    uint32_t arena;
};

/* Divides arenas into parts of a granule; each part lists the allocations that touch it, in
 * order. */
struct ms_oracle {
    const struct ms_recording *recording;
    struct ms_choice choice;
    uint64_t *first_part;       /* by arena, and one more: its first part */
    uint64_t *first_allocation; /* by part, and one more: the first of its list */
    uint32_t *allocations;      /* operations */
    struct placed *placed;      /* by base */
    size_t placed_count;
    size_t now;
};

static uint64_t parts_of(uint64_t bytes)
{
    return (bytes + PART_BYTES - 1) / PART_BYTES;
}

/* Calls `each` with every part that the allocation touches. */
static void touch(struct ms_oracle *oracle, uint32_t index, uint64_t *at, bool store)
{
    const struct ms_operation *allocation = ms_recording_at(oracle->recording, index);
    const uint64_t base = oracle->first_part[allocation->arena];
    const uint64_t last = (allocation->offset + allocation->bytes - 1) / PART_BYTES;

    for (uint64_t part = allocation->offset / PART_BYTES; part <= last; part++) {
        if (store) {
            oracle->allocations[at[base + part]] = index;
        }
        at[base + part]++;
    }
}

static void touch_all(struct ms_oracle *oracle, uint64_t *at, bool store)
{
    for (size_t i = 0; i < ms_recording_count(oracle->recording); i++) {
        if (ms_recording_at(oracle->recording, i)->kind == MS_OPERATION_TENSOR_ALLOC) {
            touch(oracle, (uint32_t)i, at, store);
        }
    }
}

static bool index_allocations(struct ms_oracle *oracle)
{
    const size_t arenas = ms_recording_arenas(oracle->recording);
    uint64_t parts, total = 0;

    oracle->first_part = calloc(arenas + 1, sizeof(*oracle->first_part));
    oracle->placed = calloc(arenas + 1, sizeof(*oracle->placed));
    if (!oracle->first_part || !oracle->placed) {
        return false;
    }
    for (size_t i = 0; i < arenas; i++) {
        oracle->first_part[i + 1] =
            oracle->first_part[i] + parts_of(ms_recording_arena(oracle->recording, i)->bytes);
    }
    parts = oracle->first_part[arenas];
    oracle->first_allocation = calloc(parts + 1, sizeof(*oracle->first_allocation));
    if (!oracle->first_allocation) {
        return false;
    }
    touch_all(oracle, oracle->first_allocation, false);
    for (uint64_t part = 0; part <= parts; part++) {
        const uint64_t count = oracle->first_allocation[part];

        oracle->first_allocation[part] = total;
        total += count;
    }
    oracle->allocations = malloc((total + 1) * sizeof(*oracle->allocations));
    if (!oracle->allocations) {
        return false;
    }
    /* Storing moves each part's beginning to its end, where the next part begins. */
    touch_all(oracle, oracle->first_allocation, true);
    memmove(oracle->first_allocation + 1, oracle->first_allocation,
            parts * sizeof(*oracle->first_allocation));
    oracle->first_allocation[0] = 0;
    return true;
}

/* The nearest arena that begins at or before this address; null: there is none. */
static const struct placed *placed_before(const struct ms_oracle *oracle, ms_addr_t addr)
{
    size_t low = 0, high = oracle->placed_count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (oracle->placed[middle].base <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? &oracle->placed[low - 1] : NULL;
}

static uint64_t rank(void *ctx, const struct ms_candidate *candidate)
{
    const struct ms_oracle *oracle = ctx;
    const struct placed *placed = placed_before(oracle, candidate->arena);

    if (!placed) {
        return UINT64_MAX;
    }

    /* A chunk may begin before its block, if that does not begin on a granule. */
    const uint64_t before = candidate->addr < placed->base ? placed->base - candidate->addr : 0;
    const uint64_t bytes = before < candidate->bytes ? candidate->bytes - before : 0;

    return ms_oracle_next(oracle, placed->arena, candidate->addr + before - placed->base, bytes,
                          oracle->now);
}

struct ms_oracle *ms_oracle_new(const struct ms_recording *recording)
{
    struct ms_oracle *oracle = calloc(1, sizeof(*oracle));

    if (!oracle) {
        return NULL;
    }
    oracle->recording = recording;
    oracle->choice = (struct ms_choice){.rank = rank, .ctx = oracle};
    if (!index_allocations(oracle)) {
        ms_oracle_delete(oracle);
        return NULL;
    }
    return oracle;
}

void ms_oracle_delete(struct ms_oracle *oracle)
{
    if (oracle) {
        free(oracle->first_part);
        free(oracle->first_allocation);
        free(oracle->allocations);
        free(oracle->placed);
        free(oracle);
    }
}

const struct ms_choice *ms_oracle_choice(struct ms_oracle *oracle)
{
    return &oracle->choice;
}

void ms_oracle_placed(struct ms_oracle *oracle, uint32_t arena, ms_addr_t base)
{
    const struct placed *before = placed_before(oracle, base);
    const size_t at = before ? (size_t)(before - oracle->placed) + 1 : 0;

    memmove(oracle->placed + at + 1, oracle->placed + at,
            (oracle->placed_count - at) * sizeof(*oracle->placed));
    oracle->placed[at] = (struct placed){.base = base, .arena = arena};
    oracle->placed_count++;
}

void ms_oracle_gone(struct ms_oracle *oracle, uint32_t arena)
{
    size_t at = 0;

    while (at < oracle->placed_count && oracle->placed[at].arena != arena) {
        at++;
    }
    if (at < oracle->placed_count) {
        oracle->placed_count--;
        memmove(oracle->placed + at, oracle->placed + at + 1,
                (oracle->placed_count - at) * sizeof(*oracle->placed));
    }
}

void ms_oracle_now(struct ms_oracle *oracle, size_t operation)
{
    oracle->now = operation;
}

/* The first allocation in the part's list that comes after `operation` and touches the range. */
static uint64_t next_in_part(const struct ms_oracle *oracle, uint64_t part, uint64_t offset,
                             uint64_t bytes, size_t operation)
{
    uint64_t low = oracle->first_allocation[part], high = oracle->first_allocation[part + 1];
    const uint64_t end = high;

    while (low < high) {
        const uint64_t middle = (low + high) / 2;

        if (oracle->allocations[middle] <= operation) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < end; low++) {
        const struct ms_operation *allocation =
            ms_recording_at(oracle->recording, oracle->allocations[low]);

        if (allocation->offset < offset + bytes &&
            offset < allocation->offset + allocation->bytes) {
            return oracle->allocations[low];
        }
    }
    return UINT64_MAX;
}

uint64_t ms_oracle_next(const struct ms_oracle *oracle, uint32_t arena, uint64_t offset,
                        uint64_t bytes, size_t operation)
{
    const uint64_t first = oracle->first_part[arena];
    const uint64_t parts = oracle->first_part[arena + 1] - first;
    uint64_t next = UINT64_MAX;

    for (uint64_t part = offset / PART_BYTES;
         bytes > 0 && part < parts && part <= (offset + bytes - 1) / PART_BYTES; part++) {
        const uint64_t here = next_in_part(oracle, first + part, offset, bytes, operation);

        next = here < next ? here : next;
    }
    return next;
}
