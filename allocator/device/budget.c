/* SPDX-License-Identifier: Apache-2.0 */
/* The lock-free arithmetic of the budget: see budget.h. */
#include "allocator/device/budget.h"

#include "allocator/base/assert.h"

void ms_budget_init(struct ms_budget *budget, uint64_t cap_bytes)
{
    atomic_init(&budget->cap_bytes, cap_bytes);
    atomic_init(&budget->bound_bytes, UINT64_MAX);
    atomic_init(&budget->committed_bytes, 0);
    atomic_init(&budget->charged_bytes, 0);
    atomic_init(&budget->promised_bytes, 0);
    atomic_init(&budget->peak_charged_bytes, 0);
    for (int owner = 0; owner < MS_OWNER_COUNT; owner++) {
        atomic_init(&budget->by_owner_bytes[owner], 0);
    }
}

void ms_budget_bind(struct ms_budget *budget, uint64_t bound_bytes)
{
    atomic_store(&budget->bound_bytes, bound_bytes);
}

uint64_t ms_budget_limit_bytes(const struct ms_budget *budget)
{
    uint64_t cap = atomic_load(&budget->cap_bytes);
    uint64_t bound = atomic_load(&budget->bound_bytes);
    return bound < cap ? bound : cap;
}

/* Written so that neither side can wrap, whatever was asked for or imposed. */
static bool fits(uint64_t held_bytes, uint64_t bytes, uint64_t limit_bytes)
{
    return held_bytes <= limit_bytes && bytes <= limit_bytes - held_bytes;
}

static bool commit(struct ms_budget *budget, uint64_t bytes)
{
    uint64_t committed = atomic_load(&budget->committed_bytes);
    do {
        if (!fits(committed, bytes, ms_budget_limit_bytes(budget))) {
            return false;
        }
    } while (
        !atomic_compare_exchange_weak(&budget->committed_bytes, &committed, committed + bytes));
    return true;
}

static void add_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    uint64_t charged = atomic_fetch_add(&budget->charged_bytes, bytes) + bytes;
    atomic_fetch_add(&budget->by_owner_bytes[owner], bytes);
    uint64_t peak = atomic_load(&budget->peak_charged_bytes);
    while (charged > peak &&
           !atomic_compare_exchange_weak(&budget->peak_charged_bytes, &peak, charged)) {
    }
}

static void take_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    MS_ASSERT(atomic_load(&budget->by_owner_bytes[owner]) >= bytes);
    atomic_fetch_sub(&budget->by_owner_bytes[owner], bytes);
    atomic_fetch_sub(&budget->charged_bytes, bytes);
}

bool ms_budget_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    if (!commit(budget, bytes)) {
        return false;
    }
    add_charge(budget, owner, bytes);
    return true;
}

void ms_budget_impose(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    atomic_fetch_add(&budget->committed_bytes, bytes);
    add_charge(budget, owner, bytes);
}

void ms_budget_discharge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    take_charge(budget, owner, bytes);
    atomic_fetch_sub(&budget->committed_bytes, bytes);
}

bool ms_budget_promise(struct ms_budget *budget, uint64_t bytes)
{
    if (!commit(budget, bytes)) {
        return false;
    }
    atomic_fetch_add(&budget->promised_bytes, bytes);
    return true;
}

void ms_budget_unpromise(struct ms_budget *budget, uint64_t bytes)
{
    MS_ASSERT(atomic_load(&budget->promised_bytes) >= bytes);
    atomic_fetch_sub(&budget->promised_bytes, bytes);
    atomic_fetch_sub(&budget->committed_bytes, bytes);
}

bool ms_budget_charge_promised(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    /* Only what is imposed, or a bound, can make the sum pass the limit, and then no other charge
     * succeeds. */
    if (!fits(atomic_load(&budget->charged_bytes), bytes, ms_budget_limit_bytes(budget))) {
        return false;
    }
    atomic_fetch_sub(&budget->promised_bytes, bytes);
    add_charge(budget, owner, bytes);
    return true;
}

void ms_budget_promise_charged(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    take_charge(budget, owner, bytes);
    atomic_fetch_add(&budget->promised_bytes, bytes);
}

uint64_t ms_budget_free_bytes(const struct ms_budget *budget)
{
    uint64_t committed = atomic_load(&budget->committed_bytes);
    uint64_t limit = ms_budget_limit_bytes(budget);
    return committed < limit ? limit - committed : 0;
}
