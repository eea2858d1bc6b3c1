#include "allocator/budget.h"

void ms_budget_init(struct ms_budget *budget, uint64_t cap_bytes)
{
    atomic_init(&budget->cap_bytes, cap_bytes);
    atomic_init(&budget->charged_bytes, 0);
    atomic_init(&budget->peak_charged_bytes, 0);
    for (int owner = 0; owner < MS_OWNER_COUNT; owner++) {
        atomic_init(&budget->by_owner_bytes[owner], 0);
    }
}

static void note_charged(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes,
                         uint64_t charged_bytes)
{
    atomic_fetch_add(&budget->by_owner_bytes[owner], bytes);
    uint64_t peak = atomic_load(&budget->peak_charged_bytes);
    while (charged_bytes > peak &&
           !atomic_compare_exchange_weak(&budget->peak_charged_bytes, &peak, charged_bytes)) {
    }
}

bool ms_budget_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    uint64_t charged = atomic_load(&budget->charged_bytes);
    do {
        uint64_t cap = atomic_load(&budget->cap_bytes);
        /* Written so that neither side can wrap, whatever was asked for or imposed. */
        if (charged > cap || bytes > cap - charged) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&budget->charged_bytes, &charged, charged + bytes));
    note_charged(budget, owner, bytes, charged + bytes);
    return true;
}

void ms_budget_impose(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    uint64_t charged = atomic_fetch_add(&budget->charged_bytes, bytes);
    note_charged(budget, owner, bytes, charged + bytes);
}

void ms_budget_discharge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes)
{
    atomic_fetch_sub(&budget->by_owner_bytes[owner], bytes);
    atomic_fetch_sub(&budget->charged_bytes, bytes);
}

uint64_t ms_budget_free_bytes(const struct ms_budget *budget)
{
    uint64_t charged = atomic_load(&budget->charged_bytes);
    uint64_t cap = atomic_load(&budget->cap_bytes);
    return charged < cap ? cap - charged : 0;
}
