/* SPDX-License-Identifier: Apache-2.0 */
/* The lock-free arithmetic of the budget: see budget.h. */
#include "allocator/device/budget.h"

#include <stddef.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/assert.h"

void ms_budget_init(struct ms_budget *budget, uint64_t cap_bytes)
{
    atomic_init(&budget->cap_bytes, cap_bytes);
    atomic_init(&budget->bound_bytes, UINT64_MAX);
    atomic_init(&budget->committed_bytes, 0);
    atomic_init(&budget->charged_bytes, 0);
    atomic_init(&budget->earmarked_bytes, 0);
    atomic_init(&budget->peak_charged_bytes, 0);
    atomic_init(&budget->borrowed_bytes, 0);
    atomic_init(&budget->lender, NULL);
    for (int owner = 0; owner < MS_OWNER_COUNT; owner++) {
        atomic_init(&budget->by_owner_bytes[owner], 0);
    }
}

/* ---- the lender ---- */

static const struct ms_budget_lender *lender_of(const struct ms_budget *budget)
{
    return atomic_load_explicit(&budget->lender, memory_order_acquire);
}

void ms_budget_borrow_from(struct ms_budget *budget, const struct ms_budget_lender *lender)
{
    atomic_store_explicit(&budget->lender, lender, memory_order_release);
}

void ms_budget_leave_lender(struct ms_budget *budget)
{
    ms_budget_borrow_from(budget, NULL);
}

/* Committed bytes that are not borrowed yet. */
static uint64_t unborrowed(const struct ms_budget *budget)
{
    return ms_less(atomic_load(&budget->committed_bytes), atomic_load(&budget->borrowed_bytes));
}

static bool borrow(struct ms_budget *budget, const struct ms_budget_lender *lender, uint64_t least)
{
    uint64_t got = lender->borrow(lender->ctx, least, least + lender->step_bytes);
    atomic_fetch_add(&budget->borrowed_bytes, got);
    return got != 0;
}

/* Borrows what is committed, also what other threads have just committed. */
static bool cover(struct ms_budget *budget, const struct ms_budget_lender *lender)
{
    uint64_t missing;
    while ((missing = unborrowed(budget)) != 0) {
        if (!borrow(budget, lender, missing)) {
            return false;
        }
    }
    lender->tell(lender->ctx, atomic_load(&budget->committed_bytes));
    return true;
}

/* Lowers borrowed_bytes first and then checks for a charge that came in between and needs the bytes
 * after all: a charge commits first and compares then. So it gives back only what nobody needs. */
uint64_t ms_budget_return(struct ms_budget *budget, uint64_t keep_bytes)
{
    const struct ms_budget_lender *lender = lender_of(budget);
    uint64_t borrowed = atomic_load(&budget->borrowed_bytes);
    uint64_t back;
    if (lender == NULL) {
        return 0;
    }
    do {
        back = ms_less(ms_less(borrowed, atomic_load(&budget->committed_bytes)), keep_bytes);
        if (back == 0) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak(&budget->borrowed_bytes, &borrowed, borrowed - back));
    if (unborrowed(budget) != 0) {
        atomic_fetch_add(&budget->borrowed_bytes, back);
        return 0;
    }
    lender->give(lender->ctx, back);
    return back;
}

/* Called after committed bytes became fewer. */
static void lessened(struct ms_budget *budget)
{
    const struct ms_budget_lender *lender = lender_of(budget);
    if (lender != NULL) {
        const uint64_t committed = atomic_load(&budget->committed_bytes);
        lender->tell(lender->ctx, committed);
        if (ms_less(atomic_load(&budget->borrowed_bytes), committed) > 2 * lender->step_bytes) {
            (void)ms_budget_return(budget, lender->step_bytes);
        }
    }
}

/* ---- the budget ---- */

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

/* Neither side can wrap around, however large the request or the imposed bytes. */
static bool fits(uint64_t held_bytes, uint64_t bytes, uint64_t limit_bytes)
{
    return held_bytes <= limit_bytes && bytes <= limit_bytes - held_bytes;
}

static bool commit(struct ms_budget *budget, uint64_t bytes)
{
    const struct ms_budget_lender *lender = lender_of(budget);
    uint64_t committed = atomic_load(&budget->committed_bytes);
    do {
        if (!fits(committed, bytes, ms_budget_limit_bytes(budget))) {
            return false;
        }
    } while (
        !atomic_compare_exchange_weak(&budget->committed_bytes, &committed, committed + bytes));
    if (lender != NULL && !cover(budget, lender)) {
        atomic_fetch_sub(&budget->committed_bytes, bytes);
        return false;
    }
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
    const struct ms_budget_lender *lender = lender_of(budget);
    atomic_fetch_add(&budget->committed_bytes, bytes);
    if (lender != NULL && !cover(budget, lender)) {
        /* At most `bytes`: another thread's part is still under way, and may be refused. */
        const uint64_t missing = ms_least(unborrowed(budget), bytes);
        lender->impose(lender->ctx, missing);
        atomic_fetch_add(&budget->borrowed_bytes, missing);
    }
    add_charge(budget, owner, bytes);
}

void ms_budget_discharge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    take_charge(budget, owner, bytes);
    atomic_fetch_sub(&budget->committed_bytes, bytes);
    lessened(budget);
}

bool ms_budget_earmark(struct ms_budget *budget, uint64_t bytes)
{
    if (!commit(budget, bytes)) {
        return false;
    }
    atomic_fetch_add(&budget->earmarked_bytes, bytes);
    return true;
}

void ms_budget_release_earmark(struct ms_budget *budget, uint64_t bytes)
{
    MS_ASSERT(atomic_load(&budget->earmarked_bytes) >= bytes);
    atomic_fetch_sub(&budget->earmarked_bytes, bytes);
    atomic_fetch_sub(&budget->committed_bytes, bytes);
    lessened(budget);
}

bool ms_budget_charge_earmarked(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    /* Only imposed bytes or a bound push the sum over the limit, and then no other charge
     * succeeds. */
    if (!fits(atomic_load(&budget->charged_bytes), bytes, ms_budget_limit_bytes(budget))) {
        return false;
    }
    atomic_fetch_sub(&budget->earmarked_bytes, bytes);
    add_charge(budget, owner, bytes);
    return true;
}

void ms_budget_earmark_charged(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    take_charge(budget, owner, bytes);
    atomic_fetch_add(&budget->earmarked_bytes, bytes);
}

uint64_t ms_budget_free_bytes(const struct ms_budget *budget)
{
    uint64_t committed = atomic_load(&budget->committed_bytes);
    uint64_t limit = ms_budget_limit_bytes(budget);
    const struct ms_budget_lender *lender = lender_of(budget);
    uint64_t room = ms_less(limit, committed);
    if (lender != NULL) {
        const uint64_t spare = ms_less(atomic_load(&budget->borrowed_bytes), committed);
        room = ms_least(room, spare + lender->free_bytes(lender->ctx));
    }
    return room;
}

uint64_t ms_budget_lacking_bytes(const struct ms_budget *budget, uint64_t bytes)
{
    const uint64_t passed =
        ms_less(atomic_load(&budget->committed_bytes), ms_budget_limit_bytes(budget));
    return ms_less(bytes, ms_budget_free_bytes(budget)) + passed;
}
