/* The budget of one device: what is charged, and the cap that it never passes.
 *
 * Reserve in the budget first, call the driver second, give back on failure. Every function is
 * lock-free, may be called from any thread, and never blocks. */
#ifndef MEMSHIM_ALLOCATOR_BUDGET_H
#define MEMSHIM_ALLOCATOR_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/event.h"

struct ms_budget {
    _Atomic uint64_t cap_bytes;
    _Atomic uint64_t charged_bytes; /* the sum of by_owner; <= cap_bytes but for ms_budget_impose */
    _Atomic uint64_t by_owner_bytes[MS_OWNER_COUNT];
    _Atomic uint64_t peak_charged_bytes;
};

void ms_budget_init(struct ms_budget *budget, uint64_t cap_bytes);

/* True, and charged, if that keeps charged <= cap; false, and nothing changed, otherwise. */
bool ms_budget_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Charge what the driver has already taken by itself, also where that passes the cap: no call of
 * the application's was there to refuse. The overshoot makes every later charge fail. */
void ms_budget_impose(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Give back what was charged or imposed. bytes <= what the owner has charged. */
void ms_budget_discharge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* cap - charged, 0 where charged has passed the cap. */
uint64_t ms_budget_free_bytes(const struct ms_budget *budget);

#endif
