/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of one device: bytes charged, bytes earmarked, and the limit that both together never
 * pass. The limit is the cap, or less where others hold so much of the device that it has less (the
 * bound). Earmarked bytes are memory that nobody holds yet and nobody else may have: the pool keeps
 * them for the holes of arenas, which a framework may fill again without asking.
 *
 * Where several processes have a cap together, each borrows its part of it from a lender, in steps.
 * What is charged and earmarked is never more than was borrowed.
 *
 * Reserve in the budget first, call the driver second, give back on failure. Every function is
 * lock-free, may be called from any thread, and never blocks, as far as the lender does not. */
#ifndef MEMSHIM_ALLOCATOR_DEVICE_BUDGET_H
#define MEMSHIM_ALLOCATOR_DEVICE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/event.h"

/* Who lends parts of a cap. Any thread; under whatever locks the budget is used. */
struct ms_budget_lender {
    void *ctx;
    uint64_t step_bytes; /* so much is borrowed at once, where there is so much */
    /* least_bytes, or up to most_bytes; 0: there is less than that. */
    uint64_t (*borrow)(void *ctx, uint64_t least_bytes, uint64_t most_bytes);
    /* Imposed bytes are borrowed whether the lender has them or not. */
    void (*impose)(void *ctx, uint64_t bytes);
    void (*give)(void *ctx, uint64_t bytes);
    uint64_t (*free_bytes)(void *ctx);
    void (*tell)(void *ctx, uint64_t committed_bytes); /* called when they have changed */
};

struct ms_budget {
    _Atomic uint64_t cap_bytes;
    _Atomic uint64_t bound_bytes; /* what the device has room for in all; UINT64_MAX: for more than
                                     the cap, as far as is known */
    _Atomic uint64_t committed_bytes; /* charged and earmarked; <= cap_bytes but for
                                         ms_budget_impose */
    _Atomic uint64_t charged_bytes;   /* the sum of by_owner */
    _Atomic uint64_t earmarked_bytes;
    _Atomic uint64_t by_owner_bytes[MS_OWNER_COUNT];
    _Atomic uint64_t peak_charged_bytes;
    _Atomic uint64_t borrowed_bytes; /* >= committed_bytes, but while a charge is under way */
    const struct ms_budget_lender *_Atomic lender; /* null: nothing is borrowed */
};

void ms_budget_init(struct ms_budget *budget, uint64_t cap_bytes);

/* From here on all is borrowed from that lender; it outlives the budget. Before the first charge.
 */
void ms_budget_borrow_from(struct ms_budget *budget, const struct ms_budget_lender *lender);

/* Gives back to the lender what is not in use, except keep_bytes. Returns how much it gave. */
uint64_t ms_budget_return(struct ms_budget *budget, uint64_t keep_bytes);

/* The lender is not asked any more: in a forked child, which charges nothing. */
void ms_budget_leave_lender(struct ms_budget *budget);

/* The device turned out to have room for so much of ours in all, or (UINT64_MAX) for the cap. Less
 * than what is charged and earmarked makes every charge fail until enough was given back. */
void ms_budget_bind(struct ms_budget *budget, uint64_t bound_bytes);
/* The smaller of cap and bound. */
uint64_t ms_budget_limit_bytes(const struct ms_budget *budget);

/* True, and charged, if that keeps charged + earmarked <= limit; false, and nothing changed,
 * otherwise. */
bool ms_budget_charge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Charge what the driver has already taken by itself, also where that passes the cap: no call of
 * the application's was there to refuse. The overshoot makes every later charge fail. */
void ms_budget_impose(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Give back what was charged or imposed. bytes <= what the owner has charged. */
void ms_budget_discharge(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* Earmark bytes under the condition of ms_budget_charge; and give earmarked bytes back. */
bool ms_budget_earmark(struct ms_budget *budget, uint64_t bytes);
void ms_budget_release_earmark(struct ms_budget *budget, uint64_t bytes);

/* Earmarked bytes become charged, and the other way round, in one step: nobody else can take them
 * in between. False, and nothing changed, where imposed bytes or another process have taken the
 * room meanwhile. */
bool ms_budget_charge_earmarked(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);
void ms_budget_earmark_charged(struct ms_budget *budget, enum ms_owner owner, uint64_t bytes);

/* limit - charged - earmarked, 0 where they have passed it. With a lender: at most what the lender
 * has, and what is borrowed and not in use. */
uint64_t ms_budget_free_bytes(const struct ms_budget *budget);

/* What has to be given back before a charge of `bytes` fits; by how much the limit was passed is
 * part of it. */
uint64_t ms_budget_lacking_bytes(const struct ms_budget *budget, uint64_t bytes);

#endif
