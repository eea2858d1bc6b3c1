/* SPDX-License-Identifier: Apache-2.0 */
/* The budget: charged never passes the cap, from any number of threads. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>

#include "allocator/device/budget.h"

Test(budget, charges_up_to_the_cap_and_no_further)
{
    struct ms_budget budget;
    ms_budget_init(&budget, 100);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 60));
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_FORWARDED, 41));
    cr_assert_eq(atomic_load(&budget.charged_bytes), 60);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_FORWARDED, 40));
    cr_assert_eq(ms_budget_free_bytes(&budget), 0);
    ms_budget_discharge(&budget, MS_OWNER_POOL, 60);
    cr_assert_eq(ms_budget_free_bytes(&budget), 60);
    cr_assert_eq(atomic_load(&budget.by_owner_bytes[MS_OWNER_FORWARDED]), 40);
    cr_assert_eq(atomic_load(&budget.peak_charged_bytes), 100);
}

Test(budget, absurd_sizes_do_not_wrap)
{
    struct ms_budget budget;
    ms_budget_init(&budget, UINT64_MAX);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 10));
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_POOL, UINT64_MAX));
    cr_assert_eq(atomic_load(&budget.charged_bytes), 10);
}

Test(budget, what_is_imposed_may_pass_the_cap_and_blocks_all_else)
{
    struct ms_budget budget;
    ms_budget_init(&budget, 100);
    ms_budget_impose(&budget, MS_OWNER_CONTEXT, 130);
    cr_assert_eq(ms_budget_free_bytes(&budget), 0);
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_POOL, 1));
    ms_budget_discharge(&budget, MS_OWNER_CONTEXT, 40);
    cr_assert_eq(ms_budget_free_bytes(&budget), 10);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 10));
}

Test(budget, a_cap_lowered_below_what_is_charged_refuses)
{
    struct ms_budget budget;
    ms_budget_init(&budget, 100);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 80));
    atomic_store(&budget.cap_bytes, 50);
    cr_assert_eq(ms_budget_free_bytes(&budget), 0);
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_POOL, 1));
}

/* ---- a lender */

struct purse {
    uint64_t left, told;
};

static uint64_t left_in(void *ctx)
{
    return (int64_t)((struct purse *)ctx)->left > 0 ? ((struct purse *)ctx)->left : 0;
}

static uint64_t lend(void *ctx, uint64_t least, uint64_t most)
{
    uint64_t left = left_in(ctx);
    uint64_t bytes = left >= most ? most : left >= least ? least : 0;
    ((struct purse *)ctx)->left -= bytes;
    return bytes;
}

static void lend_anyhow(void *ctx, uint64_t bytes)
{
    ((struct purse *)ctx)->left -= bytes; /* below 0: as the group's sum is then above the cap */
}

static void take_back(void *ctx, uint64_t bytes)
{
    ((struct purse *)ctx)->left += bytes;
}

static void listen_to(void *ctx, uint64_t committed_bytes)
{
    ((struct purse *)ctx)->told = committed_bytes;
}

static struct purse purse;
static const struct ms_budget_lender lender = {.ctx = &purse,
                                               .step_bytes = 10,
                                               .borrow = lend,
                                               .impose = lend_anyhow,
                                               .give = take_back,
                                               .free_bytes = left_in,
                                               .tell = listen_to};

static void begin_borrowing(struct ms_budget *budget, uint64_t left)
{
    purse = (struct purse){.left = left};
    ms_budget_init(budget, 100);
    ms_budget_borrow_from(budget, &lender);
}

Test(budget, what_is_charged_is_borrowed_first)
{
    struct ms_budget budget;
    begin_borrowing(&budget, 60);
    cr_assert_eq(ms_budget_free_bytes(&budget), 60);
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_POOL, 61));
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 30));
    cr_assert_eq(purse.left, 20); /* a step more */
    cr_assert_eq(purse.told, 30);
    cr_assert_eq(ms_budget_free_bytes(&budget), 30);
    cr_assert(ms_budget_earmark(&budget, 30));
    cr_assert_eq(purse.left, 0);
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_POOL, 1));
}

Test(budget, what_is_not_in_use_goes_back)
{
    struct ms_budget budget;
    begin_borrowing(&budget, 60);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 50));
    ms_budget_discharge(&budget, MS_OWNER_POOL, 40);
    cr_assert_eq(purse.left, 40); /* but for what is used, and a step */
    cr_assert_eq(ms_budget_return(&budget, 0), 10);
    cr_assert_eq(purse.left, 50);
    cr_assert_eq(ms_budget_return(&budget, 0), 0);
}

Test(budget, what_is_imposed_is_borrowed_too)
{
    struct ms_budget budget;
    begin_borrowing(&budget, 20);
    ms_budget_impose(&budget, MS_OWNER_CONTEXT, 50);
    cr_assert_eq((int64_t)purse.left, -30);
    cr_assert_not(ms_budget_charge(&budget, MS_OWNER_POOL, 1));
    ms_budget_discharge(&budget, MS_OWNER_CONTEXT, 50);
    (void)ms_budget_return(&budget, 0);
    cr_assert_eq(purse.left, 20);
}

/* ---- racing */

enum { THREADS = 4, ROUNDS = 500000, CAP = 1000 };

static struct ms_budget shared;
static _Atomic uint64_t held; /* what the threads hold, counted by themselves */
static _Atomic bool passed_cap;
static pthread_barrier_t gate; /* so that they race, and do not run one after the other */

static void *race(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u + 1;
    pthread_barrier_wait(&gate);
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t bytes = (state >> 40) % 400 + 1;
        if (ms_budget_charge(&shared, MS_OWNER_POOL, bytes)) {
            if (atomic_fetch_add(&held, bytes) + bytes > CAP ||
                atomic_load(&shared.charged_bytes) > CAP) {
                atomic_store(&passed_cap, true);
            }
            atomic_fetch_sub(&held, bytes);
            ms_budget_discharge(&shared, MS_OWNER_POOL, bytes);
        }
    }
    return NULL;
}

Test(budget, racing_threads_never_pass_the_cap)
{
    pthread_t thread[THREADS];
    ms_budget_init(&shared, CAP);
    cr_assert_eq(pthread_barrier_init(&gate, NULL, THREADS), 0);
    for (uintptr_t k = 0; k < THREADS; k++) {
        cr_assert_eq(pthread_create(&thread[k], NULL, race, (void *)(k + 1)), 0);
    }
    for (int k = 0; k < THREADS; k++) {
        pthread_join(thread[k], NULL);
    }
    cr_assert_not(atomic_load(&passed_cap));
    cr_assert_leq(atomic_load(&shared.peak_charged_bytes), CAP);
    cr_assert_eq(atomic_load(&shared.charged_bytes), 0);
    cr_assert_eq(atomic_load(&shared.by_owner_bytes[MS_OWNER_POOL]), 0);
}

#ifdef MEMSHIM_CHECKS
Test(budget, more_than_was_charged_is_never_given_back, .signal = SIGABRT)
{
    struct ms_budget budget;
    ms_budget_init(&budget, 100);
    cr_assert(ms_budget_charge(&budget, MS_OWNER_POOL, 10));
    ms_budget_discharge(&budget, MS_OWNER_POOL, 11);
}
#endif
